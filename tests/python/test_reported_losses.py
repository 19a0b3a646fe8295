"""Losses where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor
from torch.nn import functional

REDUCTIONS = ["none", "mean", "sum"]


def test_smoothing_does_not_count_ignored_rows(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/73205
    target, kept = torch.tensor([1, -100, 0, 3, -100, 2]), [0, 2, 3, 5]
    x = normal(6, 4).requires_grad_()
    for smoothing in (0.0, 0.1, 1.0):
        for options in ({}, {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}):
            for reduction in ("mean", "sum"):

                def loss(x: Tensor, t: Tensor, o=options, r=reduction, s=smoothing) -> Tensor:
                    o = {name: value.to(x.device) for name, value in o.items()}
                    return functional.cross_entropy(x, t, reduction=r, label_smoothing=s, **o)

                agree(loss, device, x, target)
                there, goal = x.detach().to(device), target.to(device)
                torch.testing.assert_close(loss(there, goal), loss(there[kept], goal[kept]))


LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
    "bce with logits": lambda x, y, **o: functional.binary_cross_entropy_with_logits(x, y.sigmoid(), **o),
    "bce": lambda x, y, **o: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **o),
    "kl_div": lambda x, y, **o: functional.kl_div(x, y, log_target=True, **o),
    "poisson": lambda x, y, **o: functional.poisson_nll_loss(x, y.abs(), **o),
    "gaussian": lambda x, y, **o: functional.gaussian_nll_loss(x, y, y.abs() + 1, **o),
    "soft margin": lambda x, y, **o: functional.soft_margin_loss(x, y.sign(), **o),
    "hinge embedding": lambda x, y, **o: functional.hinge_embedding_loss(x, y.sign(), **o),
    "margin ranking": lambda x, y, **o: functional.margin_ranking_loss(x, -x, y.sign(), **o),
    "cosine embedding": lambda x, y, **o: functional.cosine_embedding_loss(x, y, y[:, 0].sign(), **o),
    "triplet margin": lambda x, y, **o: functional.triplet_margin_loss(x, y, x + y, **o),
    "cross entropy of probabilities": lambda x, y, **o: functional.cross_entropy(x, y.softmax(1), **o),
    "cross entropy": lambda x, y, **o: functional.cross_entropy(x, y.argmax(1), **o),
    "nll": lambda x, y, **o: functional.nll_loss(x, y.argmax(1), **o),
    "multi margin": lambda x, y, **o: functional.multi_margin_loss(x, y.argmax(1), **o),
    "multilabel soft margin": lambda x, y, **o: functional.multilabel_soft_margin_loss(x, (y > 0).float(), **o),
    "multilabel margin": lambda x, y, **o: functional.multilabel_margin_loss(x, (y > 0).long(), **o),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "stepped": lambda t: t[:3, ::2],
    "transposed": lambda t: t.t()[:3, :3],
    "offset": lambda t: t[1:, 2:5],
    "expanded": lambda t: t[0, :3].expand(3, 3),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_reads_its_views(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/124621, https://github.com/microsoft/DirectML/issues/411
    x, y = normal(4, 6).requires_grad_(), normal(4, 6, seed=1)
    views = list(LAYOUTS.values())
    for i, view in enumerate(views):
        agree(
            lambda x, y, v=view, w=views[i - 1], r=REDUCTIONS[i % 3]: LOSSES[name](v(x), w(y), reduction=r),
            device,
            *(x, y),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_is_weighted(reduction: str, device: torch.device, no_fallbacks: None) -> None:
    # https://github.com/microsoft/DirectML/issues/411
    x, y, weight, positive = (
        normal(4, 3).requires_grad_(),
        normal(4, 3, seed=1).sigmoid(),
        torch.rand(4, 3),
        torch.rand(3) + 1,
    )
    logits = functional.binary_cross_entropy_with_logits
    agree(
        lambda x, y, w, p: [
            logits(x, y, weight=w, reduction=reduction),
            logits(x, y, pos_weight=p, reduction=reduction),
            logits(x, y, weight=w[:1], pos_weight=p, reduction=reduction),
            functional.binary_cross_entropy(x.sigmoid(), y, weight=w, reduction=reduction),
        ],
        device,
        *(x, y, weight, positive),
    )
    edges = torch.tensor([0.0, 1.0, 0.0, 1.0])
    agree(functional.binary_cross_entropy, device, edges, torch.tensor([0.0, 1.0, 1.0, 0.0]))
    agree(logits, device, torch.tensor([200.0, -200.0, 0.0]), torch.tensor([1.0, 0.0, 1.0]))


def test_a_large_vocabulary_is_right_for_every_batch(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/109457
    weight = normal(5030, 768).to(device)
    x = normal(9, 16, 768, seed=1).to(device)
    together = functional.linear(x, weight)
    rows = torch.stack([functional.linear(row, weight) for row in x])
    torch.testing.assert_close(together, rows, rtol=1e-4, atol=1e-4)
    exact = x.cpu().double() @ weight.cpu().double().t()
    torch.testing.assert_close(together.cpu().double(), exact, rtol=1e-4, atol=1e-4)
