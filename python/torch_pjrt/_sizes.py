"""Sizes of a traced graph that change from call to call: where a call has them, and which program is for them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_pjrt import _rules, bounded
from torch_pjrt._decompose import Untraceable, View, base_of

__all__ = ["AtBounds", "Call", "Known", "Sizes", "is_dynamic", "limits", "prepare"]


def is_dynamic(example_inputs: Sequence[Any]) -> bool:
    return any(
        isinstance(x, torch.SymInt | torch.SymFloat)
        or (isinstance(x, Tensor) and any(isinstance(n, torch.SymInt) for n in x.shape))
        for x in example_inputs
    )


def limits() -> dict[sympy.Symbol, int]:
    """Symbol -> the ``max`` that the user gave to ``mark_dynamic`` or ``mark_unbacked``, in the graph that Dynamo is
    compiling."""
    from torch._dynamo.source import TensorProperty, TensorPropertySource
    from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext, StrictMinMaxConstraint

    context = torch._guards.TracingContext.get()
    found = {}
    env = context.fake_mode.shape_env
    for symbol, between in env.var_to_range.items():
        if env.is_unbacked_symint(symbol) and between.upper < sys.maxsize - 1:
            found[symbol] = int(between.upper)
    for symbolic in context.tensor_to_context.values():
        if not isinstance(symbolic, StatefulSymbolicContext):
            continue
        names = symbolic.shape_env_to_source_to_symbol_cache.get(id(env), {})
        for dim, constraint in enumerate(symbolic.constraint_sizes):
            symbol = names.get(TensorPropertySource(symbolic.tensor_source, TensorProperty.SIZE, dim).name)
            if isinstance(constraint, StrictMinMaxConstraint) and isinstance(symbol, sympy.Symbol):
                upper = constraint.vr.upper
                if upper < sys.maxsize - 1:
                    found[symbol] = int(upper)
    return found


Layout = tuple[tuple[Any, ...], ...]  # the sizes of each dimension's factors


class Sizes:
    """What changes in a graph of AOTAutograd.

    Args:
        kind: forward, backward or inference.
        most: largest sizes that the user gave.
        padded: how what the forward graph saves lies in memory, by name: its first call writes it, the backward graph
            reads it.
    """

    def __init__(
        self, kind: str, most: dict[sympy.Symbol, int], padded: dict[str, Layout], graph: torch.fx.Graph
    ) -> None:
        self.most = most
        self.is_forward = kind == "forward"
        self.padded = padded
        self.has_rules = True
        self.placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        shapes = [t.shape for n in graph.nodes for t in tree_leaves(n.meta.get("val")) if isinstance(t, Tensor)]
        sizes = [bounded.expression(n) for shape in shapes for n in shape]
        self.of_tensors = {symbol for n in sizes for symbol in n.free_symbols}  # the others are only numbers
        output = next(n for n in graph.nodes if n.op == "output").args[0]
        count = torch._guards.TracingContext.get().fw_metadata.num_forward if kind == "forward" else len(output)
        self.is_for_user = [i < count for i in range(len(output))]

    @cached_property
    def layouts(self) -> list[Layout | None]:
        """Of the arguments that the forward graph has saved padded. Known when it has run."""
        return [self.padded.get(node.name) for node in self.placeholders]

    @cached_property
    def sources(self) -> dict[sympy.Symbol, tuple[int, int | None]]:
        """Argument and dimension (None: the number itself) of each symbol."""
        found: dict[sympy.Symbol, tuple[int, int | None]] = {}
        for i, (node, layout) in enumerate(zip(self.placeholders, self.layouts, strict=True)):
            value = node.meta["val"]
            numbers: list[tuple[int | None, Any]] = [(None, value)]
            if isinstance(value, Tensor):
                numbers = list(enumerate(n for dim in layout for n in dim) if layout else enumerate(value.shape))
            for d, n in numbers:
                expr = n.node.expr if isinstance(n, torch.SymInt | torch.SymFloat) else n
                if isinstance(expr, sympy.Symbol):
                    found.setdefault(expr, (i, d))
        return found

    @cached_property
    def changing(self) -> list[bool]:
        """Which arguments are tensors whose sizes change."""
        values = [node.meta["val"] for node in self.placeholders]
        return [isinstance(v, Tensor) and any(isinstance(n, torch.SymInt) for n in v.shape) for v in values]

    def values(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The sizes of a call."""
        return tuple(args[i] if d is None else args[i].shape[d] for i, d in self.sources.values())

    def bound(self, symbol: sympy.Symbol, value: int) -> int:
        """The user's maximum, or the next of 16, 24, 32, 48, 64, ..."""
        if value <= self.most.get(symbol, -1):
            return self.most[symbol]
        above = 1 << max(value - 1, 15).bit_length()
        return above * 3 // 4 if 16 < value <= above * 3 // 4 else above

    def give_up(self) -> None:
        """What this graph saves has the sizes that it says."""
        self.has_rules = False
        if self.is_forward:
            self.padded.clear()

    def exact(self, values: tuple[Any, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Arguments that were saved padded, and the shapes that the graph says they have."""
        now = dict(zip(self.sources, values, strict=True))
        return tuple(
            (i, tuple(int(bounded.expression(n).subs(now)) for n in node.meta["val"].shape))
            for i, (node, layout) in enumerate(zip(self.placeholders, self.layouts, strict=True))
            if layout
        )


class Call(NamedTuple):
    """What differs between calls of a program, by their sizes."""

    numbers: tuple[Tensor, ...] = ()  # real sizes, 0-d on the CPU
    inputs: tuple[tuple[int, bool, tuple[int, ...]], ...] = ()  # which argument, whether compact, its size at the bound
    outputs: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()  # which result, real sizes and strides
    sizes: tuple[tuple[int, int | float | bool], ...] = ()  # which result, a number
    aliases: tuple[tuple[int, bool, int, tuple[View, ...]], ...] = ()  # which result, of which argument or result
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # which argument, the shape for a program of one size


class Known:
    """What is known of a program's calls but their sizes.

    Args:
        symbols: what the sizes of a call are the values of.
    """

    FIELDS = ("wanted", "inputs", "outputs", "numbers", "aliases", "equal")

    def __init__(self, symbols: Sequence[sympy.Symbol]) -> None:
        self.symbols = symbols
        self.wanted: list[tuple[Any, torch.dtype]] = []
        self.inputs: list[tuple[int, bool, tuple[int, ...]]] = []
        self.outputs: list[tuple[int, Any, list[int], tuple[int, ...] | None]] = []
        self.numbers: list[tuple[int, bounded.Sym]] = []
        self.aliases: list[tuple[int, bool, int, tuple[View, ...]]] = []
        self.equal: set[tuple[sympy.Symbol, sympy.Symbol]] = set()

    def fits(self, values: tuple[Any, ...]) -> bool:
        """Whether those of the sizes are equal that the program takes for one."""
        now = dict(zip(self.symbols, values, strict=True))
        return all(now[a] == now[b] for a, b in self.equal)

    def call(self, values: tuple[Any, ...]) -> Call:
        """How the program is called with sizes up to these bounds, which it has to fit."""
        if not self.fits(values):
            raise Untraceable("sizes that are to be equal are not")
        now = dict(zip(self.symbols, values, strict=True))

        def real(expr: Any) -> Any:
            return expr.subs(now) if isinstance(expr, sympy.Basic) else expr

        def steps(way: Sequence[View]) -> tuple[View, ...]:
            """With the sizes of this call."""

            def known(x: Any) -> Any:
                return x.kind(real(x.expr)) if isinstance(x, bounded.Sym) else x

            def is_leaf(x: Any) -> bool:
                return isinstance(x, bounded.Sym)

            return tuple(View(v.op, *tree_map(known, (v.args, v.kwargs), is_leaf=is_leaf)) for v in way)

        outputs = []
        for i, shape, order, padded in self.outputs:
            size = tuple(int(real(bounded.expression(n))) for n in shape)
            in_memory = _strides(padded or tuple(size[d] for d in order))
            outputs.append((i, size, tuple(in_memory[order.index(d)] for d in range(len(size)))))
        kinds = {torch.bool: bool, torch.float32: float, torch.float64: float}
        return Call(
            tuple(
                torch.tensor(kinds.get(dtype, int)(real(expr)), dtype=dtype, device="cpu")
                for expr, dtype in self.wanted
            ),
            tuple(self.inputs),
            tuple(outputs),
            tuple((i, number.kind(real(number.expr))) for i, number in self.numbers),
            tuple((i, is_argument, which, steps(way)) for i, is_argument, which, way in self.aliases),
        )


class AtBounds(Known):
    """A graph at the bounds of a call's sizes."""

    def __init__(self, sizes: Sizes, values: tuple[Any, ...]) -> None:
        super().__init__(list(sizes.sources))
        self.sizes = sizes
        now = zip(self.symbols, values, strict=True)
        self.bounds = {s: sizes.bound(s, n) for s, n in now if s in sizes.of_tensors}

    def likes(self, graph: torch.fx.Graph, args: Sequence[Any]) -> list[Any]:
        """The arguments at their bounds, without contents."""
        run = _rules.Rules(graph, self.bounds, None)
        likes = list(args)
        for i, (node, layout) in enumerate(zip(self.sizes.placeholders, self.sizes.layouts, strict=True)):
            if self.sizes.changing[i]:
                shape = [n for dim in layout for n in dim] if layout else node.meta["val"].shape
                size = tuple(run.bound(bounded.expression(n)) for n in shape)
                likes[i] = torch.empty(size, dtype=args[i].dtype, device="meta")
                self.inputs.append((i, layout is None, size))
        self.run(graph, likes, None)  # which numbers it wants
        return likes

    def run(self, graph: torch.fx.Graph, args: Sequence[Any], numbers: Sequence[Tensor] | None) -> list[Any]:
        """The graph's results at the bounds; None for numbers."""
        run = _rules.Rules(graph, self.bounds, numbers)
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        given: list[Any] = []
        for i, (node, tensor) in enumerate(zip(placeholders, args, strict=True)):
            value = None
            if not node.users:
                pass
            elif isinstance(tensor, Tensor) and (i >= len(self.sizes.changing) or not self.sizes.changing[i]):
                value = bounded.Value(tensor, run.dims(tensor))
            elif isinstance(tensor, Tensor):
                value = self.restored(run, i, node, tensor)
            given.append(value)
        self.outputs, self.numbers, self.aliases = [], [], []
        results: list[Any] = []
        output = next(n for n in graph.nodes if n.op == "output").args[0]
        for i, (node, value) in enumerate(zip(output, run.run(given), strict=True)):
            if not isinstance(node, torch.fx.Node):
                results.append(value)
            elif not isinstance(value, bounded.Value):
                number = bounded.symbolic(node.meta["val"])
                if isinstance(number, bounded.Sym):
                    self.numbers.append((i, number))
                results.append(None if isinstance(number, bounded.Sym) else number)
            elif self.is_written(i):
                results.append(self.write(i, run, node, value, args))
            elif self.is_alias(i, node, output, placeholders):
                results.append(None)
            elif not any(isinstance(n, torch.SymInt) for n in node.meta["val"].shape):
                results.append(args[placeholders.index(node)] if node.op == "placeholder" else value.tensor)
            elif node.op == "placeholder":
                results.append(self.given(i, node, placeholders.index(node), args))
            else:
                results.append(self.made(i, node, run, value))
        self.wanted = list(run.wanted)
        self.equal = run.equal
        return results

    def restored(self, run: bounded.Bounded, i: int, node: torch.fx.Node, tensor: Tensor) -> bounded.Value:
        """An argument whose size changes, as it comes."""
        return run.restored(tensor, node.meta["val"], self.sizes.layouts[i])

    def is_written(self, i: int) -> bool:
        """Whether a result takes the place of an argument's storage."""
        return False

    def write(
        self, i: int, run: bounded.Bounded, node: torch.fx.Node, value: bounded.Value, args: Sequence[Any]
    ) -> Tensor:
        """What the storage then holds."""
        raise NotImplementedError

    def given(self, i: int, node: torch.fx.Node, argument: int, args: Sequence[Any]) -> Tensor:
        """An argument, as it lies in memory."""
        layout = self.sizes.layouts[argument] if argument < len(self.sizes.layouts) else None
        size = tuple(args[argument].shape)
        shape = [n for dim in layout for n in dim] if layout else node.meta["val"].shape
        self.outputs.append((i, shape, list(range(len(size))), size if layout else None))
        return args[argument]

    def made(self, i: int, node: torch.fx.Node, run: bounded.Bounded, value: bounded.Value) -> Tensor:
        """A result: compact for the user, padded for the backward graph."""
        like = node.meta["val"]
        if self.sizes.is_for_user[i]:
            order = run.order(like)
            self.outputs.append((i, like.shape, order, None))
            return run.pack(bounded.Value(value.tensor.permute(order), tuple(value.dims[d] for d in order)))
        layout = tuple(tuple(f.size for f in dim) for dim in value.dims)
        self.sizes.padded[node.name] = layout
        size = [f.bound for dim in value.dims for f in dim]
        self.outputs.append((i, [n for dim in layout for n in dim], list(range(len(size))), tuple(size)))
        return value.tensor.contiguous().view(size)

    def is_alias(
        self, i: int, node: torch.fx.Node, output: Sequence[Any], placeholders: Sequence[torch.fx.Node]
    ) -> bool:
        """A view of an argument or of another result, which the user sees as one: taken at the real sizes."""
        base, way = base_of(node)
        changes = any(isinstance(n, torch.SymInt) for n in (*base.meta["val"].shape, *node.meta["val"].shape))
        if not way or not changes or not self.sizes.is_for_user[i]:
            return False
        of_argument = base in placeholders
        if not of_argument and (base not in output or not self.sizes.is_for_user[output.index(base)]):
            return False

        def known(x: Any) -> Any:
            return bounded.symbolic(x.meta["val"]) if isinstance(x, torch.fx.Node) else x

        steps = [View(step.op, *torch.fx.node.map_aggregate((step.args, step.kwargs), known)) for step in way]
        which = placeholders.index(base) if of_argument else list(output).index(base)
        self.aliases.append((i, of_argument, which, tuple(steps)))
        return True


def _strides(size: Sequence[int]) -> tuple[int, ...]:
    """Those of a contiguous tensor."""
    return tuple(math.prod(max(n, 1) for n in size[i + 1 :]) for i in range(len(size)))


def prepare(x: Tensor, is_compact: bool, bound: tuple[int, ...]) -> Tensor:
    """An argument as a tensor of the bound's size. What a program made is there already; others are padded on the CPU,
    which compiles nothing."""
    if x.storage_offset() == 0 and (x.is_contiguous() if is_compact else x.stride() == _strides(bound)):
        whole = torch.ops.tpj.whole(x, bound)
        if whole is not None:
            return whole
    padded = torch.zeros(bound, dtype=x.dtype, device="cpu")
    if is_compact:
        padded.view(-1)[: x.numel()] = x.cpu().reshape(-1)
    else:
        padded[tuple(slice(n) for n in x.shape)] = x.cpu()
    return padded.to(x.device)
