"""Printing a tensor: the CPU's text, at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

NUMBERS = torch.tensor([[0.0, -1.5, 3e-7], [float("nan"), float("inf"), 12345.678]])
COMPLEX = torch.complex(NUMBERS, NUMBERS.flip(0))
TENSORS: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
    **{
        str(t).removeprefix("torch."): (NUMBERS.to(t), lambda x: x) for t in (torch.float32, torch.bfloat16, torch.half)
    },
    "float64": (NUMBERS.double(), lambda x: x),
    "whole numbers": (torch.tensor([1.0, -20.0, 300.0]), lambda x: x),
    "int64": (torch.tensor([[1 << 40, -3], [7, 0]]), lambda x: x),
    "uint8": (torch.arange(5, dtype=torch.uint8), lambda x: x),
    "bool": (torch.tensor([True, False]), lambda x: x),
    "complex64": (COMPLEX, lambda x: x),
    "a conjugate": (COMPLEX, lambda x: x.conj()),
    "a negative": (COMPLEX, lambda x: x.conj().imag),
    "strided": (torch.arange(40.0), lambda x: x.view(5, 8)[1::2, 1:6:2].mT),
    "broadcast": (torch.tensor([0.25]), lambda x: x.expand(3, 2)),
    "a number": (torch.tensor(2.5), lambda x: x),
    "empty": (torch.empty(0, 3), lambda x: x),
    "large": (torch.arange(40000.0) / 7, lambda x: x.view(200, 200)),
    "with gradient": (torch.tensor([1.0, 2.5]), lambda x: x.requires_grad_()),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_prints_as_on_the_cpu_and_compiles_nothing(name: str, device: torch.device, pjrt: ModuleType) -> None:
    base, view = TENSORS[name]
    mine, theirs = view(base.to(device)), view(base.clone())
    with pjrt.no_compile():
        text = repr(mine)
    assert f"device='{mine.device}'" in text
    assert words(text.replace(f"device='{mine.device}'", "")) == words(repr(theirs))


def words(text: str) -> list[str]:
    """The text without its line breaks, which depend on how much stands after the numbers."""
    return re.sub(r"[\s,()]+", " ", text).split()
