"""The programs for eager calls whose sizes change (``_places.py``): an operator's graph at its bounds.

How the arguments lie in memory is an input of the program: a call writes and reads views of storages of any size.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from torch_pjrt import _decompose, _rules, _sizes, bounded, compiler
from torch_pjrt._places import Given, Operator, is_size, kinds, memory_order

__all__ = ["Entry"]

aten = torch.ops.aten
_MOST_KEPT = 4096  # calls of a program, by their sizes
_ONLY_SHAPE = {"full_like", "zeros_like", "ones_like", "empty_like", "new_zeros", "new_full", "new_empty", "sym_size"}


class _Lies(NamedTuple):
    """How an argument lies in its storage, as far as a program depends on it."""

    order: tuple[int, ...]
    is_dense: bool  # from the start of the storage, without gaps
    numel: int  # of the storage; 0 if the program does not take it
    row: int  # elements that always lie together
    row_dims: int  # how many dimensions they are


class _OfCall(_sizes.Sizes):
    """The sizes of a call, and where its arguments lie."""

    def __init__(self, graph: torch.fx.Graph, symbols: Sequence[sympy.Symbol], written: Sequence[int]) -> None:
        self.most = {}
        self.padded = {}
        self.is_forward = False
        self.has_rules = True
        self.placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self.of_tensors = set(symbols)
        output = next(n for n in graph.nodes if n.op == "output").args[0]
        self.is_for_user = [True] * len(output)
        self.written = list(written)  # which argument each of the first results is written to

    def bound(self, symbol: sympy.Symbol, value: int) -> int:
        return _bound(value)


class _AtBounds(_sizes.AtBounds):
    """A call's graph at its bounds."""

    def __init__(self, sizes: _OfCall, values: dict[sympy.Symbol, int], lies: Sequence[_Lies | None]) -> None:
        sizes = copy.copy(sizes)
        self.of_call = sizes
        self.lies = lies
        sizes.layouts = [None] * len(sizes.placeholders)
        sizes.changing = [
            at is not None and at.numel > 0 for at in (*lies, *[None] * (len(sizes.placeholders) - len(lies)))
        ]
        sizes.sources = dict.fromkeys(values, (0, 0))
        super().__init__(sizes, tuple(values.values()))

    def likes(self, graph: torch.fx.Graph, args: Sequence[Any]) -> list[Any]:
        likes = list(args)
        for i, lies in enumerate(self.lies):
            if lies is not None:
                likes[i] = torch.empty((lies.numel,), dtype=args[i].dtype, device="meta")
        self.run(graph, likes, None)
        return likes

    def restored(self, run: bounded.Bounded, i: int, node: torch.fx.Node, tensor: Tensor) -> bounded.Value:
        lies = self.lies[i]
        assert lies is not None
        dims = run.dims(node.meta["val"])
        if not lies.is_dense:
            rows = tensor.view(-1, lies.row)
            where = torch.clamp(self.places(run, i, dims), min=0, max=rows.shape[0] - 1)
            taken = aten.index_select.default(rows, 0, where.reshape(-1))
            return bounded.Value(taken.reshape([bounded._bound(dim) for dim in dims]), dims)
        ordered = tuple(dims[d] for d in lies.order)
        shape = [bounded._bound(dim) for dim in ordered]
        value = run.unpack(_of_length(tensor, math.prod(shape)).view(shape), ordered)
        return bounded.Value(value.tensor.permute([lies.order.index(d) for d in range(len(dims))]), dims)

    def places(self, run: bounded.Bounded, i: int, dims: tuple[bounded.Dim, ...]) -> Tensor:
        """Where each row of an argument lies in its storage."""
        lies = self.lies[i]
        assert lies is not None
        outer = dims[: len(dims) - lies.row_dims]
        where = run.number(_symbol(i, -1)) + run.iota(1)
        for d, dim in enumerate(outer):
            at = run.iota(bounded._bound(dim)) * run.number(_symbol(i, d))
            where = where.unsqueeze(-1) + at
        return where.squeeze(0) if outer else where

    def made(self, i: int, node: torch.fx.Node, run: bounded.Bounded, value: bounded.Value) -> Tensor:
        packed = super().made(i, node, run, value).reshape(-1)
        return _flat(_of_length(packed, rounded(packed.shape[0])))

    def is_written(self, i: int) -> bool:
        return i < len(self.of_call.written)

    def write(
        self, i: int, run: bounded.Bounded, node: torch.fx.Node, value: bounded.Value, args: Sequence[Any]
    ) -> Tensor:
        """The new contents of a storage."""
        argument = self.of_call.written[i]
        lies = self.lies[argument]
        assert lies is not None
        base: Tensor = args[argument]
        if not lies.is_dense:
            dims = value.dims
            outer = dims[: len(dims) - lies.row_dims]
            nowhere = base.shape[0] // lies.row
            where = self.places(run, argument, dims).reshape([bounded._bound(dim) for dim in outer])
            where = run.masked(bounded.Value(where, outer), range(len(outer)), nowhere).reshape(-1)
            rows, new = base.view(-1, lies.row), value.tensor.reshape(-1, lies.row)
            return _flat(aten.index_put.default(rows, [where.to(torch.int64)], new).reshape(-1))
        ordered = bounded.Value(value.tensor.permute(lies.order), tuple(value.dims[d] for d in lies.order))
        packed = run.pack(ordered).reshape(-1)
        if not lies.numel:  # nobody reads what was there, and there is nothing else
            return _flat(_of_length(packed, rounded(packed.shape[0])))
        count = sympy.prod(run.size(dim) for dim in value.dims)
        real = run.iota(lies.numel) < (int(count) if count.is_number else run.number(count))
        return aten.where.self(real, _of_length(packed, lies.numel), base)


