"""Tensors go to the device and back, in every dtype, layout and size, unchanged."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy
import pytest
import torch
from torch import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
NO_ARITHMETIC = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


def values(dtype: torch.dtype) -> Tensor:
    """Six numbers that every dtype holds exactly."""
    return torch.tensor([0, 1, 2, 3, 0, 5]).to(dtype)


def same(actual: Tensor, expected: Tensor) -> None:
    """The same bits and the same geometry, wherever they lie."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(bits(actual.cpu()), bits(expected.cpu()))


def bits(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES + NO_ARITHMETIC, ids=str)
def test_a_tensor_survives_the_round_trip(dtype: torch.dtype, device: torch.device, no_fallbacks: None) -> None:
    there = values(dtype).to(device)
    assert there.device.type == device.type
    same(there, values(dtype))
    same(there.clone(), values(dtype))


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_every_dtype_converts_to_every_other(
    source: torch.dtype, target: torch.dtype, device: torch.device, no_fallbacks: None
) -> None:
    expected = values(source).to(target)
    same(values(source).to(device).to(target), expected)
    same(torch.zeros(6, dtype=target, device=device).copy_(values(source)), expected)
    same(torch.zeros(6, dtype=target).copy_(values(source).to(device)), expected)


def test_conversion_truncates_and_wraps_as_on_the_cpu(device: torch.device) -> None:
    numbers = torch.tensor([-2.7, -0.5, 0.5, 2.7, 100.9, -100.9])
    for dtype in (torch.int8, torch.int32, torch.int64, torch.bool):
        same(numbers.to(device).to(dtype), numbers.to(dtype))
    wide = torch.tensor([300, -1, 1 << 40, -(1 << 33) - 5])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        same(wide.to(device).to(dtype), wide.to(dtype))


def test_nan_infinity_and_signed_zero_survive(device: torch.device) -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40, 3.4e38])
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        same(special.to(dtype).to(device), special.to(dtype))


LAYOUTS = {
    "transposed": lambda t: t.t(),
    "stepped": lambda t: t[:, 1::2],
    "offset": lambda t: t[1:, 2:],
    "column": lambda t: t[:, 3],
    "permuted": lambda t: t.reshape(2, 2, 6).permute(2, 0, 1),
    "expanded": lambda t: t[:, :1].expand(4, 5),
    "expanded scalar": lambda t: t[0, 0].expand(3, 2),
    "diagonal": lambda t: t.diagonal(1),
    "windows": lambda t: t.unfold(1, 3, 2),
    "reshaped": lambda t: t.reshape(3, 8),
    "single": lambda t: t[2, 3],
    "empty": lambda t: t[:, :0],
}


def grid() -> Tensor:
    return torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_strided_tensor_is_uploaded_as_it_looks(layout, device: torch.device) -> None:
    source = layout(grid())
    there = source.to(device, copy=True)
    same(there, source)
    expected = source.clone(memory_format=torch.preserve_format)
    assert there.stride() == expected.stride()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_strided_view_is_downloaded_as_it_looks(layout, device: torch.device) -> None:
    view, expected = layout(grid().to(device)), layout(grid())
    assert (view.stride(), view.storage_offset()) == (expected.stride(), expected.storage_offset())
    same(view, expected)
    same(view.contiguous(), expected)
    same(view.to(torch.int32), expected.to(torch.int32))


@pytest.mark.parametrize("layout", [k for k in LAYOUTS if not k.startswith(("expanded", "windows"))])
@pytest.mark.parametrize("direction", ["up", "down", "across"])
def test_a_copy_into_a_strided_view_writes_only_the_view(layout: str, direction: str, device: torch.device) -> None:
    view = LAYOUTS[layout]
    source = view(grid()).clone() + 100
    expected = grid()
    view(expected).copy_(source)
    base = grid() if direction == "down" else grid().to(device)
    view(base).copy_(source if direction == "up" else source.to(device))
    same(base, expected)


def test_a_copy_broadcasts_and_refuses_what_does_not_fit(device: torch.device) -> None:
    target = torch.zeros(2, 3, device=device)
    target.copy_(torch.tensor([1.0, 2.0, 3.0]))
    same(target, torch.tensor([[1.0, 2.0, 3.0]] * 2))
    with pytest.raises(RuntimeError, match=r"must match the (existing )?size|output with shape"):
        target.copy_(torch.zeros(4))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 2), ()], ids=str)
