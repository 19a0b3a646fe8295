"""Complex numbers, matrices and sizes of zero where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor

COMPLEX = [torch.complex64, torch.complex128]
LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "conj().imag": lambda z: z.conj().imag,
    "conj().real": lambda z: z.conj().real,
    "imag of a slice": lambda z: z.conj()[1:].imag,
    "imag of an adjoint": lambda z: z.view(2, 2).mH.imag,
    "neg view": lambda z: torch._neg_view(z.imag)[1:],
    "conj": lambda z: z.conj()[::2],
    "twice": lambda z: z.conj().t().conj() if z.dim() == 2 else z.conj().conj(),
}
USES: dict[str, Callable[[Tensor], Tensor]] = {
    "resolved": lambda t: t.resolve_conj().resolve_neg(),
    "plus": lambda t: t + 1,
    "times itself": lambda t: t * t,
    "sum": lambda t: t.sum(),
    "contiguous": lambda t: t.contiguous().resolve_conj().resolve_neg(),
    "clone": lambda t: t.clone().resolve_conj().resolve_neg(),
    "cat": lambda t: torch.cat([t.flatten(), t.flatten()]),
    "index": lambda t: t.flatten()[[0, -1]].resolve_conj().resolve_neg(),
    "abs": lambda t: t.abs(),
    "to": lambda t: t.to(torch.complex128).resolve_conj(),
    "out=": lambda t: torch.mul(t, 2, out=torch.empty_like(t).resolve_conj().resolve_neg()),
}


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", LAZY)
def test_lazy_bits_are_seen_by_every_use(name: str, dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/184379
    z = torch.tensor([1 + 2j, 3 + 4j, -5j, 0.25]).to(dtype)
    for use in USES.values():
        agree(lambda z, use=use: use(LAZY[name](z)), device, z)

    def write(z: Tensor) -> Tensor:
        view = LAZY[name](z)
        view.mul_(2)
        view.flatten()[:1].fill_(7)
        return z

    agree(write, device, z)
    assert torch.tensor([1 + 2j, 3 + 4j], device=device).conj().imag.tolist() == [-2.0, -4.0]


def test_a_float_view_of_a_lazy_conjugate_is_refused(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/59946
    for where in ("cpu", device):
        z = torch.tensor([1 + 2j, 3 + 4j], device=where)
        with pytest.raises(RuntimeError, match="view is not supported for conjugate view tensors"):
            z.conj().view(torch.float32)
        with pytest.raises(RuntimeError, match="view_as_real doesn't work on unresolved conjugated tensors"):
            torch.view_as_real(z.conj())
        with pytest.raises(RuntimeError, match="view is not supported for tensors with negative bit set"):
            z.conj().imag.view(torch.int32)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 3), (3, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *COMPLEX], ids=str)
def test_least_squares_have_a_small_residual(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/196113
    a = normal(*shape, dtype=dtype if not dtype.is_complex else torch.float64).to(dtype)
    if dtype.is_complex:
        a = a + 1j * normal(*shape, seed=1).to(dtype)
    exact = a.mH @ normal(*shape[:-2], shape[-2], 2, seed=2).to(dtype)  # in the row space
    b = a @ exact
    found = torch.linalg.lstsq(a.to(device), b.to(device)).solution
    assert (a.to(device) @ found - b.to(device)).abs().max().item() < 1e-4


SQUARE: dict[str, Callable[[Tensor], object]] = {
    "inv": torch.linalg.inv,
    "inverse": torch.inverse,
    "inv_ex": lambda a: torch.linalg.inv_ex(a)[0],
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "solve": lambda a: torch.linalg.solve(a, a),
    "cholesky": torch.linalg.cholesky,
    "eig": torch.linalg.eig,
    "eigh": torch.linalg.eigh,
    "eigvals": torch.linalg.eigvals,
    "matrix_power": lambda a: torch.linalg.matrix_power(a, 2),
    "matrix_exp": torch.linalg.matrix_exp,
    "cholesky_inverse": torch.cholesky_inverse,
    "trace of three dims": lambda a: a[None].trace(),
}


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.filterwarnings("ignore")
def test_a_matrix_that_is_not_square_is_refused_at_the_call(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/xla/issues/9707
    texts = []
    for where in ("cpu", device):
        with pytest.raises(RuntimeError) as caught:
            SQUARE[name](torch.ones(2, 3, device=where))
        texts.append(str(caught.value).partition("\n")[0])
    assert texts[0] == texts[1]


NOTHING: dict[str, Callable[[Callable[..., Tensor]], object]] = {
    "mm": lambda t: t(2, 0) @ t(0, 3),
    "mm to nothing": lambda t: t(0, 3) @ t(3, 2),
    "mv": lambda t: [t(0, 9) @ t(9), t(3, 0) @ t(0)],
    "dot": lambda t: [torch.dot(t(0), t(0)), torch.vdot(t(0), t(0)), torch.inner(t(2, 0), t(3, 0))],
    "bmm": lambda t: [torch.bmm(t(2, 3, 0), t(2, 0, 4)), torch.bmm(t(0, 3, 2), t(0, 2, 4))],
    "baddbmm": lambda t: [
        torch.baddbmm(t(2, 0, 1), t(2, 0, 3), t(2, 3, 1)),
        torch.baddbmm(t(2, 3, 4), t(2, 3, 0), t(2, 0, 4), beta=0.5),
        torch.baddbmm(t(2, 3, 4) * float("nan"), t(2, 3, 0), t(2, 0, 4), beta=0),
    ],
    "addmm": lambda t: [
        torch.addmm(t(2, 3), t(2, 0), t(0, 3), beta=0.5),
        torch.addmm(t(3) * float("nan"), t(2, 0), t(0, 3), beta=0),
        torch.addmm(t(3), t(0, 2), t(2, 3)),
    ],
    "addmv and addr": lambda t: [
        torch.addmv(t(2), t(2, 0), t(0), beta=0.5),
        torch.addr(t(2, 0), t(2), t(0)),
        torch.addbmm(t(3, 4), t(0, 3, 2), t(0, 2, 4), beta=0.5),
    ],
    "linear": lambda t: [
        torch.nn.functional.linear(t(2, 0), t(3, 0), t(3)),
        torch.nn.functional.linear(t(0, 3), t(2, 3), t(2)),
    ],
    "einsum": lambda t: [torch.einsum("ij,jk->ik", t(2, 0), t(0, 3)), torch.einsum("i,i", t(0), t(0))],
    "conv": lambda t: torch.nn.functional.conv2d(t(0, 2, 5, 5), t(3, 2, 2, 2)),
    "division": lambda t: t(1, 0) / t(1, 0),
    "attention": lambda t: torch.nn.functional.scaled_dot_product_attention(t(2, 0, 4), t(2, 3, 4), t(2, 3, 4)),
    "cdist": lambda t: [torch.cdist(t(2, 0), t(3, 0)), torch.cdist(t(0, 2), t(3, 2))],
    "linalg": lambda t: [torch.linalg.det(t(0, 0)), torch.linalg.inv(t(0, 0)), torch.linalg.norm(t(0, 3))],
    "cat": lambda t: [torch.cat([t(0), t(2, 3)]), torch.cat([t(0, 3), t(2, 3)]), torch.stack([t(0), t(0)])],
}


@pytest.mark.parametrize("name", NOTHING)
def test_sizes_of_zero_give_zeros_and_empties(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/187399, https://github.com/pytorch/pytorch/issues/187551
    # https://github.com/pytorch/pytorch/issues/175902, https://github.com/pytorch/pytorch/issues/137406
    def call(like: Tensor) -> object:
        leaves: list[Tensor] = []

        def make(*shape: int) -> Tensor:
            leaves.append(torch.ones(shape, device=like.device, requires_grad=True))
            return leaves[-1]

        results = NOTHING[name](make)
        flat = [results] if isinstance(results, Tensor) else list(results)
        gradients = torch.autograd.grad([r.sum() for r in flat], leaves, allow_unused=True)
        return [r.detach() for r in flat], gradients

    agree(call, device, torch.ones(1))


ORDERED = "gt lt ge le maximum minimum fmax fmin remainder fmod floor_divide atan2 hypot copysign".split()


@pytest.mark.parametrize("name", [*ORDERED, "sort", "max", "amin", "argmax", "cummax", "median", "sign", "clamp_min"])
def test_complex_numbers_have_no_order(name: str, device: torch.device) -> None:
    errors = []
    for where in ("cpu", device):
        z = torch.ones(2, 3, dtype=torch.complex64, device=where)
        arguments = (z, z) if name in ORDERED or name == "clamp_min" else (z, 0) if name == "cummax" else (z,)
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            getattr(torch, name)(*arguments)
        errors.append(caught.type)
    assert errors[0] is errors[1]
