"""Indexing, scatter, gather and embeddings where other devices were wrong; each test links the report."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor, nn
from torch.nn import functional

OTHER_DEVICE = os.environ.get("TORCH_PJRT_TEST_DEVICE")
NUMBERS = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]

WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "assignment": lambda y, i: y.__setitem__(i, 1.0),
    "index_put_": lambda y, i: y.index_put_((i,), torch.ones(1, device=y.device), accumulate=True),
    "index_copy_": lambda y, i: y.index_copy_(0, i, torch.ones(1, device=y.device)),
    "index_add_": lambda y, i: y.index_add_(0, i, torch.ones(1, device=y.device)),
    "index_fill_": lambda y, i: y.index_fill_(0, i, 1.0),
    "index_reduce_": lambda y, i: y.index_reduce_(0, i, torch.ones(1, device=y.device), "amax"),
    "scatter_": lambda y, i: y.scatter_(0, i, 1.0),
    "scatter_add_": lambda y, i: y.scatter_add_(0, i, torch.ones(1, device=y.device)),
    "scatter_reduce_": lambda y, i: y.scatter_reduce_(0, i, torch.ones(1, device=y.device), "amax"),
    "put_": lambda y, i: y.put_(i, torch.ones(1, device=y.device)),
}
# Counted from the end by these, and out of range for the others.
FROM_THE_END = {"assignment", "index_put_", "index_fill_", "put_"}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_past_the_end_of_a_view_raises_and_leaves_the_base(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/111669, https://github.com/pytorch/pytorch/issues/189968
    for index in (8, 5, -6 if name in FROM_THE_END else -1):
        base = torch.zeros(64, device=device)
        with pytest.raises((IndexError, RuntimeError), match=r"(?i)out of (bounds|range)|IndexError"):
            WRITES[name](base[3:8], torch.tensor([index], device=device))
            torch.accelerator.synchronize() if device.type != "cpu" else None
        assert not base.any().item()


READS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "index": lambda y, i: y[i],
    "index_select": lambda y, i: y.index_select(0, i),
    "gather": lambda y, i: y.gather(0, i),
    "take": lambda y, i: y.take(i),
    "embedding": lambda y, i: functional.embedding(i, y.view(5, 1)),
    "embedding_bag": lambda y, i: functional.embedding_bag(
        i, y.view(5, 1), torch.zeros(1, dtype=i.dtype, device=i.device)
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_past_the_end_of_a_view_raises(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/144824
    for index in (5, 8, -6):
        base = torch.zeros(64, device=device)
        with pytest.raises(
            (IndexError, RuntimeError), match=r"(?i)out of (bounds|range)|IndexError|not in the valid range"
        ):
            READS[name](base[3:8], torch.tensor([index], device=device))
            torch.accelerator.synchronize() if device.type != "cpu" else None
    with pytest.raises((IndexError, RuntimeError)):
        nn.Embedding(10, 2).to(device)(torch.tensor([10], device=device)).cpu()


def test_a_class_out_of_range_is_refused(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/170507
    # PyTorch looks at the values only on the CPU; elsewhere it is the scatter that refuses them.
    for value, classes in ((8, 8), (-1, 8), (-1, -1), (-3, 2)):
        with pytest.raises((IndexError, RuntimeError), match=r"out of bounds|num_classes|Class values must be"):
            functional.one_hot(torch.tensor([value], device=device), classes).cpu()
    agree(lambda x: [functional.one_hot(x), functional.one_hot(x, 5)], device, torch.tensor([[0, 2], [1, 0]]))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_lands_on_one_place_is_added_up(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/torch-spyre/torch-spyre/issues/3638
    rows, source = torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(12).view(6, 2).to(dtype)

    def add_up(rows: Tensor, source: Tensor) -> list[Tensor]:
        zeros = torch.zeros(3, 2, dtype=source.dtype, device=source.device)
        wide = rows[:, None].expand(6, 2)
        return [
            zeros.index_add(0, rows, source),
            zeros.scatter_add(0, wide, source),
            zeros.index_put((rows,), source, accumulate=True),
            zeros.t().index_add(1, rows, source.t()).t(),
            zeros.index_put((wide, torch.arange(2, device=rows.device)), source, accumulate=True),
            *([] if source.is_complex() else [zeros.scatter_reduce(0, wide, source, "sum")]),
        ]

    for found in agree(add_up, device, rows, source):
        assert found.cpu().equal(torch.tensor([[6, 8], [10, 12], [14, 16]]).to(dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_index_add_scales_its_source(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/intel/torch-xpu-ops/issues/3530
    for alpha in (-2, 3, 0.5 if dtype.is_floating_point or dtype.is_complex else 1):
        agree(
            lambda x, i, s, a=alpha: x.index_add(0, i, s, alpha=a),
            device,
            torch.ones(3, dtype=dtype),
            torch.tensor([0, 0, 2]),
            torch.tensor([1, 2, 3]).to(dtype),
        )
    if dtype.is_floating_point:
        x, source, rows = normal(7, 4).to(dtype), normal(3000, 4, seed=1).to(dtype), torch.arange(3000) % 7
        exact = x.double().index_add(0, rows, source.double(), alpha=-2)
        ours, theirs = (
            x.to(d).index_add(0, rows.to(d), source.to(d), alpha=-2).cpu().double() - exact for d in (device, "cpu")
        )
        assert ours.abs().max() <= theirs.abs().max() + torch.finfo(dtype).eps * exact.abs().max()


def test_a_smaller_index_is_not_broadcast(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/48214
    index, source = torch.tensor([[0, 1, 1]]), torch.arange(1.0, 7).view(2, 3)
    found = agree(
        lambda i, s: [
            torch.zeros(2, 3, device=s.device).scatter_add(1, i, s),
            torch.zeros(2, 3, device=s.device).scatter(1, i[:, :2], s),
            torch.zeros(2, 3, device=s.device).scatter(1, i, 7.0),
            torch.zeros(2, 3, device=s.device).scatter_reduce(1, i, s, "amax"),
            torch.zeros(2, 3, device=s.device).scatter_add(0, i[:, 1:], s),
            s.gather(1, i),
            s.gather(0, i[:, :2]),
        ],
        device,
        index,
        source,
    )
    assert found[0].tolist() == [[1, 5, 0], [0, 0, 0]]


def test_an_index_made_of_a_range(device: torch.device) -> None:
    # https://github.com/pytorch/xla/issues/9644
    agree(
        lambda m: [
            m[torch.arange(2, device=m.device), [1, 0]],
            m[torch.arange(2), torch.tensor([1, 0])],
            m[torch.arange(2, device=m.device)[:, None], torch.arange(2, device=m.device)],
            m[:, torch.arange(1, -1, -1, device=m.device)],
        ],
        device,
        torch.arange(4).view(2, 2),
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_obey_every_option(mode: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/190061, https://github.com/pytorch/pytorch/issues/190060
    # https://github.com/pytorch/xla/issues/2215
    weight = normal(6, 3).requires_grad_()
    ids = torch.tensor([1, 1, 5, 0, 1, 3])
    for offsets, last in (([0, 2, 2], False), ([0, 2, 2, 6], True), ([0], False)):
        for options in ({}, {"padding_idx": 1}):
            agree(
                lambda w, i, o, last=last, options=options: functional.embedding_bag(
                    i, w, o, mode=mode, include_last_offset=last, **options
                ),
                device,
                weight,
                ids,
                torch.tensor(offsets),
            )
    agree(lambda w, i: functional.embedding_bag(i.view(2, 3), w, mode=mode), device, weight, ids)
    if mode == "sum":
        weights = normal(6, seed=3).requires_grad_()
        agree(
            lambda w, i, o, p: functional.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
            device,
            weight,
            ids,
            torch.tensor([0, 2]),
            weights,
        )


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}, {"max_norm": 1.0}], ids=str)
def test_embeddings_obey_every_option_at_every_width(options: dict[str, object], device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/101198
    for width in (36, 36, 48):
        agree(
            lambda w, i: functional.embedding(i, w * 1 if "max_norm" not in options else w.detach(), **options),
            device,
            normal(5, width).requires_grad_(),
            torch.tensor([[1, 1, 4], [0, 1, 3]]),
        )


MASK = torch.tensor([[True, False, True], [False, False, True]])


def test_a_masked_fill_of_an_expanded_tensor(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/12230
    agree(lambda x, m: x.expand(2, 3).masked_fill(m, 5.0), device, torch.zeros(1, 3), MASK)


@pytest.mark.xfail(
    OTHER_DEVICE is None,
    strict=True,
    reason="the device refuses a write through an expanded tensor; the CPU warns that this is deprecated",
)
def test_a_masked_fill_of_an_expanded_tensor_in_place_warns(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/12230
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors is deprecated"):
        torch.zeros(1, 3, device=device).expand(2, 3).masked_fill_(MASK.to(device), 5.0)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("include", [True, False])
def test_scatter_reduces_every_way(reduce: str, include: bool, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/97093
    index = torch.tensor([[0, 2, 0, 1], [2, 0, 1, 1], [0, 0, 0, 2]])
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x, source = (normal(3, 4, seed=seed).mul(4).round().to(dtype) for seed in (0, 1))
        if dtype == torch.float32:
            x.requires_grad_()
            source.requires_grad_()
        for dim in (0, 1) if dtype == torch.float32 else (1,):
            agree(
                lambda x, i, s, d=dim: x.scatter_reduce(d, i, s, reduce, include_self=include), device, x, index, source
            )
        if reduce != "sum":
            agree(
                lambda x, i, s: x.detach().index_reduce(0, i, s.detach(), reduce, include_self=include),
                device,
                x,
                index[0, :3],
                source,
            )


POSITIONS: dict[str, Callable[[torch.device | str], object]] = {
    "a bag's index": lambda d: functional.embedding_bag(torch.tensor([[0, 5]]).to(d), torch.ones(3, 2).to(d)),
    "a class": lambda d: functional.multi_margin_loss(torch.ones(2, 3).to(d), torch.tensor([0, 3]).to(d)),
    "a negative class": lambda d: functional.multi_margin_loss(torch.ones(2, 3).to(d), torch.tensor([0, -1]).to(d)),
    "one of some classes": lambda d: functional.multilabel_margin_loss(
        torch.ones(1, 3).to(d), torch.tensor([[0, 3, -1]]).to(d)
    ),
    "a place in a plane": lambda d: functional.max_unpool2d(
        torch.ones(1, 1, 2, 2).to(d), torch.tensor([[[[0, 1], [2, 16]]]]).to(d), 2
    ),
    "a place in a volume": lambda d: functional.max_unpool3d(
        torch.ones(1, 1, 1, 2, 2).to(d), torch.tensor([[[[[0, 1], [2, 32]]]]]).to(d), 2
    ),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_position_out_of_range_is_the_cpus_error(name: str, device: torch.device) -> None:
    with pytest.raises(RuntimeError) as expected:
        POSITIONS[name]("cpu")
    with pytest.raises(RuntimeError) as got:
        POSITIONS[name](device)
    assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("values", [[1.0, 2, 3], [], [1.0]])
@pytest.mark.parametrize("mask", [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]])
def test_as_many_values_as_the_mask_has_places(mask: list[int], values: list[float], device: torch.device) -> None:
    """A row for each place, or one for all; PyTorch's own error for other numbers of rows."""

    def put(where: torch.device) -> object:
        x = torch.zeros(4, device=where)
        try:
            x[torch.tensor(mask, dtype=torch.bool, device=where)] = torch.tensor(values, device=where)
        except RuntimeError as e:
            return str(e)
        return x.tolist()

    assert put(device) == put(torch.device("cpu"))


