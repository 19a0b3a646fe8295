"""Eager calls of which any two sizes change together: each rule of the bounded programs, forward and backward."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, randn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("pjrt", "strict")


def integers(high: int, *sizes: int) -> Tensor:
    return torch.randint(high, sizes)


def pos(*sizes: int) -> Tensor:
    return torch.rand(sizes) + 0.5


# A function, and its arguments for three sizes.
CASES: dict[str, tuple[Callable[..., Any], Callable[[int, int, int], tuple[Tensor, ...]]]] = {
    "mm": (torch.mm, lambda a, b, c: (randn(a, b), randn(b, c))),
    "bmm": (torch.bmm, lambda a, b, c: (randn(2, a, b), randn(2, b, c))),
    "addmm": (
        lambda s, x, y: torch.addmm(s, x, y, beta=0.5, alpha=2),
        lambda a, b, c: (randn(c), randn(a, b), randn(b, c)),
    ),
    "baddbmm": (torch.baddbmm, lambda a, b, c: (randn(2, a, c), randn(2, a, b), randn(2, b, c))),
    "matmul self": (lambda x: x @ x.mT, lambda a, b, c: (randn(a, b, c),)),
    "sdpa": (F.scaled_dot_product_attention, lambda a, b, c: (randn(2, a, b), randn(2, c, b), randn(2, c, b))),
    "conv1d": (
        lambda x, w, b: F.conv1d(x, w, b, padding=1),
        lambda a, b, c: (randn(2, a, c + 3), randn(b, a, 3), randn(b)),
    ),
    "conv1d 1": (F.conv1d, lambda a, b, c: (randn(2, a, c), randn(b, a, 1))),
    "conv1d kernel": (F.conv1d, lambda a, b, c: (randn(2, a, b + 20), randn(4, a, c))),
    "conv1d depthwise": (
        lambda x, w: F.conv1d(x, w, groups=x.shape[1]),
        lambda a, b, c: (randn(b, a, c + 3), randn(a, 1, 3)),
    ),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        lambda a, b, c: (randn(a, b, c + 2, 6), randn(4, b, 3, 3)),
    ),
    "conv2d s": (
        lambda x, w: F.conv2d(x, w, dilation=2, padding=1),
        lambda a, b, c: (randn(a, 2, b + 3, c + 3), randn(4, 2, 3, 3)),
    ),
    "conv transpose": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        lambda a, b, c: (randn(2, a, c), randn(a, b, 3)),
    ),
    "conv transpose2": (lambda x, w: F.conv_transpose2d(x, w), lambda a, b, c: (randn(2, a, c, b), randn(a, 3, 3, 2))),
    "sum 0": (lambda x: x.sum(0), lambda a, b, c: (randn(a, b, c),)),
    "sum": (lambda x: x.sum(), lambda a, b, c: (randn(a, b, c),)),
    "mean": (lambda x: x.mean((-1, 0), keepdim=True), lambda a, b, c: (randn(a, b, c),)),
    "mean all": (lambda x: x.mean(), lambda a, b, c: (randn(a, b, c),)),
    "var": (lambda x: x.var(1), lambda a, b, c: (randn(a, b, c),)),
    "var_mean": (lambda x: torch.var_mean(x, (0, 1), correction=0), lambda a, b, c: (randn(a, b, c),)),
    "amax": (lambda x: x.amax((0, 2)), lambda a, b, c: (randn(a, b, c),)),
    "max dim": (lambda x: x.max(1), lambda a, b, c: (randn(a, b, c),)),
    "argmax": (lambda x: x.argmax(1), lambda a, b, c: (randn(a, b, c),)),
    "any": (lambda x: (x > 1).any(1), lambda a, b, c: (randn(a, b, c),)),
    "logsumexp": (lambda x: x.logsumexp(1), lambda a, b, c: (randn(a, b, c),)),
    "cumsum": (lambda x: x.cumsum(1), lambda a, b, c: (randn(a, b, c),)),
    "tril": (lambda x: x.tril(), lambda a, b, c: (randn(a, b, c),)),
    "softmax": (lambda x: x.softmax(1), lambda a, b, c: (randn(a, b, c),)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        lambda a, b, c: (randn(a, b, c), randn(c), randn(c)),
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda a, b, c: (randn(a, b, c), randn(b), randn(b)),
    ),
    "rms_norm": (lambda x: F.rms_norm(x, x.shape[-1:]), lambda a, b, c: (randn(a, b, c),)),
    "cross_entropy": (F.cross_entropy, lambda a, b, c: (randn(a, b), integers(b, a))),
    "cross_entropy w": (
        lambda x, y, w: F.cross_entropy(x, y, w.detach()),
        lambda a, b, c: (randn(a, b), integers(b, a), pos(b)),
    ),
    "nll none": (lambda x, y: F.nll_loss(x, y, reduction="none"), lambda a, b, c: (randn(a, b), integers(b, a))),
    "bce": (F.binary_cross_entropy_with_logits, lambda a, b, c: (randn(a, b, c), pos(a, b, c) / 2)),
    "cosine": (F.cosine_similarity, lambda a, b, c: (randn(a, b, c), randn(a, b, c))),
    "sort": (lambda x: x.sort(1), lambda a, b, c: (randn(a, b, c),)),
    "topk": (lambda x: x.topk(2, 1), lambda a, b, c: (randn(a, b, c),)),
    "embedding": (F.embedding, lambda a, b, c: (integers(b, a, 2), randn(b, c))),
    "index_select": (lambda x, i: x.index_select(1, i), lambda a, b, c: (randn(a, b, 2), integers(b, c))),
    "gather": (lambda x, i: x.gather(1, i), lambda a, b, c: (randn(a, b), integers(b, a, c))),
    "scatter": (
        lambda x, i, s: x.scatter(1, i.argsort(1)[:, :2], s),
        lambda a, b, c: (randn(a, b), randn(a, b), randn(a, 2)),
    ),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(0, i, s),
        lambda a, b, c: (randn(a, b), integers(a, c, b), randn(c, b)),
    ),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), lambda a, b, c: (randn(a, b), integers(a, c), randn(c, b))),
    "index": (lambda x, i: x[i], lambda a, b, c: (randn(a, b), integers(a, c))),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        lambda a, b, c: (randn(a, b), integers(a, c), randn(c, b)),
    ),
    "masked_fill": (lambda x, y: x.masked_fill(y > 0, 2.0), lambda a, b, c: (randn(a, b, c), randn(b, c))),
    "where": (lambda x, y: torch.where(x > 0, x, y), lambda a, b, c: (randn(a, b, c), randn(a, 1, c))),
    "flip": (lambda x: x.flip(1), lambda a, b, c: (randn(a, b, c),)),
    "cat": (lambda x, y: torch.cat((x, y), 1), lambda a, b, c: (randn(2, a, b), randn(2, c, b))),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), lambda a, b, c: (randn(a, b, c),)),
    "repeat": (lambda x: x.repeat(2, 1, 3), lambda a, b, c: (randn(a, b, c),)),
    "expand": (lambda x, y: x.expand(y.shape[0], *x.shape[1:]) * 1, lambda a, b, c: (randn(1, b, c), randn(a))),
    "flatten": (lambda x: x.flatten(1) * 2, lambda a, b, c: (randn(a, b, c),)),
    "flatten mm": (lambda x, w: x.flatten(1) @ w, lambda a, b, c: (randn(a, b, c), randn(b * c, 4))),
    "view heads": (
        lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2) * 1,
        lambda a, b, c: (randn(a, b, 2 * c),),
    ),
    "slice": (lambda x: x[:, 1:] * 1, lambda a, b, c: (randn(a, b, c),)),
    "slice step": (lambda x: x[::2] * 1, lambda a, b, c: (randn(a, b, c),)),
    "add": (lambda x, y: x + y, lambda a, b, c: (randn(a, b, c), randn(b, 1))),
    "slice write": (
        lambda x, y: (lambda z: (z.__setitem__(slice(0, y.shape[0]), y), z)[1])(x.clone()),
        lambda a, b, c: (randn(a + c, b), randn(c, b)),
    ),
    "arange": (lambda x: x * torch.arange(x.shape[1], device=x.device), lambda a, b, c: (randn(a, b),)),
    "causal mask": (
        lambda x: x.masked_fill(torch.ones(x.shape[-2], x.shape[-1], device=x.device).tril() == 0, -1.0),
        lambda a, b, c: (randn(a, b, c),),
    ),
}


def all_of(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


@pytest.mark.parametrize("name", CASES)
def test_any_two_sizes_change(name: str, device: torch.device) -> None:
    call, make = CASES[name]
    choose = random.Random(name)
    torch.manual_seed(3)
    for base, changing in ((5, (0, 1)), (6, (1, 2))):
        for _ in range(4):  # the first two compile for their sizes, and then there is a program for all
            sizes = [base, base + 1, base + 2]
            for i in changing:
                sizes[i] = choose.randint(3, 16)
            there = [x.to(device).requires_grad_(x.is_floating_point()) for x in make(*sizes)]
            here = [x.detach().cpu().requires_grad_(x.requires_grad) for x in there]
            ours, theirs = all_of(call(*there)), all_of(call(*here))
            for mine, want in zip(ours, theirs, strict=True):
                assert (mine.shape, mine.stride(), mine.dtype) == (want.shape, want.stride(), want.dtype)
                torch.testing.assert_close(mine.cpu(), want, rtol=1e-4, atol=1e-4)
            weights = [torch.rand(r.shape) for r in theirs]
            for results in (ours, theirs):
                total = sum(
                    (r * w.to(r.device)).sum() for r, w in zip(results, weights, strict=True) if r.requires_grad
                )
                if isinstance(total, Tensor):
                    total.backward()
            for mine, want in zip(there, here, strict=True):
                if want.grad is not None:
                    assert mine.grad is not None
                    torch.testing.assert_close(mine.grad.cpu(), want.grad, rtol=1e-3, atol=1e-3)
