"""Reductions and scans where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
LOW = [torch.float16, torch.bfloat16]
FLOATS = [*LOW, torch.float32, torch.float64]

REDUCTIONS: dict[str, Callable[..., object]] = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: x.prod(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "aminmax": lambda x, d: x.aminmax(dim=d),
    "max": lambda x, d: x.max(d),
    "min": lambda x, d: x.min(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "median": lambda x, d: x.median(d),
    "mode": lambda x, d: x.mode(d).values,
    "kthvalue": lambda x, d: x.kthvalue(2, d),
    "all": lambda x, d: (x > -1).all(d),
    "any": lambda x, d: (x > 1).any(d),
    "count_nonzero": lambda x, d: (x > 0).count_nonzero(d),
    "std": lambda x, d: x.std(d),
    "var_mean": lambda x, d: torch.var_mean(x, d),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "nansum": lambda x, d: x.nansum(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "cummax": lambda x, d: x.cummax(d),
    "cummin": lambda x, d: x.cummin(d),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d),
    "sort": lambda x, d: x.sort(d),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.view(5, 6).t(),
    "offset": lambda t: t.view(5, 6)[1:, 2:],
    "stepped": lambda t: t.view(5, 6)[::2, 1::2],
    "expanded": lambda t: t.view(5, 6)[:, :1].expand(5, 4),
    "permuted": lambda t: t.view(5, 3, 2).permute(2, 0, 1)[1],
    "overlapping": lambda t: t[3:].unfold(0, 5, 3),
}


# Those that give positions.
PLACED = {"argmax", "argmin", "kthvalue", "max", "median", "min", "sort"}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_follows_the_strides(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/124621, https://github.com/pytorch/pytorch/issues/94980
    for layout, view in LAYOUTS.items():
        for dim in (0, -1):
            if name in PLACED and (layout, dim) == ("expanded", -1):
                continue  # equal values have no order
            agree(lambda x, v=view, d=dim: REDUCTIONS[name](v(x), d), device, normal(30), rtol=1e-5, atol=1e-5)
    agree(
        lambda x: [x.view(5, 6).t()[2:].sum(), x.view(5, 6).t()[2:].amax(), x.view(5, 6).t()[2:].std()],
        device,
        normal(30),
    )


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
def test_counting_scans_give_int64(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/96614
    mask = (normal(1000, 2) > 0).to(dtype)
    found = agree(lambda x: [x.cumsum(0), x.cumsum(1), x.cumprod(0), x.sum(), x.sum(0), x.prod(1)], device, mask)
    assert all(t.dtype == torch.int64 for t in found)
    agree(
        lambda x: [x.cumsum(0, dtype=torch.int32), x.cumsum(0, dtype=torch.float32), x.sum(dtype=torch.int16)],
        device,
        mask,
    )


NAN = float("nan")


@pytest.mark.parametrize("length", [3, 33, 1000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_is_the_largest_and_the_smallest(dtype: torch.dtype, length: int, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/130295
    for where in (0, 1, length - 1):
        x = normal(length, dtype=dtype)
        x[where] = NAN
        found = agree(
            lambda x: [
                x.max(),
                x.min(),
                x.argmax(),
                x.argmin(),
                x.max(0),
                x.min(0),
                x.amax(),
                x.amin(),
                x.aminmax(),
                x.cummax(0),
                x.cummin(0),
                x.median(),
                x.median(0).values,
                x.sum(),
                x.topk(2).values,
                x.sort().values,
            ],
            device,
            x,
        )
        assert found[0].isnan() and found[1].isnan()
        assert found[2].item() == found[3].item() == where
    both = torch.tensor([3, NAN, 1, NAN, 5], dtype=dtype)
    agree(lambda x: [x.argmax(), x.max(0), x.nanmedian(), x.nansum(), x.nanmean(), x.isnan().any()], device, both)


@pytest.mark.parametrize("correction", [None, 0, 1, 2, 0.5])
def test_deviations_know_their_correction(correction: float | None, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/119663
    x = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 9.0]])
    for dim in (None, 0, 1, (0, 1)):
        for keep in (False, True):
            options = {"dim": dim, "keepdim": keep, "correction": correction}
            agree(
                lambda x, o=options: [
                    torch.std(x, **o),
                    torch.var(x, **o),
                    torch.std_mean(x, **o),
                    torch.var_mean(x, **o),
                ],
                device,
                x,
            )
    agree(lambda x: [torch.std_mean(x), x.std(), x.var(unbiased=False), x.std(1, unbiased=True)], device, x)
    std, mean = torch.std_mean(x[0].to(device))
    assert std.item() == pytest.approx(1.5275, abs=1e-4)
    assert mean.item() == pytest.approx(2.3333, abs=1e-4)


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "cumsum": lambda x: x.cumsum(0),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "norm": lambda x: x.norm(),
    "var": lambda x: x.var(),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumprod": lambda x: (x / 64).exp().cumprod(0),
    "softmax": lambda x: x.softmax(0),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_long_sums_of_low_precision_are_as_exact_as_on_the_cpu(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    # https://github.com/tensorflow/tensorflow/issues/115731
    x = normal(10_000, dtype=dtype)
    exact = SUMS[name](x.double())
    ours, theirs = (SUMS[name](x.to(where)).cpu().double() - exact for where in (device, "cpu"))
    rounding = torch.finfo(dtype).eps / 2 * exact.abs().max()
    assert ours.abs().max() <= theirs.abs().max() + rounding


def test_reductions_of_nothing(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/137406
    def along(dim: int) -> Callable[[Tensor], list[object]]:
        return lambda x: [
            *(x.sum(dim), x.prod(dim), x.mean(dim), x.std(dim), x.logsumexp(dim), x.all(dim), x.any(dim)),
            *(x.cumsum(dim), x.sort(dim), x.softmax(dim), x.nansum(dim), x.count_nonzero(dim)),
        ]

    agree(along(0), device, torch.empty(0, 3))
    agree(along(1), device, torch.empty(0, 3))
    agree(
        lambda x: [x.sum(), x.prod(), x.mean(), x.norm(), x.amax(1), x.argmax(1), x.max(1)], device, torch.empty(0, 3)
    )
