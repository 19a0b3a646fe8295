"""A traced graph whose sizes change, as one program for all sizes up to a bound.

Every tensor of the graph gets the largest size it can have. What is real lies at the beginning of each dimension, the
rest is padding whose contents nobody may see: where an operator mixes positions (a sum, a contraction, a softmax, a
write by position), the padding is masked here with the real size, which the program takes as a number. So it needs
nothing of a plugin, and a chip with no dynamic shapes has them.

Between programs a tensor that the user can see is *compact*: its elements lie without gaps at the beginning of a buffer
of the bound's size, so that it is contiguous as everywhere in PyTorch. What a forward graph saves for its backward
graph stays *padded*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor

from torch_pjrt._decompose import Untraceable

__all__ = ["Bounded", "Factor", "Sym", "Value", "expression", "symbolic"]

aten = torch.ops.aten
Expr = Any  # sympy has no types


class Factor(NamedTuple):
    """A part of a dimension: its real size, that in the program, and whether its contents are the same throughout."""

    size: Expr
    bound: int
    uniform: bool = False


Dim = tuple[Factor, ...]  # outer factors first; one factor unless dimensions have been merged


class Value(NamedTuple):
    """A tensor at its bounds."""

    tensor: Tensor
    dims: tuple[Dim, ...]


class Sym(NamedTuple):
    """A number that is known when the program is called."""

    expr: sympy.Expr
    kind: type  # int, float, bool


class _Merged(Untraceable):
    """A rule does not know what to do with dimensions that have been merged."""


class Bounded:
    """Runs a graph at its bounds; under ``make_fx`` that makes the graph of the program.

    Args:
        graph: of AOTAutograd, with ``node.meta["val"]``.
        bounds: the largest size of each symbol.
        numbers: real sizes and what is computed from them, in the order of ``wanted`` of an earlier run; None for a
            run that only finds out what is wanted.
    """

    def __init__(
        self, graph: torch.fx.Graph, bounds: dict[sympy.Symbol, int], numbers: Sequence[Tensor] | None
    ) -> None:
        self.graph = graph
        self.bounds = bounds
        self.numbers = numbers
        self.wanted: dict[tuple[Expr, torch.dtype], int] = {}
        self.on_device: dict[tuple[Expr, torch.dtype], Tensor] = {}
        self.masks: dict[tuple[tuple[Expr, int], ...], Tensor] = {}
        self.user: torch.fx.Node | None = None
        self.equal: set[tuple[sympy.Symbol, sympy.Symbol]] = set()  # sizes that are one, or the call is a mistake

    def run(self, values: Sequence[Value | None]) -> list[Any]:
        """The graph's results: a Value for each tensor."""
        found: dict[torch.fx.Node, Any] = {}
        given = iter(values)
        for node in self.graph.nodes:
            self.user = node
            if node.op == "placeholder":
                found[node] = next(given)
            elif node.op == "output":
                return [found[x] if isinstance(x, torch.fx.Node) else x for x in node.args[0]]
            elif node.op == "call_function":
                if not _is_tensor(node.meta.get("val")):
                    found[node] = None  # a size: its expression stands in the graph
                    continue
                with torch.fx.traceback.set_current_meta(node):
                    found[node] = self.call(node, found)
            else:
                self.refuse(node.op)
        raise AssertionError("a graph has an output")

    def refuse(self, why: str) -> Any:
        raise Untraceable(why if self.user is None else f"{self.user.target}: {why}")

    def call(self, node: torch.fx.Node, found: dict[torch.fx.Node, Any]) -> Any:
        """One call, by its rule."""
        raise NotImplementedError

    # Sizes.

    def bound(self, expr: Expr) -> int:
        """The largest value of a size."""
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

        if isinstance(expr, int) or expr.is_number:
            return int(expr)
        if not self.bounds.keys() >= expr.free_symbols:
            return self.refuse(f"size {expr}")
        if isinstance(expr, sympy.Symbol):
            return self.bounds[expr]
        upper = bound_sympy(expr, {s: ValueRanges(0, b) for s, b in self.bounds.items()}).upper
        return int(upper) if upper.is_Integer else self.refuse(f"size {expr}")

    def dim(self, size: Any, uniform: bool = False) -> Dim:
        expr = expression(size)
        return (Factor(expr, self.bound(expr), uniform),)

    def dims(self, tensor: Tensor, uniform: bool = False) -> tuple[Dim, ...]:
        return tuple(self.dim(n, uniform) for n in tensor.shape)

    def order(self, like: Tensor) -> list[int]:
        """The dimensions as they lie in memory, outermost first."""
        sizes, strides = ([self.bound(expression(n)) for n in numbers] for numbers in (like.shape, like.stride()))
        order = sorted(range(like.dim()), key=lambda d: (-strides[d], sizes[d] == 1))
        dense = all(
            sizes[d] == 1 or strides[d] == math.prod(sizes[e] for e in order[k + 1 :]) for k, d in enumerate(order)
        )
        return order if dense else list(range(like.dim()))

    def number(self, expr: Expr, dtype: torch.dtype = torch.int32) -> Tensor:
        """A 0-d tensor with the real value, on the device: what the CPU computes would be a constant of the program."""
        key = (expr, dtype)
        which = self.wanted.setdefault(key, len(self.wanted))
        if key not in self.on_device:
            given = torch.zeros((), dtype=dtype) if self.numbers is None else self.numbers[which]
            zero = aten.full.default([], 0, dtype=dtype, device="meta")
            self.on_device[key] = aten.bitwise_or.Tensor(zero, given) if dtype == torch.bool else zero + given
        return self.on_device[key]

    def size(self, dim: Dim) -> Expr:
        return math.prod((f.size for f in dim), start=sympy.Integer(1))

    def iota(self, length: int) -> Tensor:
        return aten.arange.default(length, dtype=torch.int32, device="meta")

    # Masks.

    def mask(self, dim: Dim) -> Tensor:
        """Which positions of a dimension are real."""
        key = tuple((f.size, f.bound) for f in dim)
        if key not in self.masks:
            mask: Tensor | None = None
            for i, f in enumerate(dim):
                if not _is_dynamic((f,)):
                    continue
                real = aten.lt.Tensor(self.iota(f.bound), self.number(f.size))
                if len(dim) > 1:
                    real = aten.view.default(
                        real, [g.bound if g is f else 1 for g in dim[: i + 1]] + [1] * len(dim[i + 1 :])
                    )
                mask = real if mask is None else aten.logical_and.default(mask, real)
            assert mask is not None
            if len(dim) > 1:
                mask = mask.expand([f.bound for f in dim]).reshape(-1)
            self.masks[key] = mask
        return self.masks[key]

    def masked(self, value: Value, dims: Sequence[int], fill: Any) -> Tensor:
        """The tensor with ``fill`` in the padding of some dimensions."""
        tensor = value.tensor
        for i in dims:
            i %= max(len(value.dims), 1)
            if not value.dims or not _is_dynamic(value.dims[i]):
                continue
            mask = self.mask(value.dims[i])
            mask = aten.view.default(mask, [-1 if j == i else 1 for j in range(tensor.dim())])
            tensor = aten.where.self(mask, tensor, aten.full.default([], fill, dtype=tensor.dtype, device="meta"))
        return tensor

    # Memory of the user's tensors.

    def restored(self, tensor: Tensor, like: Tensor, layout: Sequence[Sequence[Expr]] | None) -> Value:
        """What lies in memory as an argument of the graph: compact, or padded with this layout."""
        if layout is None:
            return self.unpack(tensor, self.dims(like))
        dims = tuple(tuple(Factor(n, self.bound(n)) for n in dim) for dim in layout)
        return Value(tensor.view([_bound(dim) for dim in dims]), dims)

    def unpack(self, compact: Tensor, dims: tuple[Dim, ...]) -> Value:
        """From compact to padded."""
        factors, last = _before_last([f for dim in dims for f in dim])
        bounds = [_bound(dim) for dim in dims]
        if last > 0:
            where: Any = 0
            for i, f in enumerate(factors[:last]):
                at = self.iota(f.bound).view([-1 if j == i else 1 for j in range(last)])
                where = at if i == 0 else where * self.real(f) + at
            compact = self.rows(compact, where.expand([f.bound for f in factors[:last]]).reshape(-1))
        return Value(compact.reshape(bounds), dims)

    def pack(self, value: Value) -> Tensor:
        """From padded to compact."""
        factors, last = _before_last([f for dim in value.dims for f in dim])
        if last == 0:
            return value.tensor.contiguous()
        left: Any = self.iota(math.prod(f.bound for f in factors[:last]))
        where, stride = 0, 1
        for f in reversed(factors[1:last]):
            size = self.real(f)
            size = torch.clamp(size, min=1) if isinstance(size, Tensor) else size
            where, stride = torch.remainder(left, size) * stride + where, stride * f.bound
            left = torch.div(left, size, rounding_mode="trunc")
        return self.rows(value.tensor, left * stride + where).reshape(value.tensor.shape)

    def real(self, f: Factor) -> Any:
        return self.number(f.size) if _is_dynamic((f,)) else f.bound

    def rows(self, tensor: Tensor, where: Tensor) -> Tensor:
        """The tensor as rows, in another order."""
        rows = tensor.reshape([where.shape[0], -1])
        return aten.index_select.default(rows, 0, torch.clamp(where, max=where.shape[0] - 1))

    # Shapes.

    def simple(self, x: Any) -> Any:
        """A tensor without merged dimensions."""
        if not isinstance(x, Value) or not any(len(dim) > 1 for dim in x.dims):
            return x
        return self.relaid(x, tuple(self.dim(self.size(dim)) if len(dim) > 1 else dim for dim in x.dims))

    def relaid(self, x: Value, dims: tuple[Dim, ...]) -> Value:
        """The same elements in the same order, in other dimensions."""
        flat = self.pack(x).reshape(-1)
        more = math.prod(map(_bound, dims)) - flat.shape[0]
        flat = torch.cat([flat, flat.new_zeros(more)]) if more > 0 else flat[: flat.shape[0] + more]
        return self.unpack(flat.reshape([_bound(dim) for dim in dims]), dims)

    def result(self, node: torch.fx.Node, tensor: Tensor, dims: tuple[Dim, ...] | None = None) -> Value:
        like = node.meta["val"]
        if tensor.dtype != like.dtype:
            tensor = aten._to_copy.default(tensor, dtype=like.dtype)
        dims = self.dims(like) if dims is None else dims
        expected = [_bound(dim) for dim in dims]
        if list(tensor.shape) != expected:
            self.refuse(f"sizes {list(tensor.shape)} and {expected} at the bounds")
        return Value(tensor, dims)

    def join(self, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
        """The dimensions of what is computed element by element."""
        out: list[Dim] = []
        for i in range(max((len(s) for s in shapes), default=0)):
            dim: Dim | None = None
            for shape in shapes:
                if i >= len(shape):
                    continue
                other = shape[len(shape) - 1 - i]
                if dim is None or _is_one(dim) or (_is_uniform(dim) and not _is_one(other)):
                    dim = other
                elif not _is_one(other) and not _is_uniform(other) and _plain(other) != _plain(dim):
                    if self.may_equal(dim, other):
                        continue
                    raise _Merged(f"{self.user and self.user.target}: sizes {_text(dim)} and {_text(other)}")
            assert dim is not None
            out.append(dim)
        return tuple(reversed(out))

    def may_equal(self, dim: Dim, other: Dim) -> bool:
        """Whether two sizes are equal if those of the call are: PyTorch has not noticed that they have to be."""
        sizes = [f.size for f in (*dim, *other)]
        if len(dim) != 1 or len(other) != 1 or dim[0].bound != other[0].bound:
            return False
        if not all(isinstance(n, sympy.Symbol) for n in sizes):
            return False
        self.equal.add((sizes[0], sizes[1]))
        return True


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value))


