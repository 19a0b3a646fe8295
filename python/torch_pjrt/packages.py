"""A model compiled ahead of time: a file that another process runs without tracing or compiling.

Example:
    >>> length = torch.export.Dim("length", max=128)
    >>> torch_pjrt.compile_ahead(model, (tokens,), "model.pjrt", dynamic={"tokens": {1: length}})
    >>> model = torch_pjrt.load_ahead("model.pjrt", state_dict)  # elsewhere, on an equal machine
    >>> model(tokens[:, :77])
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._sympy import functions

from torch_pjrt import _decompose, _positions, _rules, _sizes, bounded, compiler

__all__ = ["Package", "compile_ahead", "load_ahead"]

_FORMAT = 2


def compile_ahead(
    model: nn.Module,
    example_inputs: tuple[Any, ...] | Sequence[tuple[Any, ...]],
    path: str | os.PathLike[str],
    dynamic: Mapping[str, Any] | Sequence[Any] | None = None,
) -> None:
    """Writes what another process needs to run ``model`` without tracing or compiling.

    The file holds the programs, how they are called, and the names, sizes and dtypes of parameters and buffers, not
    their values: `load_ahead` takes those from a state dict. Buffers that the model writes are written.

    Args:
        model: on the device. It runs as it is (``eval()`` or not), without gradients.
        example_inputs: one tuple of positional arguments, or a list of them: the package has a program for each.
        path: of the file.
        dynamic: sizes that change, as the ``dynamic_shapes`` of `torch.export.export`: for each argument, dimension ->
            ``torch.export.Dim(name, max=...)``. One program then serves all sizes up to ``max``, with exact results.

    Raises:
        torch._dynamo.exc.UserError: `torch.export` cannot capture the model, or not with all these sizes.
        ValueError: there are no example inputs, or a size that changes has no ``max``.
        NotImplementedError: the model calls an operator that the device has no program for.
    """
    several = [example_inputs] if isinstance(example_inputs, tuple) else list(example_inputs)
    if not several:
        raise ValueError("compile_ahead: no example inputs")
    programs: dict[bytes, bytes] = {}
    calls = [_call_of(model, inputs, programs, dynamic) for inputs in several]
    package = {
        "format": _FORMAT,
        "versions": _versions(),
        "calls": calls,
        "programs": [(_bytes(key), _bytes(value)) for key, value in programs.items()],
    }
    temporary = f"{os.fspath(path)}.{os.getpid()}"
    try:
        torch.save(package, temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def load_ahead(path: str | os.PathLike[str], state: Mapping[str, Tensor]) -> Package:
    """What `compile_ahead` wrote, with the parameters and buffers of ``state`` (a ``state_dict()`` on the device).

    Where the plugin, the chip, the processor or this package is another one than when the file was written, its
    programs are compiled anew, with a warning; nothing is traced even then.

    Raises:
        ValueError: the file is no package, or of another format.
        KeyError: ``state`` lacks a tensor.
        RuntimeError: a tensor of ``state`` has another size, dtype or device than the model's.
    """
    from torch_pjrt import _C

    try:
        package = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError):
        package = None
    if not isinstance(package, dict) or package.get("format") != _FORMAT:
        raise ValueError(f"{os.fspath(path)} is no package of this version of torch_pjrt")
    now = _versions()
    if package["versions"] != now:
        other = [
            f"{k} {package['versions'].get(k)} (here: {v})" for k, v in now.items() if package["versions"].get(k) != v
        ]
        warnings.warn(f"{os.fspath(path)} compiles anew: it was written with {', '.join(other)}", stacklevel=2)
    for key, value in package["programs"]:
        _C.offer_program(key.numpy().tobytes(), value.numpy().tobytes())
    return Package([_Call(call, state) for call in package["calls"]])


class Package:
    """A model that was compiled ahead of time: call it with arguments like those that it was compiled for."""

    def __init__(self, calls: list[_Call]) -> None:
        self._calls = calls
        self._known: dict[tuple[Any, ...], tuple[_Call, _sizes.Call]] = {}  # by what the arguments look like

    def __call__(self, *args: Any) -> Any:
        """What the model returns.

        Raises:
            TypeError: no program was compiled for arguments of these sizes, dtypes and values.
            IndexError: an argument has positions (tokens, say) that are out of range.
        """
        flat, spec = _pytree.tree_flatten(args)
        key = _key(flat, spec)
        known = self._known.get(key)
        if known is None:
            found = ((call, call.sizes(flat, key)) for call in self._calls)
            known = next(((call, sizes) for call, sizes in found if sizes is not None), None)
            if known is None:
                there = "\n  ".join(call.signature for call in self._calls)
                raise TypeError(f"no program for ({', '.join(map(_show, flat))}); there are those for\n  {there}")
            self._known[key] = known
        call, sizes = known
        return call(flat, sizes)


def _show(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    on_host = " on cpu" if value.device.type == "cpu" else ""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{on_host}"


def _key(flat: Sequence[Any], spec: Any) -> tuple[Any, ...]:
    shown = tuple((_show(x), tuple(x.stride())) if isinstance(x, Tensor) else _show(x) for x in flat)
    return (_pytree.treespec_dumps(spec), shown)


def _versions() -> dict[str, str]:
    """What a program depends on, as text: not where things lie, nor which Python runs them."""
    from torch_pjrt import versions

    return {name: str(value) for name, value in versions().items() if name not in ("path", "python")}


def _simple(value: Any) -> Any:
    """As plain data: without the containers of torch.fx, sizes as tuples."""
    if isinstance(value, dict):
        return {key: _simple(item) for key, item in value.items()}
    if isinstance(value, torch.SymInt | sympy.Basic):
        return _simple_size(bounded.expression(value))
    if isinstance(value, bounded.Sym):
        return ("number", _simple_size(value.expr), value.kind.__name__)
    if isinstance(value, _decompose.View):
        return ("view", _decompose._name(value.op), _simple(value.args), _simple(value.kwargs))
    return tuple(map(_simple, value)) if isinstance(value, list | tuple) else value


def _simple_size(expr: Any) -> Any:
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return float(expr)
    if isinstance(expr, sympy.Symbol):
        return ("symbol", expr.name)
    args = (expr.p, expr.q) if expr.is_Rational else map(_simple_size, expr.args)
    return ("size", "Rational" if expr.is_Rational else type(expr).__name__, *args)


def _restored(value: Any) -> Any:
    """What `_simple` made plain."""
    match value:
        case ("symbol", name):
            return sympy.Symbol(name, integer=True, nonnegative=True)
        case ("size", name, *args):
            kind = getattr(functions, name, None) or getattr(sympy, name, None)
            if isinstance(kind, type) and issubclass(kind, sympy.Basic):
                return kind(*(sympy.sympify(_restored(arg), strict=True) for arg in args))
            raise ValueError(f"load_ahead: a size with {name}")
        case ("number", expr, kind):
            size = sympy.sympify(_restored(expr), strict=True)
            return bounded.Sym(size, {"int": int, "float": float, "bool": bool}[kind])
        case ("view", name, args, kwargs):
            return _decompose.View(_decompose._find(name), _restored(args), _restored(kwargs))
        case dict():
            return {key: _restored(item) for key, item in value.items()}
        case tuple():
            return tuple(map(_restored, value))
    return value


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """As under torch.compile: what is made of other operators is taken apart, and the rest is what rules are for."""
    table = _rules.decompositions()
    while True:
        exported = exported.run_decompositions(table)
        targets = {node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
        more = {op: _parts_of(op) for op in targets if op not in table and _is_composite(op)}
        if not more:
            return exported
        table |= more


def _parts_of(op: torch._ops.OpOverload) -> Any:
    """What it is made of: not ``op.decompose``, which export replaces by what the table has."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    kernel = op.py_kernels.get(key, key)
    return functools.partial(op._op_dk, key) if isinstance(kernel, torch._C.DispatchKey) else kernel


