"""Results whose size is data are made on the device, by programs that do not depend on that size."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

NAN = float("nan")


def same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g.cpu(), e, equal_nan=True)


@pytest.mark.usefixtures("strict")
def test_no_program_depends_on_how_much_counts(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.arange(24, device=device)
    masks = [x < n for n in (3, 17, 24)]
    with_three = [masks[0].nonzero(), torch.unique(x.clamp_max(3)), x.masked_select(masks[0])]
    assert [t.shape[0] for t in with_three] == [3, 4, 3]
    tops = [x.clamp_max(n) for n in (3, 17)]
    with pjrt.no_compile():
        assert [m.nonzero().shape for m in masks] == [(3, 1), (17, 1), (24, 1)]
        assert [x.masked_select(m).shape for m in masks] == [(3,), (17,), (24,)]
        assert [torch.unique(t).shape for t in tops] == [(4,), (18,)]


def test_little_of_a_large_result_stays_allocated(device: torch.device) -> None:
    x = torch.zeros(1 << 18, device=device)
    x[5] = 1
    found = x.nonzero()
    assert found.tolist() == [[5]]
    assert found.untyped_storage().nbytes() < 64


@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive])
def test_every_nan_is_distinct_and_signed_zeros_are_one(device: torch.device, unique) -> None:  # type: ignore[no-untyped-def]
    x = torch.tensor([1, NAN, -0.0, 0.0, NAN, 1, 3, 0.0, -0.0])
    flags = {"return_inverse": True, "return_counts": True}
    same(unique(x.to(device), **flags), unique(x, **flags))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_distinct_slices_come_in_lexicographic_order(device: torch.device, dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 3, (30, 2, 2))
    flags = {"return_inverse": True, "return_counts": True, "dim": dim}
    same(torch.unique(x.to(device), **flags), torch.unique(x, **flags))
    same(torch.unique_consecutive(x.to(device), **flags), torch.unique_consecutive(x, **flags))


def test_counts_that_are_negative_are_refused(device: torch.device) -> None:
    repeats = torch.tensor([1, -1], device=device)
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        torch.repeat_interleave(repeats)
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(repeats)


def test_fractional_pooling_with_given_samples_is_that_of_the_cpu(device: torch.device) -> None:
    torch.manual_seed(0)
    x, samples = torch.randn(2, 3, 9, 11), torch.rand(2, 3, 2)
    arguments = {"kernel_size": (2, 3), "output_size": (4, 5), "return_indices": True}
    same(
        F.fractional_max_pool2d(x.to(device), _random_samples=samples.to(device), **arguments),
        F.fractional_max_pool2d(x, _random_samples=samples, **arguments),
    )
    x, samples = torch.randn(2, 3, 7, 9, 8), torch.rand(2, 3, 3)
    arguments = {"kernel_size": 2, "output_size": (4, 5, 3), "return_indices": True}
    same(
        F.fractional_max_pool3d(x.to(device), _random_samples=samples.to(device), **arguments),
        F.fractional_max_pool3d(x, _random_samples=samples, **arguments),
    )


def test_rrelu_keeps_the_slopes_that_it_drew(device: torch.device) -> None:
    x = torch.linspace(-1, 1, 501, device=device)
    noise = torch.zeros_like(x)
    y = torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.3, True)
    x, noise, y = x.cpu(), noise.cpu(), y.cpu()
    assert torch.equal(y, x * noise)
    assert (noise[x > 0] == 1).all()
    leaks = noise[x <= 0]
    assert leaks.min() >= 0.1 and leaks.max() <= 0.3 and leaks.std() > 0.04


def test_a_bag_gradient_is_scaled_by_the_frequency_of_its_own_index(device: torch.device) -> None:
    # PyTorch's CPU kernel takes another index's frequency here.
    weight = torch.zeros(6, 2, device=device, requires_grad=True)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2], device=device), torch.tensor([0, 3], device=device)
    F.embedding_bag(indices, weight, offsets, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert weight.grad is not None
    assert weight.grad.cpu().tolist() == [[0.0, 0.0]] + 5 * [[1.0, 1.0]]
