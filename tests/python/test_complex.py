"""Lazy conjugation and negation: PyTorch leaves them to the kernels of matrix products, and resolves them elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "dot": (torch.dot, [(4,), (4,)]),
    "vdot": (torch.vdot, [(4,), (4,)]),
    "mv": (torch.mv, [(3, 4), (4,)]),
    "mm": (torch.mm, [(3, 4), (4, 2)]),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 2)]),
    "addmm": (torch.addmm, [(3, 2), (3, 4), (4, 2)]),
    "addmv": (torch.addmv, [(3,), (3, 4), (4,)]),
    "baddbmm": (torch.baddbmm, [(2, 3, 2), (2, 3, 4), (2, 4, 2)]),
    "linalg.solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        [(3, 3), (3, 2)],
    ),
}
LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda t: t,
    "conj": lambda t: t.conj(),
    "neg": lambda t: torch._neg_view(t),
    "both": lambda t: torch._neg_view(t.conj()),
}


def numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_see_lazy_bits(name: str, device: torch.device) -> None:
    function, shapes = PRODUCTS[name]
    for bits in itertools.product(LAZY, repeat=len(shapes)):
        plain = [numbers(shape, i) for i, shape in enumerate(shapes)]
        expected = function(*(LAZY[b](t).resolve_conj().resolve_neg() for b, t in zip(bits, plain, strict=True)))
        found = function(*(LAZY[b](t.to(device)) for b, t in zip(bits, plain, strict=True)))
        torch.testing.assert_close(found.cpu().resolve_conj().resolve_neg(), expected, msg=f"arguments are {bits}")


@pytest.mark.parametrize("bits", ["conj", "neg", "both"])
def test_a_product_written_through_lazy_bits(bits: str, device: torch.device) -> None:
    x, y, target = numbers((3, 4), 0), numbers((4, 2), 1), numbers((3, 2), 2)
    ours = target.to(device)
    LAZY[bits](ours).addmm_(x.to(device), y.to(device))
    LAZY[bits](target).copy_(torch.addmm(LAZY[bits](target).resolve_conj().resolve_neg(), x, y))
    torch.testing.assert_close(ours.cpu(), target)


def test_gradients_pass_through_a_conjugation(device: torch.device) -> None:
    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        y = torch.conj_physical(torch.fft.rfft(x)) * torch.fft.ihfft(x)
        (y.real * 2 + y.imag).sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    x = torch.linspace(-1, 1, 8, dtype=torch.float64)
    torch.testing.assert_close(gradient(x.to(device)), gradient(x))
