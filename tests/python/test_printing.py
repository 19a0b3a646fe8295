"""Printing a tensor: the CPU's text, at once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

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
def test_a_tensor_prints_as_on_the_cpu(name: str, device: torch.device) -> None:
    base, view = TENSORS[name]
    mine, theirs = view(base.to(device)), view(base.clone())
    text = repr(mine)
    assert f"device='{mine.device}'" in text
    assert words(text.replace(f"device='{mine.device}'", "")) == words(repr(theirs))


def test_printing_compiles_nothing(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    # https://github.com/pytorch/pytorch/pull/71147, https://github.com/ankane/torch.rb/issues/50
    # In a process of its own: a call of printing that a program has noted before is noted again.
    code = """
import sys; sys.path.insert(0, "tests/python")
import torch_pjrt
from test_printing import TENSORS
for base, view in TENSORS.values():
    mine = view(base.to(D))
    with torch_pjrt.no_compile():
        repr(mine)
print(torch_pjrt.stats()["compiles"], torch_pjrt.fallbacks())
"""
    assert run_python(code, check=True).stdout == "0 {}\n"


def words(text: str) -> list[str]:
    """The text without its line breaks, which depend on how much stands after the numbers."""
    return re.sub(r"[\s,()]+", " ", text).split()