def _leaves(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value, is_leaf=_is_leaf)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Value | Sym)


def expression(size: Any) -> sympy.Expr:
    """A size as an expression."""
    if isinstance(size, torch.SymInt):
        return size.node.expr
    return sympy.sympify(size, strict=True)  # no text, which sympy would evaluate


def symbolic(value: Any) -> Any:
    """A number of the graph: itself when it is known now."""
    for kind, symbolic in ((int, torch.SymInt), (float, torch.SymFloat), (bool, torch.SymBool)):
        if isinstance(value, symbolic):
            expr = value.node.expr
            return kind(expr) if expr.is_number or expr in (sympy.true, sympy.false) else Sym(expr, kind)
    return value


def _is_dynamic_call(node: torch.fx.Node) -> bool:
    """Whether a size of the call changes."""
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    leaves = torch.utils._pytree.tree_leaves(values)
    return any(
        isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool)
        or (isinstance(x, Tensor) and any(isinstance(n, torch.SymInt) for n in x.shape))
        for x in leaves
    )


def _on_meta(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": torch.device("meta")} if kwargs.get("device") is not None else kwargs


def _contiguous(x: Value) -> Tensor:
    """For a view of it, which the real strides may allow where those at the bounds do not."""
    return x.tensor.contiguous()


def _bound(dim: Dim) -> int:
    return math.prod(f.bound for f in dim)


def _before_last(factors: list[Factor]) -> tuple[list[Factor], int]:
    """How many factors it takes to say where a row lies; 0 when nothing lies between the rows."""
    moving = [i for i, f in enumerate(factors) if _is_dynamic((f,))]
    if not moving or all(f.bound == 1 for f in factors[: moving[-1]]):
        return factors, 0
    return factors, moving[-1] + 1


def _is_dynamic(dim: Dim) -> bool:
    return any(isinstance(f.size, sympy.Expr) and not f.size.is_number for f in dim)


def _is_uniform(dim: Dim) -> bool:
    return all(f.uniform for f in dim)


def _is_one(dim: Dim) -> bool:
    return all(f.size == 1 for f in dim)


def _plain(dim: Dim) -> list[tuple[Expr, int]]:
    """What has to be equal of two dimensions."""
    return [(f.size, f.bound) for f in _merge([f for f in dim if f.size != 1])]


def _merge(dim: Sequence[Factor]) -> Dim:
    """Neighbours that do not change are one."""
    out: list[Factor] = []
    for f in dim:
        if out and not _is_dynamic((f,)) and not _is_dynamic((out[-1],)):
            out[-1] = Factor(out[-1].size * f.size, out[-1].bound * f.bound, out[-1].uniform and f.uniform)
        else:
            out.append(f)
    return tuple(out) or (Factor(sympy.Integer(1), 1),)


def _divides(a: Expr, b: Expr) -> bool:
    q = sympy.cancel(sympy.sympify(b) / sympy.sympify(a))
    return sympy.fraction(q)[1] == 1 and (not q.is_number or q.is_integer)


def _text(dims: Any) -> str:
    if dims and isinstance(dims[0], Factor):
        return "*".join(str(f.size) for f in dims)
    return "[" + ", ".join(_text(dim) for dim in dims) + "]"


def _all(args: list[Any], count: int, *defaults: Any) -> list[Any]:
    """So many arguments: the given ones, and the defaults of the last ones where the graph leaves them out."""
    return [*args, *defaults[len(defaults) - (count - len(args)) :]]
