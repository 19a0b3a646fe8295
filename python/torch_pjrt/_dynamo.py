"""Tells PyTorch's compiler about the device, at the moment when the compiler is first imported.

Loading Dynamo takes as long as loading torch, and most processes never compile: so ``import torch`` does not load it,
but asks Python's import system to be called when somebody does.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_REGISTRY = "torch._dynamo.backends.registry"


class _Watch(importlib.abc.MetaPathFinder):
    """Finds one module as everybody else would, and calls a function when it has been loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self.then)
        return spec


class _Then(importlib.abc.Loader):
    """A module's own loader, and then a function of the module."""

    def __init__(self, loader: importlib.abc.Loader, then: Callable[[ModuleType], None]) -> None:
        self.loader = loader
        self.then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.then(module)


def watch() -> None:
    """``torch.compile`` without a backend then works on the device, and the device's name is a backend's name."""
    if _REGISTRY in sys.modules:
        _register(sys.modules[_REGISTRY])
    else:
        sys.meta_path.insert(0, _Watch(_REGISTRY, _register))


def _register(registry: ModuleType) -> None:
    from torch_pjrt import compiler, device_name

    registry.register_backend(compiler.backend, name=device_name())
    if registry.get_default_backend() == "inductor":
        registry.set_default_backend(default)


def default(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """What ``torch.compile(model)`` calls: our backend for a graph with a tensor of the device, else inductor."""
    import torch

    from torch_pjrt import compiler, device_name

    values = [
        *example_inputs,
        *gm.parameters(),
        *gm.buffers(),
        *torch.utils._pytree.tree_leaves([node.meta.get("example_value") for node in gm.graph.nodes]),
    ]
    if any(isinstance(value, torch.Tensor) and value.device.type == device_name() for value in values):
        return compiler.backend(gm, example_inputs, **options)
    inductor = torch._TorchCompileInductorWrapper(options.get("mode"), options.get("options"), None)
    return inductor(gm, example_inputs)
