"""Sorting, selecting and counting where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_distinct_values_with_inverse_and_counts(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/104879, https://github.com/ultralytics/ultralytics/issues/12999
    everything = {"return_inverse": True, "return_counts": True}
    for x in (
        torch.tensor([[[0, 1]]]),
        torch.tensor([0]),
        torch.tensor([3, 1, 1, 2]),
        torch.tensor([], dtype=torch.int64),
    ):
        x = x.to(dtype)
        agree(lambda x: [x.unique(), x.unique(**everything), x.unique_consecutive(**everything)], device, x)
    x = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1], [1, 0, 1]]).to(dtype)
    for dim in (0, 1):
        agree(lambda x, d=dim: [x.unique(dim=d, **everything), x.unique_consecutive(dim=d, **everything)], device, x)
    agree(lambda x: [x.bincount(), x.bincount(minlength=6)], device, torch.tensor([3, 1, 1, 2]))


ORDERINGS: dict[str, Callable[[Tensor, int], object]] = {
    "topk": lambda x, d: x.topk(3, d) if x.shape[d] >= 3 else x.topk(1, d),
    "topk, smallest": lambda x, d: x.topk(1, d, largest=False),
    "sort": lambda x, d: x.sort(d),
    "sort, descending": lambda x, d: x.sort(d, descending=True),
    "argsort": lambda x, d: x.argsort(d),
    "kthvalue": lambda x, d: x.kthvalue(1, d),
    "median": lambda x, d: x.median(d),
    "cummax": lambda x, d: x.cummax(d),
    "max": lambda x, d: x.max(d),
    "argmin": lambda x, d: x.argmin(d),
    "flip": lambda x, d: x.flip(d),
    "roll": lambda x, d: x.roll(1, d),
    "gather": lambda x, d: x.gather(d, x.argsort(d)),
    "cumsum": lambda x, d: x.cumsum(d),
}


@pytest.mark.parametrize("name", ORDERINGS)
def test_six_dimensions_are_ordered_along_any(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/154890
    for dim in range(-1, 5):
        agree(lambda x, d=dim: ORDERINGS[name](x, d), device, torch.arange(24).view(1, 2, 1, 2, 1, 6))
    top = torch.arange(24, device=device).view(1, 2, 1, 2, 1, 6).topk(3)
    assert top.indices.flatten().tolist() == [5, 4, 3] * 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_values_may_come_in_any_order_but_each_once(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/27542, https://github.com/pytorch/pytorch/pull/155950
    x = (torch.arange(400) * 7919 % 5).view(4, 100).to(dtype)
    for descending in (False, True):
        agree(lambda x, d=descending: torch.sort(x, dim=1, descending=d, stable=True), device, x)
    calls: list[Callable[[Tensor], tuple[Tensor, Tensor]]] = [lambda x: x.sort(1), lambda x: x.sort(1, descending=True)]
    if dtype != torch.bool:
        calls += [lambda x: x.topk(70, 1), lambda x: x.topk(30, 1, largest=False)]
    for call in calls:
        (values, places), (expected, _) = (tuple(t.cpu() for t in call(x.to(where))) for where in (device, "cpu"))
        assert values.equal(expected)
        assert x.gather(1, places).equal(values)
        assert all(row.unique().numel() == row.numel() for row in places)
    calls = [lambda x: x.mode(1), lambda x: x.cummax(1), lambda x: x.max(1)]
    if dtype != torch.bool:
        calls += [lambda x: x.kthvalue(50, 1), lambda x: x.median(1)]
    for call in calls:
        (values, places), (expected, _) = (tuple(t.cpu() for t in call(x.to(where))) for where in (device, "cpu"))
        assert values.equal(expected)
        assert x.gather(1, places.view(4, -1)).equal(values.view(4, -1))


def test_a_million_positions_are_all_found(device: torch.device) -> None:
    # https://github.com/intel/torch-xpu-ops/issues/4396
    x = normal(1_000_000)
    there = x.to(device)
    mask = there > 0
    places, chosen = mask.nonzero(), there[mask]
    assert places.shape == (int(mask.sum().item()), 1)
    rebuilt = torch.zeros_like(there)
    rebuilt[places[:, 0]] = chosen
    assert rebuilt.cpu().equal(x.clamp(min=0))
    filled = torch.zeros_like(there)
    filled[mask] = chosen
    assert filled.equal(rebuilt)
    assert there.masked_select(mask).equal(chosen)
