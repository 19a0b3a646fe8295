"""A model compiled ahead of time: a file that another process runs without tracing or compiling.

Example:
    >>> torch_pjrt.compile_ahead(model, [(tokens_of_16,), (tokens_of_64,)], "model.pjrt")
    >>> model = torch_pjrt.load_ahead("model.pjrt", state_dict)  # elsewhere, on an equal machine
    >>> model(tokens_of_16)
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from torch_pjrt import _decompose, compiler

__all__ = ["Package", "compile_ahead", "load_ahead"]

_FORMAT = 1


def compile_ahead(
    model: nn.Module,
    example_inputs: tuple[Any, ...] | Sequence[tuple[Any, ...]],
    path: str | os.PathLike[str],
) -> None:
    """Writes what another process needs to run ``model`` without tracing or compiling.

    The file holds the programs, how they are called, and the names, sizes and dtypes of parameters and buffers, not
    their values: `load_ahead` takes those from a state dict. Buffers that the model writes are written.

    Args:
        model: on the device. It runs as it is (``eval()`` or not), without gradients.
        example_inputs: one tuple of positional arguments, or a list of them: the package has a program for each.
        path: of the file.

    Raises:
        torch._dynamo.exc.UserError: `torch.export` cannot capture the model.
        NotImplementedError: the model calls an operator that the device has no program for.
    """
    several = [example_inputs] if isinstance(example_inputs, tuple) else list(example_inputs)
    if not several:
        raise ValueError("compile_ahead: no example inputs")
    programs: dict[bytes, bytes] = {}
    calls = [_call_of(model, inputs, programs) for inputs in several]
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
        self._calls = {call.key: call for call in calls}

    def __call__(self, *args: Any) -> Any:
        """What the model returns.

        Raises:
            TypeError: no program was compiled for arguments of these sizes, dtypes and values.
        """
        flat, spec = _pytree.tree_flatten(args)
        call = self._calls.get(_key(flat, spec))
        if call is None:
            there = "\n  ".join(known.signature for known in self._calls.values())
            raise TypeError(f"no program for ({', '.join(map(_show, flat))}); there are those for\n  {there}")
        return call(flat)


def _show(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _key(flat: Sequence[Any], spec: Any) -> tuple[Any, ...]:
    shown = tuple((_show(x), tuple(x.stride())) if isinstance(x, Tensor) else _show(x) for x in flat)
    return (_pytree.treespec_dumps(spec), shown)


def _versions() -> dict[str, str]:
    """What a program depends on, as text: not where things lie, nor which Python runs them."""
    from torch_pjrt import versions

    return {name: str(value) for name, value in versions().items() if name not in ("path", "python")}


def _simple(value: Any) -> Any:
    """Without the containers of torch.fx."""
    if isinstance(value, dict):
        return {key: _simple(item) for key, item in value.items()}
    return tuple(map(_simple, value)) if isinstance(value, list | tuple) else value


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _call_of(model: nn.Module, inputs: tuple[Any, ...], programs: dict[bytes, bytes]) -> dict[str, Any]:
    """One program of the model, as plain data; adds what the compiler made to ``programs``."""
    from torch.export.graph_signature import InputKind, OutputKind

    from torch_pjrt import _C

    with torch.no_grad():
        exported = torch.export.export(model, inputs).run_decompositions({})
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
    try:
        program, traced = compiler._plain(exported.graph_module, values, None, f"ahead {type(model).__name__}")
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
            "views": [
                (i, [(_decompose._name(v.op), _simple(v.args), _simple(v.kwargs)) for v in way])
                for i, way in program.views
            ],
        },
        "sources": sources,
        "results": results,
        "state": {name: (tuple(x.shape), tuple(x.stride()), x.dtype) for name, x in exported.state_dict.items()},
        "key": _key(flat, spec),
        "result_spec": _pytree.treespec_dumps(exported.call_spec.out_spec),
        "device": str(program.device),
    }
    check = {name: x.clone() for name, x in exported.state_dict.items()}  # the example call writes nothing of the model
    call = _Call(made, check)
    call([x.clone() if isinstance(x, Tensor) else x for x in flat])
    programs.update(_C.traced_programs(call.program.number))
    return made


class _Call:
    """One program with its state."""

    def __init__(self, made: dict[str, Any], state: Mapping[str, Tensor]) -> None:
        from torch_pjrt import _C

        self.device = torch.device(made["device"])
        self.state = {name: _checked(name, state[name], like, self.device) for name, like in made["state"].items()}
        self.sources = [(k, v.to(self.device) if k == "constant" else v) for k, v in made["sources"]]
        self.results = made["results"]
        self.key = (made["key"][0], tuple(made["key"][1]))
        self.signature = "(" + ", ".join(x[0] if isinstance(x, tuple) else x for x in self.key[1]) + ")"
        self.result_spec = _pytree.treespec_loads(made["result_spec"])
        program = dict(made["program"])
        program["constants"] = tuple(
            x.to(self.device) if isinstance(x, Tensor) and x.dim() > 0 else x for x in program["constants"]
        )
        program["views"] = tuple(
            (i, tuple(_decompose.View(_decompose._find(name), args, kwargs) for name, args, kwargs in way))
            for i, way in program["views"]
        )
        fields = {field.name for field in dataclasses.fields(compiler._Program)}
        assert {*program, "number", "host", "device"} == fields
        self.program = compiler._Program(
            number=_C.add_traced(*made["traced"]), host=None, device=self.device, **program
        )
        weakref.finalize(self, compiler._drop, self.program.number)

    def __call__(self, flat: Sequence[Any]) -> Any:
        where = {"input": lambda i: flat[i], "state": self.state.__getitem__, "constant": lambda t: t}
        with torch.no_grad():
            values = compiler._run(self.program, compiler._sizes.Call(), [where[k](v) for k, v in self.sources])
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