def test_empty_and_scalar_tensors_work(shape: tuple[int, ...], device: torch.device, no_fallbacks: None) -> None:
    there = torch.ones(shape, device=device)
    same(there, torch.ones(shape))
    same(there + 1, torch.ones(shape) + 1)
    same(there.sum(), torch.ones(shape).sum())
    same(torch.ones(shape).to(device), torch.ones(shape))
    same(there.to(torch.int32), torch.ones(shape).to(torch.int32))
    same(torch.cat([there.reshape(-1), there.reshape(-1)]), torch.ones(2 * there.numel()))


def test_channels_last_survives(device: torch.device) -> None:
    image = torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    there = image.to(device)
    assert there.is_contiguous(memory_format=torch.channels_last)
    same(there, image)
    assert (there + 1).stride() == (image + 1).stride()
    same(there.contiguous(), image.contiguous())


def test_conjugate_and_negative_bits_are_resolved_by_a_copy(device: torch.device) -> None:
    source = torch.tensor([1 + 2j, 3 - 4j])
    there = source.to(device)
    assert there.conj().is_conj()
    assert there.conj().cpu().resolve_conj().equal(source.conj().resolve_conj())
    assert there.conj().imag.cpu().resolve_neg().equal(source.conj().imag.resolve_neg())
    assert source.conj().to(device).cpu().resolve_conj().equal(source.conj().resolve_conj())


def test_a_non_blocking_upload_keeps_its_source(device: torch.device) -> None:
    parts = []
    for seed in range(500):
        source = torch.full((257,), float(seed))
        parts.append(source.to(device, non_blocking=True))
        del source
        torch.full((257,), -1.0)  # likely to take the freed memory
    assert torch.stack(parts)[:, 256].cpu().equal(torch.arange(500.0))


def test_an_upload_is_not_changed_by_later_writes_to_its_source(device: torch.device) -> None:
    source = torch.zeros(1000)
    there = source.to(device, copy=True)
    source.fill_(7)
    assert there.sum().item() == 0
    pinned_like = torch.zeros(1000)
    copy = torch.empty(1000, device=device)
    copy.copy_(pinned_like)
    pinned_like.fill_(7)
    assert copy.sum().item() == 0


def test_a_download_is_not_changed_by_later_writes_to_the_device(device: torch.device) -> None:
    there = torch.zeros(1000, device=device)
    here = torch.empty(1000)
    here.copy_(there, non_blocking=True)
    kept = there.cpu() if device.type != "cpu" else there.clone()
    there.fill_(3)
    torch.accelerator.synchronize() if device.type != "cpu" else None
    assert here.sum().item() == 0
    assert kept.sum().item() == 0


def test_to_the_same_device_and_dtype_is_the_same_tensor(device: torch.device) -> None:
    there = torch.ones(3, device=device)
    assert there.to(device) is there
    assert there.to(torch.float32) is there
    assert there.to(device, copy=True) is not there


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_arrays_make_the_round_trip(order: str, device: torch.device) -> None:
    array = numpy.asarray(numpy.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), order=order)
    there = torch.from_numpy(array).to(device)
    numpy.testing.assert_array_equal(there.cpu().numpy(), array)
    numpy.testing.assert_array_equal(numpy.asarray(torch.as_tensor(array, device=device).cpu()), array)
    numpy.testing.assert_array_equal(torch.tensor(array, device=device).cpu().numpy(), array)


def test_a_device_tensor_refuses_to_become_numpy(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("the CPU's tensors do become numpy arrays")
    with pytest.raises(TypeError, match=r"can't convert .* device type tensor to numpy"):
        torch.ones(2, device=device).numpy()


@pytest.mark.usefixtures("strict")
def test_parameters_from_a_file_need_no_programs_of_their_own(
    pjrt: ModuleType, device: torch.device, tmp_path: Path
) -> None:
    model = torch.nn.Linear(6, 5).to(device)
    x = torch.rand(3, 6, device=device)
    for _ in range(3):
        expected = model(x).tolist()
    torch.save(model.state_dict(), tmp_path / "state")
    model.load_state_dict(torch.load(tmp_path / "state", map_location=device))
    before = pjrt.stats()["compiles"]
    assert model(x).tolist() == expected
    assert pjrt.stats()["compiles"] - before <= 2  # the conversions, which run before
    after = pjrt.stats()["compiles"]
    model.load_state_dict(torch.load(tmp_path / "state", map_location=device))
    assert model(x).tolist() == expected
    assert pjrt.stats()["compiles"] == after