def _flat(flat: Tensor) -> Tensor:
    """A view would be a buffer with the dimensions of its base."""
    return aten.clone.default(flat)


def _of_length(flat: Tensor, length: int) -> Tensor:
    more = length - flat.shape[0]
    return torch.cat([flat, flat.new_zeros(more)]) if more > 0 else flat[:length]


@cache
def _symbol(argument: int, dim: int) -> sympy.Symbol:
    """Where an argument begins (dim -1), or a stride, in rows."""
    return sympy.Symbol(f"place_{argument}_{dim}", integer=True, nonnegative=True)


class _Symbol(NamedTuple):
    number: int


def _function(operator: Operator, args: Sequence[Any], given: Given, changing: dict[int, int]) -> Callable[..., Any]:
    """The call as a function of its tensors, its numbers in place of tensors, and the sizes that change."""
    kind = kinds(given.place[0], operator, args)
    args = tree_map_only(Tensor, _like, list(args))  # nothing here keeps contents alive
    sizes = given.sizes
    tensor_count, number_count = len(given.tensors), len(given.numbers)

    def run(*flat: Any) -> list[Any]:
        tensors = iter(flat[:tensor_count])
        numbers = iter(flat[tensor_count : tensor_count + number_count])
        known = flat[tensor_count + number_count :]
        place = iter(range(len(sizes)))

        def argument(v: Any, kind: str) -> Any:
            if isinstance(v, Tensor):
                for n in v.shape:
                    if is_size(n):
                        next(place)
                return next(tensors)
            if isinstance(v, list | tuple):
                return [argument(item, kind) for item in v]
            if kind == "sizes" and is_size(v):
                at = next(place)
                return known[changing[at]] if at in changing else v
            if kind == "number" and not isinstance(v, bool):
                return next(numbers)
            if kind == "ScalarType" and v is not None:
                return _decompose._DTYPES[v]
            return v

        call = [argument(v, k) for v, k in zip(args, kind, strict=True)]
        made = operator.run(*call[: operator.takes])
        results = list(made) if isinstance(made, list | tuple) else [made]
        for k, i in enumerate(operator.written):
            if results[k].device != call[i].device or tuple(results[k].shape) != tuple(call[i].shape):
                raise _decompose.Untraceable("a result of another shape")
            if not torch.can_cast(results[k].dtype, call[i].dtype):
                raise _decompose.Untraceable("a result of another dtype")
            results[k] = results[k].to(call[i].dtype)
        return [aten.clone.default(r) if isinstance(r, Tensor) else r for r in results]  # none is an argument

    return run


