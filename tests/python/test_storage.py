"""Storages are real: sizes, sharing, resizing, save and load."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn


def saved(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_a_storage_has_its_true_size(device: torch.device) -> None:
    x = torch.zeros(3, 5, device=device)
    assert x.untyped_storage().nbytes() == 60
    assert x[1:].untyped_storage().nbytes() == 60
    assert x.untyped_storage().device.type == device.type


def test_different_tensors_have_different_pointers(device: torch.device) -> None:
    tensors = [torch.zeros(4, device=device) for _ in range(100)] + [torch.empty(4, device=device) for _ in range(100)]
    pointers = {tensor.data_ptr() for tensor in tensors}
    assert len(pointers) == 200
    assert 0 not in pointers


def test_a_pointer_stays_when_the_contents_change(device: torch.device) -> None:
    x = torch.zeros(4, device=device)
    before = x.data_ptr()
    x.add_(1).mul_(2)
    x[1] = 5
    x.copy_(torch.ones(4))
    assert x.data_ptr() == before


def test_a_view_points_behind_its_base(device: torch.device) -> None:
    x = torch.zeros(4, 3, device=device)
    assert x[2].data_ptr() - x.data_ptr() == 24
    assert x[2].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_an_empty_tensor_has_no_pointer(device: torch.device) -> None:
    assert torch.empty(0, device=device).data_ptr() == 0


def test_a_storage_shrinks_to_nothing_and_grows_again(device: torch.device) -> None:
    x = torch.ones(4, device=device)
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    assert x.shape == (4,)
    storage.resize_(16)
    assert storage.nbytes() == 16
    x.fill_(3)
    assert x.tolist() == [3.0] * 4


def test_growing_a_storage_keeps_what_it_held(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    x.untyped_storage().resize_(32)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    y = torch.empty(0, device=device).set_(x.untyped_storage(), 0, (8,), (1,))
    y[4:] = 9
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0]


def test_resizing_a_tensor_keeps_the_front(device: torch.device) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)
    x.resize_(4)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    x.resize_(3, 4)
    assert x.shape == (3, 4)
    assert x.flatten()[:6].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_resizing_to_the_same_size_keeps_the_strides(device: torch.device) -> None:
    x = torch.arange(12.0, device=device)[1::2]
    x.resize_(6)
    assert x.stride() == (2,)
    assert x.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    y = torch.arange(6.0, device=device).reshape(2, 3).t()
    y.resize_(3, 2, memory_format=torch.contiguous_format)
    assert y.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_set_makes_two_tensors_share(device: torch.device) -> None:
    x = torch.arange(6.0, device=device)
    y = torch.empty(0, device=device)
    y.set_(x)
    y[0] = 7
    assert x[0].item() == 7
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert y.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    y.fill_(0)
    assert x.tolist() == [7.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_set_without_arguments_empties(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    x.set_()
    assert x.numel() == 0


def test_data_shares_with_its_tensor_until_it_is_assigned(device: torch.device) -> None:
    x = torch.zeros(10, device=device)
    y = x.view(2, 5)
    x.data.add_(1)
    assert y.sum().item() == 10
    x.data = x.data + 1
    assert x.sum().item() == 20
    assert y.sum().item() == 10


def test_data_can_be_assigned_a_part_of_itself(device: torch.device) -> None:
    x = torch.arange(80.0, device=device)
    x.data = x.data[:10]
    assert x.shape == (10,)
    assert x.sum().item() == 45


def test_data_may_move_between_devices(device: torch.device) -> None:
    parameter = nn.Parameter(torch.arange(3.0))
    parameter.data = parameter.data.to(device)
    assert parameter.device.type == device.type
    assert parameter.tolist() == [0.0, 1.0, 2.0]
    parameter.data = parameter.data.cpu()
    assert parameter.device.type == "cpu"


def test_a_storage_is_cloned_copied_and_compared(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    twin = x.untyped_storage().clone()
    assert twin.data_ptr() != x.untyped_storage().data_ptr()
    x.fill_(0)
    assert torch.empty(0, device=device).set_(twin, 0, (4,), (1,)).tolist() == [0.0, 1.0, 2.0, 3.0]
    here = twin.cpu()
    assert here.device.type == "cpu"
    assert here.tolist() == torch.arange(4.0).untyped_storage().tolist()
    there = torch.UntypedStorage(16, device=device)
    there.copy_(here)
    assert there.cpu().tolist() == here.tolist()


def test_a_storage_knows_its_location(device: torch.device, pjrt: ModuleType) -> None:
    storage = torch.UntypedStorage(4, device=device)
    assert torch.serialization.location_tag(storage) == f"{device.type}:0"
    restored = torch.serialization.default_restore_location(torch.UntypedStorage(4), f"{device.type}:0")
    assert restored.device.type == device.type


@pytest.mark.parametrize("location", [None, "cpu", "device", "callable", "dict"])
def test_a_saved_tensor_is_loaded_where_it_is_wanted(location: str | None, device: torch.device) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)
    where: Any = {
        None: None,
        "cpu": "cpu",
        "device": device,
        "callable": lambda storage, _: storage,
        "dict": {str(x.device): "cpu"},
    }[location]
    y = torch.load(saved(x), map_location=where, weights_only=location not in ("callable",))
    assert y.device.type == (device.type if location in (None, "device") else "cpu")
    assert y.cpu().equal(x.cpu())


def test_a_tensor_saved_on_the_cpu_is_loaded_on_the_device(device: torch.device) -> None:
    y = torch.load(saved(torch.ones(3)), map_location=device)
    assert y.device.type == device.type
    assert y.tolist() == [1.0] * 3


def test_saved_views_still_share_after_loading(device: torch.device) -> None:
    base = torch.zeros(6, device=device)
    base, view = torch.load(saved([base, base.view(2, 3)[1]]))
    base.fill_(4)
    assert view.tolist() == [4.0] * 3


def test_a_state_dict_makes_the_round_trip(device: torch.device) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(2, 3, device=device)).sum().backward()
    optimizer.step()
    file = saved({"network": network.state_dict(), "optimizer": optimizer.state_dict()})
    state = torch.load(file, map_location="cpu")
    twin = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    twin.load_state_dict(state["network"])
    for mine, theirs in zip(twin.state_dict().values(), network.state_dict().values(), strict=True):
        assert mine.cpu().equal(theirs.cpu())
    again = torch.optim.Adam(twin.parameters())
    again.load_state_dict(state["optimizer"])
    assert again.state[twin[0].weight]["exp_avg"].device.type == device.type


def test_a_file_from_the_device_is_read_without_the_device(
    tmp_path: Path, device: torch.device, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0, device=device), path)
    code = f"print(torch.load({str(path)!r}, map_location='cpu').tolist())"
    done = run_python(code, check=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "[0.0, 1.0, 2.0]\n"


def test_a_memory_mapped_file_is_loaded_on_the_device(tmp_path: Path, device: torch.device) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0), path)
    assert torch.load(path, map_location=device, mmap=True).tolist() == [0.0, 1.0, 2.0]
