"""Views share memory with their base: what is written through one is read through the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda t: t[1],
    "column": lambda t: t[:, 2],
    "block": lambda t: t[1:3, 2:5],
    "steps": lambda t: t[::2, 1::3],
    "transposed": lambda t: t.t(),
    "reshaped": lambda t: t.view(6, 4),
    "flat": lambda t: t.view(-1)[3:17:2],
    "permuted": lambda t: t.view(2, 2, 6).permute(2, 0, 1),
    "diagonal": lambda t: t.diagonal(1),
    "unsqueezed": lambda t: t.unsqueeze(1),
    "narrowed": lambda t: t.narrow(1, 2, 3),
    "second chunk": lambda t: t.chunk(3, dim=1)[1],
    "split": lambda t: t.split([1, 3])[1],
    "unbound": lambda t: t.unbind(1)[4],
    "as_strided": lambda t: t.as_strided((2, 3), (12, 2), 1),
    "element": lambda t: t[2, 3],
    "moved": lambda t: t.view(2, 2, 6).movedim(0, 2),
    "unflattened": lambda t: t.unflatten(1, (2, 3)),
    "swapped back": lambda t: t.t().view_as(t.t()).t()[1:],
    "detached": lambda t: t.detach()[0],
    "alias": lambda t: t.view_as(t),
}
READ_ONLY: dict[str, Callable[[Tensor], Tensor]] = {
    "expanded": lambda t: t[:, :1].expand(4, 3),
    "windows": lambda t: t.unfold(1, 3, 1),
    "overlapping as_strided": lambda t: t.as_strided((3, 3), (1, 1)),
}


PLACES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a row": lambda t, i: t[i],
    "a column": lambda t, i: t[:, i],
    "a narrow column": lambda t, i: t[:, i : i + 1],
    "an element": lambda t, i: t[i, 3 - i],
    "in the middle": lambda t, i: t.view(2, 2, 48)[:, i % 2],
    "in the middle, exchanged": lambda t, i: t.view(2, 2, 48).transpose(0, 2)[i],
    "of many parts": lambda t, i: t.view(4, 16, 3)[:, i],
    "in the middle, by steps": lambda t, i: t.view(2, 2, 48)[:, i % 2, ::2],
    "a window": lambda t, i: t[:, 6 * i : 6 * i + 5],
    "a window by steps": lambda t, i: t[:, 6 * i : 6 * i + 5 : 2],
    "a window of a flat tensor": lambda t, i: t.view(-1)[30 * i : 30 * i + 20],
    "of several": lambda t, i: t.view(2, 2, 3, 16)[i % 2, :, 1, i],
    "repeated": lambda t, i: t[:, i].expand(3, 4),
    "of complex numbers": lambda t, i: torch.view_as_complex(t.view(4, 24, 2))[:, i].real,
    "in bits": lambda t, i: t.view(torch.int32)[:, i],
    "wider": lambda t, i: t.view(torch.float64)[:, i],
}


def grid(device: torch.device | str = "cpu") -> Tensor:
    return torch.arange(24.0, device=device).reshape(4, 6)


@pytest.mark.parametrize("view", (VIEWS | READ_ONLY).values(), ids=(VIEWS | READ_ONLY).keys())
def test_a_view_reads_its_base(view: Callable[[Tensor], Tensor], device: torch.device, no_fallbacks: None) -> None:
    base, expected_base = grid(device), grid()
    seen, expected = view(base), view(expected_base)
    assert (seen.shape, seen.stride(), seen.storage_offset()) == (
        expected.shape,
        expected.stride(),
        expected.storage_offset(),
    )
    assert seen.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert seen._is_view()
    assert seen.cpu().equal(expected)
    base.mul_(2)
    assert seen.cpu().equal(expected * 2)
    assert (seen + 1).cpu().equal(expected * 2 + 1)
    assert seen.sum().item() == (expected * 2).sum().item()


WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda v: v.add_(100),
    "fill_": lambda v: v.fill_(-1),
    "zero_": lambda v: v.zero_(),
    "copy_": lambda v: v.copy_(torch.arange(v.numel()).view(v.shape) + 50.0),
    "out=": lambda v: torch.mul(v, 3, out=v),
    "mul_ by itself": lambda v: v.mul_(v),
    "item assignment": lambda v: v.__setitem__(..., 9.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_write_through_a_view_changes_only_its_part_of_the_base(
    view: Callable[[Tensor], Tensor],
    write: Callable[[Tensor], object],
    device: torch.device,
    no_fallbacks: None,
) -> None:
    base, expected = grid(device), grid()
    write(view(base))
    write(view(expected))
    assert base.cpu().equal(expected)


def test_two_overlapping_views_see_each_others_writes(device: torch.device) -> None:
    base = grid(device)
    left, right = base[:, :4], base[:, 2:]
    left.fill_(1)
    right.add_(1)
    assert left.cpu().tolist() == [[1.0, 1.0, 2.0, 2.0]] * 4
    assert base[0].tolist() == [1.0, 1.0, 2.0, 2.0, 5.0, 6.0]


def test_an_operand_may_overlap_the_result(device: torch.device) -> None:
    for run in (
        lambda t: t[1:].copy_(t[:-1].clone()),
        lambda t: t[:, 1:].add_(t[:, :1]),
        lambda t: t.view(-1)[:4].copy_(t.view(-1)[20:]),
    ):
        base, expected = grid(device), grid()
        run(base)
        run(expected)
        assert base.cpu().equal(expected)


def test_a_write_that_would_hit_one_place_twice_is_refused_as_on_the_cpu(device: torch.device) -> None:
    expanded = torch.zeros(1, 5, device=device).expand(3, 5)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        expanded[:, 2:].add_(2)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        expanded.copy_(torch.ones(3, 5, device=device))


def test_partly_overlapping_input_and_output_are_refused_as_on_the_cpu(device: torch.device) -> None:
    base = torch.arange(6.0, device=device)
    with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input tensor and the written"):
        torch.add(base[:-1], 1, out=base[1:])
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_view_outlives_its_base(device: torch.device) -> None:
    view = torch.arange(1000.0, device=device)[500:503]
    torch.zeros(1000, device=device)
    assert view.tolist() == [500.0, 501.0, 502.0]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.int32),
        (torch.int32, torch.float32),
        (torch.float32, torch.uint8),
        (torch.uint8, torch.float32),
        (torch.int64, torch.int32),
        (torch.int16, torch.int64),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.int16),
        (torch.complex64, torch.float32),
        (torch.bool, torch.uint8),
        (torch.uint8, torch.bool),
        (torch.int8, torch.uint8),
        (torch.float64, torch.int64),
    ],
    ids=str,
)
def test_a_dtype_view_sees_the_same_bytes(source: torch.dtype, target: torch.dtype, device: torch.device) -> None:
    here = torch.tensor([[1, 0, 1, 1, 0, 0, 1, 0]] * 2).to(source)
    there = here.to(device, copy=True)
    view, expected = there.view(target), here.view(target)
    assert (view.shape, view.stride()) == (expected.shape, expected.stride())
    assert view.cpu().equal(expected)
    view.zero_()
    assert there.cpu().equal(torch.zeros_like(here))


def test_a_write_through_a_dtype_view_changes_the_bytes_of_the_base(device: torch.device) -> None:
    here = torch.tensor([1.0, -2.0, 3.0])
    there = here.to(device, copy=True)
    for tensor in (here, there):
        tensor.view(torch.int32)[1:].bitwise_xor_(-(1 << 31))
    assert there.tolist() == here.tolist() == [1.0, 2.0, -3.0]


def test_a_dtype_view_of_a_strided_view_is_right(device: torch.device) -> None:
    here = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    there = here.to(device, copy=True)
    assert there[:, 2:4].view(torch.int64).cpu().equal(here[:, 2:4].view(torch.int64))
    assert there[::2, 2:4].view(torch.int16).cpu().equal(here[::2, 2:4].view(torch.int16))
    there[1:3, :2].view(torch.int16).fill_(1)
    here[1:3, :2].view(torch.int16).fill_(1)
    assert there.cpu().equal(here)


def test_complex_numbers_and_their_parts_share_memory(device: torch.device) -> None:
    here = torch.tensor([1 + 2j, 3 - 4j, 0.5j])
    there = here.to(device, copy=True)
    for tensor in (here, there):
        torch.view_as_real(tensor)[1:, 0].add_(10)
        tensor.imag.mul_(2)
        tensor.real[0] = -7
    assert there.cpu().equal(here)
    pairs = torch.arange(6.0, device=device).reshape(3, 2)
    numbers = torch.view_as_complex(pairs)
    numbers[1] = 8 - 9j
    assert pairs[1].tolist() == [8.0, -9.0]
    assert numbers.conj().resolve_conj().imag.tolist() == [-1.0, 9.0, -5.0]


INDEXED_WRITES: dict[str, Callable[[Tensor], object]] = {
    "an integer": lambda t: t.__setitem__(1, 5.0),
    "a negative integer": lambda t: t.__setitem__((-1, -2), 5.0),
    "a list": lambda t: t.__setitem__([0, 2], 5.0),
    "two lists": lambda t: t.__setitem__(([0, 2], [1, 5]), 5.0),
    "a tensor": lambda t: t.__setitem__(torch.tensor([3, 1], device=t.device), torch.ones(6, device=t.device)),
    "a mask": lambda t: t.__setitem__(t > 10, -1.0),
    "a slice of columns": lambda t: t.__setitem__((slice(None), slice(1, 4)), torch.ones(3, device=t.device)),
    "a tensor from the CPU": lambda t: t.__setitem__((slice(None), 0), torch.tensor([9.0, 8.0, 7.0, 6.0])),
    "rows through a view": lambda t: t.t().__setitem__([1, 3], 2.0),
    "an added dimension": lambda t: t.__setitem__((None, 2), 3.0),
}


@pytest.mark.parametrize("write", INDEXED_WRITES.values(), ids=INDEXED_WRITES.keys())
def test_an_assignment_by(write: Callable[[Tensor], object], device: torch.device) -> None:
    base, expected = grid(device), grid()
    write(base)
    write(expected)
    assert base.cpu().equal(expected)


def test_out_of_the_right_size_is_written_where_it_lies(device: torch.device) -> None:
    storage = torch.zeros(9, device=device)
    out = storage.as_strided((2, 2), (4, 1), 1)
    torch.add(torch.ones(2, 2, device=device), 1, out=out)
    assert out.stride() == (4, 1)
    assert storage.tolist() == [0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0]


def test_out_of_a_wrong_size_warns_and_grows(device: torch.device) -> None:
    out = torch.zeros(3, device=device)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(2, 2, device=device), 1, out=out)
    assert out.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    empty = torch.empty(0, device=device)
    torch.mm(torch.ones(2, 3, device=device), torch.ones(3, 2, device=device), out=empty)
    assert empty.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_gradients_flow_through_views_and_in_place_writes(device: torch.device) -> None:
    def run(where: torch.device | str) -> tuple[Tensor, Tensor]:
        x = grid().to(where).requires_grad_()
        y = x * 2
        y[:, 1].mul_(3)
        y.t()[2].copy_(x[:, 5] * 7)
        z = functional.pad(y.unfold(1, 3, 2).transpose(0, 1), (1, 1)).reshape(-1)
        (z * torch.arange(z.numel(), device=where)).sum().backward()
        assert x.grad is not None
        return z.detach().cpu(), x.grad.cpu()

    for actual, expected in zip(run(device), run("cpu"), strict=True):
        assert actual.equal(expected)


def test_version_counters_catch_a_stale_saved_tensor(device: torch.device) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y[0] = 5
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        z.backward()


@pytest.mark.parametrize("view", PLACES.values(), ids=PLACES.keys())
def test_a_loop_over_places_compiles_once(view: Callable[[Tensor, int], Tensor], device: torch.device) -> None:
    import torch_pjrt

    base, expected = torch.arange(192.0, device=device).reshape(4, 48), torch.arange(192.0).reshape(4, 48)
    one = torch.ones((), dtype=view(expected, 0).dtype)
    compiles = []
    for i in range(4):
        before = torch_pjrt.stats()["compiles"]
        read = view(base, i) * one.to(device)
        assert read.cpu().equal(view(expected, i) * one)
        if view(expected, i).is_contiguous() or 0 not in view(expected, i).stride():
            view(base, i).add_(one)
            view(expected, i).add_(one)
            view(base, i).copy_(view(base, 3 - i))
            view(expected, i).copy_(view(expected, 3 - i))
        assert base.cpu().equal(expected)
        compiles.append(torch_pjrt.stats()["compiles"] - before)
    assert compiles[3] == 0, compiles