class Entry:
    """A place's graph for some changing sizes, and its programs.

    Args:
        operator: with its ``args`` of a first call.
        given: the same.
        changing: which of its sizes change, with the number of a symbol.
    """

    def __init__(self, operator: Operator, args: Sequence[Any], given: Given, changing: dict[int, int]) -> None:
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        env = ShapeEnv()
        hints = {symbol: given.sizes[i] for i, symbol in changing.items()}
        symbols: list[torch.SymInt] = []
        for number, hint in sorted(hints.items()):
            source = ConstantSource(f"size_{number}")
            expr = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
            symbols.append(env.create_symintnode(expr, hint=hint, source=source))
        self.written = [sum(isinstance(v, Tensor) for v in tree_leaves(args[:i])) for i in operator.written]
        with FakeTensorMode(shape_env=env), torch.no_grad():
            fakes = []
            for t, first in zip(given.tensors, given.first, strict=True):
                place = itertools.count(first)
                at = [next(place) if is_size(n) else -1 for n in t.shape]
                shape = [symbols[changing[i]] if i in changing else n for i, n in zip(at, t.shape, strict=True)]
                fakes.append(_fake(t, shape))
            run = _function(operator, args, given, changing)
            self.gm = make_fx(run, decomposition_table=_table())(*fakes, *map(_number, given.numbers), *symbols)
        if env.replacements:
            raise _decompose.Untraceable("PyTorch's code fixes a size that changes")
        self.sizes = tuple(_Symbol(changing[i]) if i in changing else n for i, n in enumerate(given.sizes))
        self.guards = [guard.expr for guard in env.guards]
        self.symbols = [s.node.expr for s in symbols]
        self.where = [next(i for i, symbol in changing.items() if symbol == number) for number in range(len(symbols))]
        self.of_call = _OfCall(self.gm.graph, self.symbols, self.written)
        self.reads = [
            any(getattr(u.target, "_opname", "") not in _ONLY_SHAPE for u in node.users)
            for node in self.of_call.placeholders[: len(given.tensors)]
        ]
        self.programs: dict[Any, tuple[Any, _AtBounds]] = {}
        self.calls: dict[Any, Any] = {}
        self.served: dict[tuple[int, ...], bool] = {}
        self.refused = ""

    def values(self, sizes: tuple[int, ...]) -> list[int]:
        """Of the symbols, in a call that the graph serves."""
        return [sizes[i] for i in self.where]

    def serves(self, sizes: tuple[int, ...]) -> bool:
        if sizes not in self.served:
            if len(self.served) >= _MOST_KEPT:
                self.served.clear()
            values = self.values(sizes)
            now = dict(zip(self.symbols, values, strict=True))
            self.served[sizes] = all(
                n == (values[known.number] if isinstance(known, _Symbol) else known)
                for known, n in zip(self.sizes, sizes, strict=True)
            ) and all(guard.subs(now) == sympy.true for guard in self.guards)
        return self.served[sizes]

    def prepared(self, given: Given) -> Callable[[], tuple[Any, ...]]:
        """The call, ready to run."""
        lies = [self.lies(i, t) for i, t in enumerate(given.tensors)]
        places = tuple(
            (t.storage_offset(), t.stride()) if at is not None and not at.is_dense else None
            for t, at in zip(given.tensors, lies, strict=True)
        )
        key = (given.sizes, tuple(lies), places)
        call = self.calls.get(key)
        if call is None:
            if len(self.calls) >= _MOST_KEPT:
                self.calls.clear()
            call = self.calls[key] = self.prepare(given, lies)
        return functools.partial(self.run, call, given, lies)

    def run(self, call: tuple[Any, _sizes.Call], given: Given, lies: Sequence[_Lies | None]) -> tuple[Any, ...]:
        values: list[Any] = []
        for t, at in zip(given.tensors, lies, strict=True):
            values.append(t if at is None or not at.numel else torch.ops.tpj.flat_storage(t, at.numel))
        values += [_number(n) for n in given.numbers] + self.values(given.sizes)
        program, at_sizes = call
        results = list(compiler._run(program, at_sizes, values))
        for k, i in enumerate(self.written):
            torch.ops.tpj.adopt_(given.tensors[i], results[k])
            results[k] = given.tensors[i]
        return tuple(results)

    def lies(self, i: int, t: Tensor) -> _Lies | None:
        """How the argument will lie when the program runs; None for one that always lies in the same way."""
        order, is_dense = memory_order(t)
        item = t.element_size()
        numel, rest = divmod(t.untyped_storage().nbytes(), item)
        reach = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1
        like = self.of_call.placeholders[i].meta["val"].shape
        written = i in self.written
        changes = any(isinstance(n, torch.SymInt) for n in like)
        exact = is_dense and numel == reach
        if not written and (not self.reads[i] or (exact and not changes)):
            return None
        if rest or numel >= 1 << 30:
            raise _decompose.Untraceable("a storage of another dtype, or a large one")
        if written and any(s == 0 and n != 1 for s, n in zip(t.stride(), t.shape, strict=True)):
            raise _decompose.Untraceable("what is written overlaps itself")
        if not self.reads[i] and exact:
            return _Lies(order, True, 0, 1, 0)
        flat = torch.ops.tpj.flat_numel(t)
        flat = flat if flat == rounded(flat) else 0
        if exact and changes:
            bounds = [_bound(n) if isinstance(s, torch.SymInt) else n for n, s in zip(t.shape, like, strict=True)]
            numel = flat if flat > numel else rounded(math.prod(bounds))
        elif not exact:
            numel = flat if flat >= numel else 1 << numel.bit_length()
        row, row_dims = (1, 0) if is_dense else self.row(i, t, numel)
        return _Lies(order, is_dense, numel, row, row_dims)

    def row(self, i: int, t: Tensor, numel: int) -> tuple[int, int]:
        """How many elements always lie together, and of how many of the last dimensions."""
        like = self.of_call.placeholders[i].meta["val"].shape
        best, row = (1, 0), 1
        for d in reversed(range(t.dim())):
            if isinstance(like[d], torch.SymInt) or (t.shape[d] != 1 and t.stride(d) != row):
                break
            row *= t.shape[d]
            steps = [s for n, s in zip(t.shape[:d], t.stride()[:d], strict=True) if n != 1]
            if all(n % row == 0 for n in (t.storage_offset(), numel, *steps)):
                best = (row, t.dim() - d)
        return best

    def prepare(self, given: Given, lies: Sequence[_Lies | None]) -> tuple[Any, _sizes.Call]:
        values: dict[sympy.Symbol, int] = dict(zip(self.symbols, self.values(given.sizes), strict=True))
        bounds = tuple(map(_bound, values.values()))
        for i, (t, at) in enumerate(zip(given.tensors, lies, strict=True)):
            if at is not None and not at.is_dense:
                values[_symbol(i, -1)] = t.storage_offset() // at.row
                for d in range(t.dim() - at.row_dims):
                    values[_symbol(i, d)] = t.stride(d) // at.row if t.shape[d] != 1 else 0
        key = (bounds, tuple(lies))
        if key not in self.programs:
            at_bounds = _AtBounds(self.of_call, values, lies)
            args = [*map(_like, given.tensors), *map(_number, given.numbers), *self.values(given.sizes)]
            with _disable_current_modes():
                program = compiler._trace(self.gm, args, at_bounds, f"{given.place[0]} up to {list(bounds)}")
            self.programs[key] = program, at_bounds
        program, at_bounds = self.programs[key]
        return program, at_bounds.call(tuple(values.values()))


