"""Factorisations on the device, beyond the samples of the operator database."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((1, 1), (2, 2), (7, 7), (3, 12, 5), (3, 5, 12), (2, 16, 16))


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def matrices(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Tensor]:
    """Random, of low rank, with equal columns, graded over many magnitudes, zero, huge and tiny."""
    torch.manual_seed(0)
    n = shape[-1]
    x = torch.randn(shape, dtype=dtype)
    low = torch.randn(*shape[:-1], 1, dtype=dtype) @ torch.randn(*shape[:-2], 1, n, dtype=dtype)
    grades = torch.logspace(0, -6, n, dtype=x.real.dtype)
    return {
        "random": x,
        "low rank": low,
        "equal columns": x[..., :1].expand(*shape).contiguous(),
        "graded": x * grades,
        "zero": torch.zeros(shape, dtype=dtype),
        "huge": x * 1e25,
        "tiny": x * 1e-25,
    }


def assert_orthonormal(q: Tensor, label: str) -> None:
    n = q.shape[-1]
    error = (q.mH @ q - torch.eye(n, dtype=q.dtype)).abs().max()
    assert error < 40 * max(n, 4) * eps(q.dtype), f"{label}: {error}"


def assert_near(got: Tensor, expected: Tensor, label: str) -> None:
    n = max(expected.shape[-2:]) if expected.dim() >= 2 else max(expected.shape[-1], 1)
    error, scale = (got - expected).abs().max(), expected.abs().max()
    assert error <= 40 * max(n, 4) * eps(expected.dtype) * scale, f"{label}: {error} of {scale}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_of_any_matrix(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    for label, x in matrices(shape, dtype).items():
        u, s, vh = (t.cpu() for t in torch.linalg.svd(x.to(device), full_matrices=True))
        k = s.shape[-1]
        assert_orthonormal(u, label)
        assert_orthonormal(vh.mH, label)
        assert_near(s, torch.linalg.svdvals(x), label)
        assert (s >= 0).all() and (s.diff(dim=-1) <= 0).all()
        assert_near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], x, label)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1] == s[-2]], ids=str)
def test_eigenvalues_of_any_hermitian_matrix(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    for label, x in matrices(shape, dtype).items():
        x = x + x.mH
        values, v = (t.cpu() for t in torch.linalg.eigh(x.to(device)))
        assert_orthonormal(v, label)
        assert_near(values, torch.linalg.eigvalsh(x), label)
        assert_near((v * values.unsqueeze(-2)) @ v.mH, x, label)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonal_and_triangular_factors_of_any_matrix(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    for label, x in matrices(shape, dtype).items():
        q, r = (t.cpu() for t in torch.linalg.qr(x.to(device), mode="complete"))
        assert_orthonormal(q, label)
        assert_near(q @ r, x, label)
        p, low, up = (t.cpu() for t in torch.linalg.lu(x.to(device)))
        assert_near(p @ low @ up, x, label)
        assert low.abs().max() <= 1.5


def test_a_singular_system_is_refused_as_on_the_cpu(device: torch.device) -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    b = torch.ones(2)
    for call in (
        torch.linalg.inv,
        lambda t: torch.linalg.solve(t, b.to(t.device)),
        lambda t: torch.linalg.inv_ex(t, check_errors=True),
        lambda t: torch.linalg.lu_factor_ex(t, check_errors=True),
        lambda t: torch.linalg.solve_ex(t, b.to(t.device), check_errors=True),
        lambda t: torch.linalg.cholesky_ex(-t, check_errors=True),
        lambda t: torch.linalg.cholesky(-t),
    ):
        with pytest.raises(RuntimeError) as expected:
            call(x)
        with pytest.raises(RuntimeError) as got:
            call(x.to(device))
        assert (got.type, str(got.value)) == (expected.type, str(expected.value))


def test_nothing_of_this_runs_on_the_host(device: torch.device) -> None:
    import torch_pjrt

    x = torch.randn(4, 4).to(device)
    before = torch_pjrt.stats()["fallbacks"]
    torch.linalg.svd(x), torch.linalg.eigh(x), torch.linalg.qr(x), torch.linalg.lu(x), torch.linalg.det(x)
    torch.linalg.pinv(x), torch.linalg.matrix_exp(x), torch.linalg.inv(x), torch.linalg.matrix_rank(x)
    assert torch_pjrt.stats()["fallbacks"] == before