def _is_composite(op: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def _call_of(model: nn.Module, inputs: tuple[Any, ...], programs: dict[bytes, bytes], dynamic: Any) -> dict[str, Any]:
    """One program of the model, as plain data; adds what the compiler made to ``programs``."""
    from torch.export.graph_signature import InputKind, OutputKind

    from torch_pjrt import _C

    with torch.no_grad():
        exported = torch.export.export(model, inputs, dynamic_shapes=dynamic)
        exported = exported.run_decompositions({}) if dynamic is None else _decomposed(exported)
    state = {**exported.state_dict, **exported.constants}
    flat, spec = _pytree.tree_flatten(inputs)
    given = iter(flat)
    sources: list[tuple[str, Any]] = []
    values: list[Any] = []
    for one in exported.graph_signature.input_specs:
        if one.kind is InputKind.USER_INPUT:
            sources.append(("input", len([s for s in sources if s[0] == "input"])))
            values.append(next(given))
        elif one.kind in (InputKind.PARAMETER, InputKind.BUFFER) and one.target in exported.state_dict:
            sources.append(("state", one.target))
            values.append(state[one.target])
        elif isinstance(state.get(one.target), Tensor):
            sources.append(("constant", state[one.target].cpu()))
            values.append(state[one.target])
        else:
            raise NotImplementedError(f"compile_ahead: {one.target} is no tensor")
    writes = {OutputKind.BUFFER_MUTATION: "state", OutputKind.USER_INPUT_MUTATION: "input"}
    results: list[tuple[str, Any]] = []
    names = [one.arg.name for one in exported.graph_signature.input_specs if one.kind is InputKind.USER_INPUT]
    for one in exported.graph_signature.output_specs:
        if one.kind is OutputKind.USER_OUTPUT:
            results.append(("result", None))
        elif one.kind in writes:
            target = one.target if one.kind is OutputKind.BUFFER_MUTATION else names.index(one.target)
            results.append((writes[one.kind], target))
        else:
            raise NotImplementedError(f"compile_ahead: a result that is {one.kind}")
    graph = exported.graph_module.graph
    at = None
    if _sizes.is_dynamic([node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]):
        sizes = _sizes.Sizes("inference", {}, {}, graph)
        for symbol, (i, d) in sizes.sources.items():
            upper = exported.range_constraints[symbol].upper
            if symbol in sizes.of_tensors and upper >= sys.maxsize - 1:
                where = "" if d is None else f"dimension {d} of "
                raise ValueError(
                    f"compile_ahead: {where}{sizes.placeholders[i].name} changes and has no largest "
                    "value; give one with torch.export.Dim(name, max=...)"
                )
            sizes.most[symbol] = _as_int(upper)
        at = _sizes.AtBounds(sizes, sizes.values(values))
    try:
        program, traced = compiler._plain(exported.graph_module, values, at, f"ahead {type(model).__name__}")
    except _decompose.Untraceable as error:
        raise NotImplementedError(f"compile_ahead: {error}") from error
    if program.host is not None:
        raise NotImplementedError("compile_ahead: the model computes with tensors on the CPU")
    made = {
        "traced": traced,
        "program": {
            "constants": [x.cpu() if isinstance(x, Tensor) else x for x in program.constants],
            "takes": program.takes,
            "uploads": program.uploads,
            "results": program.results,
            "views": _simple(program.views),
        },
        "changing": at and _changing(at, exported.range_constraints, [which for _, which in sources]),
        "positions": [tuple(p) for p in _positions.find(graph)],
        "sources": sources,
        "results": results,
        "state": {name: (tuple(x.shape), tuple(x.stride()), x.dtype) for name, x in exported.state_dict.items()},
        "key": _key(flat, spec),
        "result_spec": _pytree.treespec_dumps(exported.call_spec.out_spec),
        "device": str(program.device),
    }
    check = {name: x.clone() for name, x in exported.state_dict.items()}  # the example call writes nothing of the model
    call = _Call(made, check)
    of_example = call.sizes(flat, call.key)
    assert of_example is not None
    call([x.clone() if isinstance(x, Tensor) else x for x in flat], of_example)
    programs.update(_C.traced_programs(call.program.number))
    return made


def _as_int(limit: Any) -> int:
    return int(max(-sys.maxsize, min(limit, sys.maxsize)))


def _changing(at: _sizes.AtBounds, limits: Mapping[sympy.Symbol, Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """What a program's calls may be, and how it is called then, as plain data (``inputs``: by argument)."""
    of = at.sizes
    shapes = {}
    for i, node in enumerate(of.placeholders):
        value = node.meta.get("val")
        if of.changing[i] or isinstance(value, torch.SymInt):
            is_tensor = isinstance(value, Tensor)
            shapes[inputs[i]] = (value.dtype, _simple(tuple(value.shape))) if is_tensor else (None, (_simple(value),))
    return {
        "symbols": [
            (_simple(symbol), inputs[i], d, _as_int(limits[symbol].lower), _as_int(limits[symbol].upper))
            for symbol, (i, d) in of.sources.items()
        ],
        "shapes": shapes,
        "known": {name: _simple(list(getattr(at, name))) for name in _sizes.Known.FIELDS},
    }


class _Changing:
    """The sizes that a program's inputs may have, and how it is called with them."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.symbols = {_restored(symbol): tuple(rest) for symbol, *rest in made["symbols"]}
        self.known = _sizes.Known(list(self.symbols))
        for name in _sizes.Known.FIELDS:
            setattr(self.known, name, _restored(made["known"][name]))
        self.shapes = {
            i: (dtype, [bounded.expression(_restored(n)) for n in shape])
            for i, (dtype, shape) in made["shapes"].items()
        }

    def call(self, flat: Sequence[Any]) -> _sizes.Call | None:
        """None for inputs that the program is not for."""
        found = {}
        for i, (dtype, shape) in self.shapes.items():
            x = flat[i]
            if dtype is None:
                if type(x) is not int:
                    return None
                found[i] = [x]
            elif isinstance(x, Tensor) and x.dtype == dtype and x.dim() == len(shape) and x.device.type != "cpu":
                found[i] = list(x.shape)
            else:
                return None
        values = tuple(found[i][d or 0] for i, d, _, _ in self.symbols.values())
        if not all(low <= n <= high for n, (_, _, low, high) in zip(values, self.symbols.values(), strict=True)):
            return None
        now = dict(zip(self.symbols, values, strict=True))
        if any([expr.subs(now) for expr in self.shapes[i][1]] != sizes for i, sizes in found.items()):
            return None
        return self.known.call(values) if self.known.fits(values) else None

    def show(self, i: int, other: str) -> str:
        """An input of the signature: each size that changes as its range."""
        if i not in self.shapes:
            return other
        dtype, shape = self.shapes[i]
        ranges = {symbol: f"{low}..{high}" for symbol, (_, _, low, high) in self.symbols.items()}
        sizes = ", ".join(ranges.get(n, str(n)) for n in shape)
        return f"{str(dtype).removeprefix('torch.')}[{sizes}]" if dtype else sizes


class _Call:
    """One program with its state."""

    def __init__(self, made: dict[str, Any], state: Mapping[str, Tensor]) -> None:
        from torch_pjrt import _C

        self.device = torch.device(made["device"])
        self.state = {name: _checked(name, state[name], like, self.device) for name, like in made["state"].items()}
        self.sources = [(k, v.to(self.device) if k == "constant" else v) for k, v in made["sources"]]
        self.results = made["results"]
        self.key = (made["key"][0], tuple(made["key"][1]))
        self.changing = None if made["changing"] is None else _Changing(made["changing"])
        self.positions = [_positions.Positions(*p) for p in made["positions"]]
        shown = [x[0] if isinstance(x, tuple) else x for x in self.key[1]]
        if self.changing is not None:
            shown = [self.changing.show(i, text) for i, text in enumerate(shown)]
        self.signature = f"({', '.join(shown)})"
        self.result_spec = _pytree.treespec_loads(made["result_spec"])
        program = dict(made["program"])
        program["constants"] = tuple(
            x.to(self.device) if isinstance(x, Tensor) and x.dim() > 0 else x for x in program["constants"]
        )
        program["views"] = _restored(program["views"])
        fields = {field.name for field in dataclasses.fields(compiler._Program)}
        assert {*program, "number", "host", "device"} == fields
        self.program = compiler._Program(
            number=_C.add_traced(*made["traced"]), host=None, device=self.device, **program
        )
        weakref.finalize(self, compiler._drop, self.program.number)

    def sizes(self, flat: Sequence[Any], key: tuple[Any, ...]) -> _sizes.Call | None:
        """How the program is called with inputs that look so; None for inputs that it is not for."""
        if self.changing is None:
            return _sizes.Call() if key == self.key else None
        rest = zip(key[1], self.key[1], strict=False)
        same = key[0] == self.key[0] and all(a == b or i in self.changing.shapes for i, (a, b) in enumerate(rest))
        return self.changing.call(flat) if same else None

    def __call__(self, flat: Sequence[Any], sizes: _sizes.Call) -> Any:
        where = {"input": lambda i: flat[i], "state": self.state.__getitem__, "constant": lambda t: t}
        given = [where[k](v) for k, v in self.sources]
        for p in self.positions:
            if _positions.suspicious([p], given):
                raise IndexError(f"index out of range: {_show(given[p.argument])} has to be in [{p.low}, {p.high})")
        with torch.no_grad():
            values = compiler._run(self.program, sizes, given)
            shown = []
            for (kind, which), value in zip(self.results, values, strict=True):
                if kind == "result":
                    shown.append(value)
                else:
                    where[kind](which).copy_(value)
        return _pytree.tree_unflatten(shown, self.result_spec)


def _checked(name: str, value: Tensor, like: tuple[Any, ...], device: torch.device) -> Tensor:
    found = (tuple(value.shape), tuple(value.stride()), value.dtype)
    if found != like or value.device != device:
        raise RuntimeError(
            f"load_ahead: {name} is {_show(value)} with strides {found[1]} on {value.device}, but the model has "
            f"{str(like[2]).removeprefix('torch.')}{list(like[0])} with strides {like[1]} on {device}"
        )
    value = value.detach()
    return value.copy_(value.clone())  # numbers, where a file gave bytes: programs look the same then
