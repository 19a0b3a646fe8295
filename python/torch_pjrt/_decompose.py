"""PyTorch's own decompositions as graphs of operators that have rows, in plain data for the core.

The core calls ``trace`` once for each key of an operator without a row; from then on the compiled program is used and
Python is not touched. Everything that crosses the border is None, bool, int, float, complex, str, tuples of these, and
``("tensor", dtype, sizes, strides)`` on the way in, ``("ref", value, item)`` on the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["trace"]

# c10::ScalarType by number, which is part of PyTorch's serialization format.
_DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}
_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}


class Untraceable(Exception):
    """This call has no decomposition into rows."""


def _made(like: Callable[..., Tensor], contents: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A factory as an empty tensor and what gives it contents, which is a row."""

    def factory(*args: Any, **kwargs: Any) -> Tensor:
        with _disable_current_modes():  # else the tracer would decompose this call again
            shape = like(*args, **kwargs)  # without contents: sizes and dtype, nothing else
        empty = torch.ops.aten.empty.memory_format(shape.shape, dtype=shape.dtype, device=shape.device)
        return contents(empty, *args)

    return factory


def _copy(into: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    cast = torch.ops.aten._to_copy.default(source, dtype=into.dtype)
    return torch.ops.aten.clone.default(torch.ops.aten.expand.default(cast, into.shape))


def _empty_permuted(size: list[int], physical_layout: list[int], **kwargs: Any) -> Tensor:
    with _disable_current_modes():
        like = torch.empty_permuted(size, physical_layout, device="meta")
    kwargs.pop("layout", None)
    return torch.ops.aten.empty_strided.default(like.shape, like.stride(), **kwargs)


def _iota(length: int, *, start: int, step: int, dtype: torch.dtype, device: torch.device, **_: Any) -> Tensor:
    empty = torch.ops.aten.empty.memory_format([length], dtype=dtype, device=device)
    return torch.ops.aten.arange.start_out(start, start + length * step, step, out=empty)


def _split_dim(a: Tensor, dim: int, outer_length: int) -> Tensor:
    sizes = list(a.shape)
    sizes[dim : dim + 1] = [outer_length, sizes[dim] // outer_length]
    return torch.ops.aten.view.default(a, sizes)


def _broadcast_in_dim(a: Tensor, shape: list[int], dims: list[int]) -> Tensor:
    sizes = [1] * len(shape)
    for i, d in enumerate(dims):
        sizes[d] = a.shape[i]
    return torch.ops.aten.expand.default(torch.ops.aten.view.default(a, sizes), shape)


def _where(pred: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    def tensor(x: Tensor | float, other: Tensor | float) -> Tensor:
        if isinstance(x, Tensor):
            return x
        dtype = other.dtype if isinstance(other, Tensor) else torch.get_default_dtype()
        return torch.ops.aten.fill.Scalar(torch.ops.aten.empty.memory_format([], dtype=dtype, device=pred.device), x)

    return torch.ops.aten.where.self(pred, tensor(a, b), tensor(b, a))


def _prims() -> dict[Any, Callable[..., Any]]:
    """PyTorch's reference implementations end in prims: those that are an aten operator, or a view of one."""
    aten, prims = torch.ops.aten, torch.ops.prims
    same = "abs acos asin atan atan2 ceil cos cosh digamma erf erfc exp expm1 floor lgamma log log1p log2 log10 maximum"
    same += " minimum neg reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc bitwise_not isfinite"
    tensors = "add sub mul div eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor"
    table: dict[Any, Callable[..., Any]] = {
        prims.broadcast_in_dim.default: _broadcast_in_dim,
        prims.convert_element_type.default: lambda a, dtype: aten._to_copy.default(a, dtype=dtype),
        prims.iota.default: _iota,
        prims.split_dim.default: _split_dim,
        prims.transpose.default: aten.permute.default,
        prims.view_of.default: aten.alias.default,
        prims.where.default: _where,
        prims.cat.default: aten.cat.default,
    }
    for name in same.split():
        if hasattr(prims, name):
            table[getattr(prims, name).default] = getattr(aten, name).default
    for name in tensors.split():
        if hasattr(prims, name):
            table[getattr(prims, name).default] = getattr(aten, name).Tensor
    return table


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    new_in_a: list[int],
    new_in_b: list[int],
    new_in_c: list[int],
    summed: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors that are broadcast along new dimensions, summed (nn.Bilinear)."""
    factors = []
    for t, dims in ((a, new_in_a), (b, new_in_b), (c, new_in_c)):
        for d in sorted(dims):
            t = torch.ops.aten.unsqueeze.default(t, d)
        factors.append(t)
    return torch.ops.aten.sum.dim_IntList(factors[0] * factors[1] * factors[2], summed)


def _as_strided_scatter(
    into: Tensor, source: Tensor, size: list[int], stride: list[int], offset: int | None = None
) -> Tensor:
    aten = torch.ops.aten
    whole = aten.clone.default(into)
    written = aten.copy_.default(aten.as_strided.default(whole, size, stride, offset), source)
    return aten.as_strided.default(written, whole.shape, whole.stride(), 0)


def _pinv(x: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """Singular values up to max(atol, rtol * the largest) count as zero, as ``torch.linalg.pinv`` says."""
    aten = torch.ops.aten
    if x.numel() == 0:
        return torch.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype=x.dtype, device=x.device)
    if hermitian:
        values, right = aten._linalg_eigh.default(x)
        left, size = right, values.abs()
        largest = size.amax(-1, keepdim=True)
    else:
        left, values, right_h = aten._linalg_svd.default(x)
        right, size, largest = right_h.mH, values, values[..., :1]
    usual = torch.finfo(x.dtype).eps * max(x.shape[-2:])
    if atol is None:
        least = largest * (usual if rtol is None else rtol.unsqueeze(-1))
    else:
        relative = torch.where(atol > 0, 0.0, usual) if rtol is None else rtol
        least = torch.maximum(atol.unsqueeze(-1).to(largest.dtype), relative.unsqueeze(-1) * largest)
    inverse = torch.where(size > least, values.reciprocal(), 0.0)
    return (right * inverse.unsqueeze(-2)) @ left.mH


def _copied_views() -> dict[Any, Callable[..., Tensor]]:
    """What functionalization makes of views: slice_copy is a slice, and a copy of it."""

    def copied(view: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: torch.ops.aten.clone.default(view(*args, **kwargs))

    table = {}
    names = "alias as_strided detach diagonal expand permute select slice squeeze t transpose unfold unsqueeze view"
    for name in f"{names} view_as_real view_as_complex".split():
        view, copy = getattr(torch.ops.aten, name), getattr(torch.ops.aten, f"{name}_copy")
        for overload in set(view.overloads()) & set(copy.overloads()):
            table[getattr(copy, overload)] = copied(getattr(view, overload))
    return table


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Decompositions of everything that has no row."""
    from torch._decomp import decomposition_table

    from torch_pjrt import _C

    keep = set(_C.rows()) | {"aten::_to_copy", "aten::clone", "aten::empty.memory_format", "aten::empty_strided"}
    table: dict[Any, Callable[..., Any]] = {
        op: fn
        for op, fn in decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and _name(op) not in keep and not _is_view(op)
    }
    table |= _prims()
    table[torch.ops.aten.copy.default] = _copy
    table |= _copied_views()
    table[torch.ops.aten._trilinear.default] = _trilinear
    table[torch.ops.aten.linalg_pinv.atol_rtol_tensor] = _pinv
    table[torch.ops.aten.as_strided_scatter.default] = _as_strided_scatter
    table[torch.ops.aten.empty_permuted.default] = _empty_permuted
    return table | {op: _made(op, contents) for op, contents in _factories().items()}


@cache
def _factories() -> dict[Any, Callable[..., Tensor]]:
    """Operators that make a tensor of numbers: (an empty tensor, the arguments) -> it with contents."""
    aten = torch.ops.aten
    fill, arange = aten.fill.Scalar, aten.arange.start_out
    table: dict[Any, Callable[..., Tensor]] = {
        aten.full.default: lambda empty, size, value: fill(empty, value),
        aten.full_like.default: lambda empty, like, value: fill(empty, value),
        aten.new_full.default: lambda empty, like, size, value: fill(empty, value),
        aten.scalar_tensor.default: lambda empty, value: fill(empty, value),
        aten.arange.default: lambda empty, end: arange(0, end, 1, out=empty),
        aten.arange.start: lambda empty, start, end: arange(start, end, 1, out=empty),
        aten.arange.start_step: lambda empty, start, end, step=1: arange(start, end, step, out=empty),
    }
    for name, value in (("zeros", 0), ("ones", 1)):
        for op in (name, f"{name}_like", f"new_{name}"):
            table[getattr(aten, op).default] = lambda empty, *_, value=value: fill(empty, value)
    return table


@cache
def _random() -> dict[Any, Callable[..., Tensor]]:
    """Operators that make random numbers as an empty tensor that is filled in place, which is a row."""
    aten = torch.ops.aten
    uniform, normal = aten.uniform_.default, aten.normal_.default

    def between(empty: Tensor, low: int, high: int) -> Tensor:
        return aten.add.Scalar(aten.random_.to(empty, high - low), low)  # "random_.from" is no name in traced code

    makers: dict[Any, Callable[..., Tensor]] = {
        aten.rand.default: lambda empty, *_: uniform(empty),
        aten.rand_like.default: lambda empty, *_: uniform(empty),
        aten.randn.default: lambda empty, *_: normal(empty),
        aten.randn_like.default: lambda empty, *_: normal(empty),
        aten.randint.default: lambda empty, high, *_: between(empty, 0, high),
        aten.randint.low: lambda empty, low, high, *_: between(empty, low, high),
        aten.randint_like.default: lambda empty, _, high: between(empty, 0, high),
        aten.randint_like.low_dtype: lambda empty, _, low, high: between(empty, low, high),
    }
    table = {op: _made(op, contents) for op, contents in makers.items()}
    fillers = {aten.normal_functional.default: normal, aten.uniform.default: uniform}
    for name in ("exponential", "log_normal", "cauchy", "geometric"):
        fillers[getattr(aten, name).default] = getattr(aten, f"{name}_").default
    fillers |= {aten.random.default: aten.random_.default, aten.random.to: aten.random_.to}

    def filled(fill: Any) -> Callable[..., Tensor]:
        return lambda x, *args, **kwargs: fill(aten.empty_like.default(x), *args, **kwargs)

    return table | {op: filled(fill) for op, fill in fillers.items()}


def _is_view(op: torch._ops.OpOverload) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)


class View(NamedTuple):
    """One step from a tensor to a view of it."""

    op: Callable[..., Any]
    args: tuple[Any, ...]  # but the first one
    kwargs: dict[str, Any]


def base_of(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[View, ...]]:
    """What the node is a view of, and the way from there."""

    def is_view(node: torch.fx.Node) -> bool:
        if node.op != "call_function" or not isinstance(node.args[0] if node.args else None, torch.fx.Node):
            return False
        if isinstance(node.target, torch._ops.OpOverload):
            return _is_view(node.target)
        return is_view(node.args[0])  # an item of several views

    views: list[View] = []
    while is_view(node):
        views.append(View(node.target, node.args[1:], dict(node.kwargs)))
        node = node.args[0]
    return node, tuple(reversed(views))


def view(base: Tensor, way: Sequence[View]) -> Tensor:
    for step in way:
        base = step.op(base, *step.args, **step.kwargs)
    return base


def _name(op: torch._ops.OpOverload) -> str:
    """The name in C++: aten::add.Tensor, aten::relu."""
    name, overload = op._schema.name, op._schema.overload_name
    return f"{name}.{overload}" if overload else name


def _find(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _functional(op: torch._ops.OpOverload) -> tuple[torch._ops.OpOverload, int]:
    """The operator that computes what ``op`` writes, and how many of its arguments that one takes."""
    arguments = op._schema.arguments
    written = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    if not written:
        return op, len(arguments)
    kept = [a for a in arguments if not (a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)]
    name = op._schema.name.removeprefix("aten::")
    name = name.replace("__i", "__", 1) if name.startswith("__i") else name.removesuffix("_")  # __ilshift__
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        other = getattr(packet, overload)
        same = [(a.name, str(a.type)) for a in other._schema.arguments] == [(a.name, str(a.type)) for a in kept]
        if same and not any(a.alias_info is not None and a.alias_info.is_write for a in other._schema.arguments):
            return other, len(kept)
    raise Untraceable(op)


def _argument(value: Any, kind: str, tensors: list[Tensor]) -> Any:
    """One argument with meta tensors, in the order in which they come."""
    if isinstance(value, tuple):
        if value and value[0] == "tensor":
            tensors.append(torch.empty_strided(value[2], value[3], dtype=_DTYPES[value[1]], device="meta"))
            return tensors[-1]
        return [_argument(item, kind, tensors) for item in value]
    if value is not None and "ScalarType" in kind:
        return _DTYPES[value]
    return value


def _plain(value: Any, ids: dict[torch.fx.Node, tuple[int, int]]) -> Any:
    """An argument of a node as plain data."""
    if isinstance(value, torch.fx.Node):
        return ("ref", *ids[value])
    if isinstance(value, list | tuple):
        return tuple(_plain(item, ids) for item in value)
    if isinstance(value, torch.dtype):
        if value not in _NUMBERS:
            raise Untraceable(f"{value} is no dtype of the device")
        return _NUMBERS[value]
    if isinstance(value, torch.memory_format):
        return _FORMATS[value]
    if isinstance(value, torch.device | torch.layout):
        return None
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    raise Untraceable(value)


def traced(run: Callable[..., Any], *args: Any, decompositions: dict[Any, Any] | None = None) -> torch.fx.GraphModule:
    """The graph of ``run(*args)`` for tensors without contents, in operators that have rows."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    # make_fx notes what each node gives with the context's mode; without one it makes a new one for each.
    with tracing(TracingContext(FakeTensorMode())):
        return make_fx(run, decomposition_table=_table() | (decompositions or {}))(*args)


def trace(name: str, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """The call as ``(nodes, outputs)``, or None when PyTorch has no decomposition of it into rows.

    Tensors of the arguments are the values 0, 1, ...; node k makes value ``number of tensors + k``. A node is
    ``(operator, arguments in the order of its schema)``.
    """
    try:
        op, count = _functional(_find(name))
        if op not in _table():
            return None
        tensors: list[Tensor] = []
        kinds = [str(a.type) for a in op._schema.arguments]
        call = [_argument(v, k, tensors) for v, k in zip(arguments[:count], kinds, strict=True)]
        keywords = {a.name: v for a, v in zip(op._schema.arguments, call, strict=True) if a.kwarg_only}
        call = [v for a, v in zip(op._schema.arguments, call, strict=True) if not a.kwarg_only]

        def run(flat: list[Tensor]) -> Any:
            left = iter(flat)
            return op(*torch.utils._pytree.tree_map_only(Tensor, lambda _: next(left), call), **keywords)

        with torch.no_grad():
            graph = traced(run, tensors).graph
        return _nodes(graph, [node for node in graph.nodes if node.op == "placeholder"])
    except Exception:  # whatever a decomposition trips over: the call then runs on the CPU, counted
        return None


class _Region(NamedTuple):
    """What runs once, never or again and again inside a graph: "cond" or "while_loop"."""

    kind: str
    parts: tuple[torch.fx.GraphModule, ...]
    results: list[Tensor]  # without contents


_REGIONS: dict[int, _Region] = {}  # while a graph is traced


@cache
def _region_operator() -> torch._ops.OpOverload:
    library = torch.library.Library("tpj", "FRAGMENT")
    library.define("region(int number, Tensor[] operands) -> Tensor[]")
    library.impl("region", lambda number, _: [torch.empty_like(t) for t in _REGIONS[number].results], "Meta")
    _region_operator.__dict__["library"] = library  # it lives as long as its operator
    return torch.ops.tpj.region.default


def region(
    kind: str, parts: Sequence[Callable[..., Any]], operands: Sequence[Any], condition: Any = None
) -> list[Tensor]:
    """Traces ``cond`` (with a condition) or ``while_loop`` into the graph that is traced.

    Each part takes the operands; those that are no tensors are known.
    """
    region = _region_operator()
    tensors = [x for x in operands if isinstance(x, Tensor)]

    def known(part: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Tensor) -> Any:
            left = iter(given)
            return part(*(next(left) if isinstance(x, Tensor) else x for x in operands))

        return run

    with _disable_current_modes():
        like = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]
        made = tuple(traced(known(part), *like, decompositions=_random()) for part in parts)
        results = made[-1](*like)
        number = max(_REGIONS, default=0) + 1
        _REGIONS[number] = _Region(kind, made, [t.clone() for t in torch.utils._pytree.tree_leaves(results)])
    return region(number, tensors if condition is None else [condition, *tensors])


def _nodes(
    graph: torch.fx.Graph,
    inputs: list[torch.fx.Node],
    where: Callable[[torch.fx.Node], tuple[str, int]] | None = None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Nodes and outputs as plain data; ``where`` adds the user's file and line to each node."""
    ids = {node: (number, -1) for number, node in enumerate(inputs)}
    nodes: list[tuple[Any, ...]] = []
    outputs: tuple[Any, ...] = ()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            if node not in ids and node.users:
                raise Untraceable("a tensor that a part of a higher-order operator makes")
        elif node.op == "output":
            result = node.args[0]
            outputs = _plain(result if isinstance(result, list | tuple) else (result,), ids)
        elif node.op == "call_function" and node.target is _region_operator():
            kind, modules, _ = _REGIONS.pop(node.args[0])
            parts = tuple(
                _nodes(module.graph, [n for n in module.graph.nodes if n.op == "placeholder"], where)
                for module in modules
            )
            ids[node] = (len(inputs) + len(nodes), -1)
            nodes.append((kind, _plain(node.args[1], ids), *(where(node) if where else ("", -1)), parts))
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            values = []
            given = iter(node.args)
            for argument in node.target._schema.arguments:
                value = node.kwargs.get(argument.name, argument.default_value) if argument.kwarg_only else None
                if not argument.kwarg_only:
                    value = next(given, node.kwargs.get(argument.name, argument.default_value))
                values.append(_plain(value, ids))
            ids[node] = (len(inputs) + len(nodes), -1)
            nodes.append((_name(node.target), tuple(values), *(where(node) if where else ())))
        elif node.op == "call_function" and node.target.__name__ == "getitem":
            ids[node] = (ids[node.args[0]][0], node.args[1])
        else:
            raise Untraceable(node)
    return tuple(nodes), outputs