def _bound(size: int) -> int:
    return 1 << max(size - 1, 15).bit_length()


def rounded(numel: int) -> int:
    """Storages that a program takes come in few sizes: with four significant bits."""
    step = 1 << max(numel.bit_length() - 4, 0)
    return -(-numel // step) * step


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    return _rules.decompositions() | {aten.constant_pad_nd.default: _pad}


def _pad(x: Tensor, pads: Sequence[Any], value: float = 0) -> Tensor:
    """PyTorch's kernel takes no symbols."""
    for i in range(len(pads) // 2):
        dim = x.dim() - 1 - i
        before, after = pads[2 * i : 2 * i + 2]
        if before < 0 or after < 0:
            x = x.narrow(dim, max(-before, 0), x.shape[dim] - max(-before, 0) - max(-after, 0))
        shape = list(x.shape)
        parts = [x]
        for n, at in ((before, 0), (after, 1)):
            if n > 0:
                shape[dim] = n
                parts.insert(at * len(parts), x.new_full(shape, value))
        x = torch.cat(parts, dim)
    return x


def _like(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def _number(n: float) -> Tensor:
    """As PyTorch wraps numbers."""
    return torch.tensor(n, dtype=torch.int64 if isinstance(n, int) else torch.get_default_dtype(), device="cpu")


def _fake(t: Tensor, sizes: Sequence[Any]) -> Tensor:
    """A tensor with these sizes whose dimensions lie in the same order."""
    order, _ = memory_order(t)
    made = torch.empty([sizes[d] for d in order], dtype=t.dtype, device=t.device)
    return made.permute([order.index(d) for d in range(len(order))])
