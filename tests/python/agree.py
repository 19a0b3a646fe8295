"""The same call on the CPU and on the device, compared: values, dtypes, sizes, and gradients where inputs want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

Call = Callable[..., Any]


def outcome(call: Call, inputs: Sequence[Tensor], where: torch.device | str) -> list[Any]:
    """What the call returns there, as a flat list, then the gradients of the inputs that want one."""
    there = [x.detach().clone().to(where).requires_grad_(x.requires_grad) for x in inputs]
    results = tree_flatten(call(*there))[0]
    leaves = [x for x in there if x.requires_grad]
    roots = [t for t in results if isinstance(t, Tensor) and t.requires_grad]
    if leaves and roots:
        weights = [torch.linspace(-1, 1, t.numel()).view(t.shape).to(t) for t in roots]
        results += torch.autograd.grad(roots, leaves, weights, allow_unused=True)
    return [t.detach() if isinstance(t, Tensor) else t for t in results]


def agree(call: Call, device: torch.device, *inputs: Tensor, strides: bool = False, **tolerances: float) -> list[Any]:
    """Calls with copies of the inputs on both devices, compares, and returns the device's flat results."""
    found, expected = (outcome(call, inputs, where) for where in (device, "cpu"))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        if not isinstance(theirs, Tensor):
            assert mine == theirs
            continue
        assert mine.device.type == device.type
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        if strides:
            assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True, **tolerances)
    return found


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers on the CPU, the same in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
