"""Tensors without elements: a batch that a filter has emptied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

NONE = torch.zeros(0, dtype=torch.int64)

LOSSES: dict[str, Callable[[Tensor, str], Tensor]] = {
    "cross_entropy": lambda x, how: F.cross_entropy(x, NONE.to(x.device), reduction=how),
    "with weights": lambda x, how: F.cross_entropy(x, NONE.to(x.device), x.new_ones(4), reduction=how),
    "with smoothing": lambda x, how: F.cross_entropy(x, NONE.to(x.device), label_smoothing=0.1, reduction=how),
    "of probabilities": lambda x, how: F.cross_entropy(x, torch.ones_like(x), reduction=how),
    "of images": lambda x, how: F.cross_entropy(x.view(0, 4, 1, 1), NONE.view(0, 1, 1).to(x.device), reduction=how),
    "without pixels": lambda x, how: F.cross_entropy(
        x.view(2, 4, 0, 3), NONE.view(2, 0, 3).to(x.device), reduction=how
    ),
    "mse": lambda x, how: F.mse_loss(x, torch.ones_like(x), reduction=how),
    "l1": lambda x, how: F.l1_loss(x, torch.ones_like(x), reduction=how),
    "smooth_l1": lambda x, how: F.smooth_l1_loss(x, torch.ones_like(x), reduction=how),
    "huber": lambda x, how: F.huber_loss(x, torch.ones_like(x), reduction=how),
    "binary": lambda x, how: F.binary_cross_entropy(x, torch.ones_like(x), reduction=how),
    "of logits": lambda x, how: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction=how),
    "kl": lambda x, how: F.kl_div(x, torch.ones_like(x), reduction=how),
    "soft margin": lambda x, how: F.soft_margin_loss(x, torch.ones_like(x), reduction=how),
    "of several labels": lambda x, how: F.multilabel_soft_margin_loss(x, torch.ones_like(x), reduction=how),
    "triplets": lambda x, how: F.triplet_margin_loss(x, x + 1, x + 2, reduction=how),
}


@pytest.mark.parametrize("how", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_the_cpus(name: str, how: str, device: torch.device) -> None:
    found = []
    for where in (torch.device("cpu"), device):
        x = torch.ones(0, 4, device=where, requires_grad=True)
        loss = LOSSES[name](x, how)
        loss.sum().backward()
        found.append((loss.detach().cpu(), x.grad.cpu()))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize(
    "name", ["max", "min", "median", "nanmedian", "mode", "amax", "amin", "argmax", "argmin", "aminmax"]
)
def test_nothing_has_no_extreme(name: str, device: torch.device) -> None:
    take = getattr(torch, name)
    for dim in (0, -2):
        with pytest.raises(IndexError) as expected:
            take(torch.zeros(0, 4), dim=dim)
        with pytest.raises(IndexError) as caught:
            take(torch.zeros(0, 4, device=device), dim=dim)
        assert str(caught.value) == str(expected.value)
    for mine, right in zip(take(torch.zeros(0, 4, device=device), dim=1), take(torch.zeros(0, 4), dim=1), strict=True):
        assert (mine.shape, mine.dtype) == (right.shape, right.dtype)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("batch", "channels"), [(2, 0), (0, 4), (0, 0)])
def test_a_convolution_of_nothing(batch: int, channels: int, bias: bool, device: torch.device) -> None:
    """Without input channels there are no output channels either, as on the CPU."""
    for convolve, dims in ((F.conv1d, (9,)), (F.conv2d, (5, 6)), (F.conv3d, (3, 4, 5))):
        found = []
        for where in (torch.device("cpu"), device):
            shapes = (batch, channels, *dims), (8, channels, *(2 for _ in dims)), (8,)
            x, weight, b = (torch.ones(s, device=where, requires_grad=True) for s in shapes)
            y = convolve(x, weight, b if bias else None)
            y.sum().backward()
            found.append([t.detach().cpu() for t in (y, x.grad, weight.grad, *([b.grad] if bias else []))])
        for mine, right in zip(*found, strict=True):
            assert mine.equal(right)


@pytest.mark.parametrize("shape", [(3,), (4, 6), (2, 16, 5)])
def test_empty_slices(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.ones(shape, device=device)
    for dim, size in enumerate(shape):
        for start in range(size + 1):
            for step in (1, 2):
                none = x.narrow(dim, start, 0)[..., ::step]
                assert (none + 1).numel() == none.mul_(2).numel() == 0
                assert none.sum().item() == 0
    assert x.sum().item() == x.numel()
