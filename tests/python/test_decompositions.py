"""An operator without a row runs as PyTorch's own decomposition: one program, traced once for each key."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

Call = Callable[[Callable[[Tensor], Tensor]], Tensor]

X = torch.linspace(-2, 2, 24).view(4, 6)
DECOMPOSED: dict[str, Call] = {
    "cross product": lambda t: torch.linalg.cross(t(X[:, :3]), t(X[:, 3:])),
    "renorm": lambda t: torch.renorm(t(X), 2, 0, 1.0),
    "renorm_ of a view": lambda t: t(X).t()[1:3].renorm_(2, 0, 0.5),
}


@pytest.mark.parametrize("call", DECOMPOSED.values(), ids=DECOMPOSED.keys())
def test_a_decomposition_computes_what_the_cpu_computes(call: Call, device: torch.device, no_fallbacks: None) -> None:
    torch.testing.assert_close(call(lambda x: x.to(device)).cpu(), call(lambda x: x.clone()))


def test_a_decomposition_is_traced_and_compiled_once(device: torch.device, pjrt: ModuleType) -> None:
    x = X.to(device)
    torch.renorm(x, 2, 0, 1.25)
    before = pjrt.stats()
    with pjrt.no_compile():
        for _ in range(5):
            torch.renorm(x, 2, 0, 1.25)
    after = pjrt.stats()
    assert after["compiles"] == before["compiles"]
    assert after["hits"] >= before["hits"] + 5
    assert after["fallbacks"] == before["fallbacks"]


def test_a_gradient_passes_through_a_decomposition(device: torch.device) -> None:
    grads = []
    for where in ("cpu", device):
        x = X.to(where, copy=True).requires_grad_()
        torch.renorm(x, 2, 0, 1.0).square().sum().backward()
        grads.append(x.grad)
    assert grads[0] is not None and grads[1] is not None
    torch.testing.assert_close(grads[1].cpu(), grads[0])
