"""A function's operator calls as a graph, from tensors without contents: nothing runs and nothing is compiled.

The calls are noted as autograd leaves them, in place and through views as they are: the lowering knows what aliases
what. Forward, backward and optimizer are all the same to it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from torch_pjrt import _C, _decompose

__all__ = ["Call", "Recording", "record"]

# Calls that make a tensor and nothing else, and copies: the lowering does these itself.
_KNOWN = {
    "aten::clone",
    "aten::_to_copy",
    "aten::contiguous",
    "aten::lift_fresh_copy",
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
}


@dataclass
class Call:
    """One operator call: name, the user's line (``""`` if unknown), its floating-point operations, results' bytes."""

    operator: str
    where: str
    flops: int
    bytes: int


@dataclass
class Recording:
    """What ``_C.lower_graph`` takes, and what reports tell."""

    inputs: list[tuple[Any, ...]] = field(default_factory=list)  # ("tensor", dtype, sizes, strides)
    names: list[str] = field(default_factory=list)  # of the inputs: "args[0].weight"
    nodes: list[tuple[Any, ...]] = field(default_factory=list)
    outputs: tuple[Any, ...] = ()
    calls: list[Call] = field(default_factory=list)

    def lower(self, name: str, capabilities: Mapping[str, str]) -> dict[str, Any]:
        """The StableHLO module for a chip: ``text``, ``parameters``, ``results``, ``sources``."""
        return _C.lower_graph(name, tuple(self.inputs), (tuple(self.nodes), self.outputs), dict(capabilities))


def record(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> Recording:
    """Calls the function with copies of its arguments that have no contents and seem to be on ``device``.

    Arguments are tensors (any device, meta and fake too), modules, optimizers, containers and objects that hold these;
    they stay as they are. Raises PyTorch's error for a function that reads a value (``.item()``).
    """
    recorder = _Recorder(torch.device(device, 0))
    with recorder.fakes:
        everything = (function, args, kwargs)
        memo: dict[int, Any] = {}
        seen: set[int] = set()
        for root, value in (("", function), ("args", args), ("kwargs", kwargs)):
            for name, tensor in _tensors(root, value, seen):
                memo[id(tensor)] = recorder.input(name, tensor)
        function, args, kwargs = copy.deepcopy(everything, memo)
        with recorder:
            results = function(*args, **kwargs)
        return recorder.finish([leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)])


def _tensors(name: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that can be reached, with a name: parameters of modules, states of optimizers, attributes."""
    if id(value) in seen or isinstance(value, type | ModuleType):
        return
    seen.add(id(value))
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        parts = (*value.named_parameters(), *value.named_buffers(), *vars(value).items())
        inner = [(f"{name}.{part}", item) for part, item in parts if not part.startswith("_")]
    elif isinstance(value, Mapping):
        inner = [(f"{name}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple | set):
        inner = [(f"{name}[{i}]", item) for i, item in enumerate(value)]
    elif hasattr(value, "__self__"):
        inner = [(name, value.__self__)]
    elif not callable(value) or not hasattr(value, "__code__"):
        inner = [(f"{name}.{part}", item) for part, item in getattr(value, "__dict__", {}).items()]
    for part, item in inner:
        yield from _tensors(part.lstrip("."), item, seen)


class _Recorder(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self.recording = Recording()
        self.rows = frozenset(_C.rows())
        self.values: dict[int, tuple[str, int, int]] = {}  # id of a tensor -> ("input" or "node", number, item)
        self.alive: list[Tensor] = []  # ids above stay theirs

    # ---- inputs

    def input(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor without contents in place of this one; on the CPU if it is a number there (a step count)."""
        is_number = tensor.dim() == 0 and tensor.device.type == "cpu" and not tensor.requires_grad
        if is_number and not isinstance(tensor, FakeTensor):
            with _disable_current_modes():
                value = tensor.item()
            return torch.tensor(value, dtype=tensor.dtype)  # which the mode remembers
        fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=self.device)
        if isinstance(tensor, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        else:
            fake.requires_grad_(tensor.requires_grad)
        return self.add_input(name, fake)

    def add_input(self, name: str, fake: Tensor) -> Tensor:
        number = len(self.recording.inputs)
        strides = tuple(fake.stride())
        self.recording.inputs.append(("tensor", _decompose._NUMBERS[fake.dtype], tuple(fake.shape), strides))
        self.recording.names.append(name)
        self.know(fake, ("input", number, -1))
        return fake

    def know(self, tensor: Tensor, value: tuple[str, int, int]) -> None:
        self.values[id(tensor)] = value
        self.alive.append(tensor)

    # ---- calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = _decompose._name(func)
        where = _C.user_line()
        contents = _decompose._factories().get(func)
        if contents is not None:
            with self.fakes:
                like = func(*args, **kwargs)
            if like.device.type != self.device.type:
                return like
            with self:
                empty = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=like.device)
                return contents(empty, *args)
        if not (name in self.rows or name in _KNOWN or _decompose._is_view(func)):
            decomposition = _decompose._table().get(func)
            if decomposition is not None and self.is_ours(args, kwargs):
                with self:
                    return decomposition(*args, **kwargs)
        with self.fakes:
            out = func(*args, **kwargs)
        results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        schema = func._schema
        if not self.is_ours((args, out), kwargs) or (not results and not schema.is_mutable):
            return out  # numbers on the CPU, and questions about tensors
        # Where a method is called on the device's own random generator, None is the device's too.
        call = tree_map(lambda x: self.operand(x) if isinstance(x, Tensor) else x, (list(args), kwargs))
        values = []
        given = iter(call[0])
        for argument in schema.arguments:
            default = call[1].get(argument.name, argument.default_value)
            values.append(default if argument.kwarg_only else next(given, default))
        number = len(self.recording.nodes)
        file, _, line = where.rpartition(":")
        self.recording.nodes.append((name, tuple(values), file, int(line or 0)))
        several = isinstance(out, list | tuple)
        for item, result in enumerate(out if several else [out]):
            if isinstance(result, Tensor):
                self.know(result, self.values.get(id(result)) or ("node", number, item if several else -1))
        count = flop_registry.get(func.overloadpacket)
        self.recording.calls.append(
            Call(
                name,
                where,
                count(*args, **kwargs, out_val=out) if count else 0,
                sum(t.numel() * t.itemsize for t in results) if not _decompose._is_view(func) else 0,
            )
        )
        return out

    def is_ours(self, *values: Any) -> bool:
        return any(isinstance(t, Tensor) and t.device.type == self.device.type for t in tree_leaves(values))

    def operand(self, tensor: Tensor) -> Any:
        """What stands for a tensor argument in the graph."""
        if id(tensor) not in self.values:
            constant = getattr(tensor, "constant", None)
            if tensor.dim() == 0 and tensor.device.type != self.device.type:
                value = tensor if constant is None and not isinstance(tensor, FakeTensor) else constant
                if value is None:
                    raise ValueError("a number on the CPU that is only known when the function runs")
                with torch._C._DisableTorchDispatch():
                    return value.item()
            fake = tensor if isinstance(tensor, FakeTensor) else self.fakes.from_tensor(tensor)
            self.alive.append(tensor)
            self.add_input("a tensor that is no argument", fake)
            self.values[id(tensor)] = self.values[id(fake)]
        return _Value(*self.values[id(tensor)])

    def finish(self, results: list[Tensor]) -> Recording:
        """Numbers the values: inputs first, then nodes."""
        done = self.recording
        results = [t for t in results if id(t) in self.values]
        outputs = [_Value(*self.values[id(t)]) for t in results]
        done.nodes = [(name, _plain(values, len(done.inputs)), file, line) for name, values, file, line in done.nodes]
        done.outputs = _plain(outputs, len(done.inputs))
        return done


@dataclass(frozen=True)
class _Value:
    kind: str
    number: int
    item: int


def _plain(value: Any, inputs: int) -> Any:
    if isinstance(value, _Value):
        return ("ref", value.number + (inputs if value.kind == "node" else 0), value.item)
    if isinstance(value, list | tuple):
        return tuple(_plain(item, inputs) for item in value)
    if isinstance(value, torch.Generator):
        return None
    return _decompose._plain(value, {})