def test_an_empty_index_of_another_rank(device: torch.device) -> None:
    """`gather` reads nothing with it and `scatter` writes nothing."""
    x = torch.arange(4.0, device=device).reshape(2, 2)
    none = torch.tensor((), dtype=torch.long, device=device)
    assert x.gather(0, none).shape == (0,)
    for made in (x.scatter(0, none, x), x.scatter_add(1, none, x), x.scatter(0, none, 7.0)):
        assert made.tolist() == x.tolist()
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            assert x.scatter_reduce(0, none, x, how, include_self=include_self).tolist() == x.tolist()


@pytest.mark.parametrize("source", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("mask", [[[1, 0], [1, 0]], [[1, 0]], [[0, 0], [0, 0]], [[1], [1]]])
def test_masked_scatter_of_too_few_elements(mask: list[list[int]], source: int, device: torch.device) -> None:
    def put(where: torch.device) -> object:
        x, flags = torch.zeros(2, 2, device=where), torch.tensor(mask, dtype=torch.bool, device=where)
        try:
            return x.masked_scatter(flags, torch.arange(1.0, source + 1, device=where)).tolist()
        except RuntimeError as e:
            return str(e)

    assert put(device) == put(torch.device("cpu"))


def test_fills_of_an_expanded_tensor(device: torch.device) -> None:
    places, everywhere = torch.tensor([2, 1], device=device), torch.ones(6, dtype=torch.bool, device=device)
    for fill in (
        lambda x: x.index_fill_(0, places, 2.0),
        lambda x: x.masked_fill_(everywhere, 2.0),
        lambda x: x.index_put_((places,), torch.tensor(2.0, device=device)),
    ):
        x = torch.ones(1, device=device).expand(6)
        fill(x)
        assert x.tolist() == [2.0] * 6
