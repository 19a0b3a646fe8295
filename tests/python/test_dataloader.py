"""Pinned memory and the DataLoader."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(autouse=True)
def _only_on_the_device(pjrt: object) -> None:
    """PyTorch pins memory for an accelerator; without one there is nothing to test."""


def data() -> TensorDataset:
    return TensorDataset(torch.arange(64.0).view(16, 4), torch.arange(16))


def test_a_tensor_is_pinned_and_stays_on_the_cpu() -> None:
    x = torch.ones(3)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert pinned.tolist() == [1.0] * 3
    assert pinned[1:].is_pinned()
    assert torch.empty(4, pin_memory=True).is_pinned()
    assert pinned.pin_memory() is pinned


def test_pinned_memory_is_aligned_to_64_bytes() -> None:
    assert all(torch.ones(n).pin_memory().data_ptr() % 64 == 0 for n in range(1, 40))


def test_a_device_tensor_cannot_be_pinned(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.ones(2, device=device).pin_memory()


def test_a_pinned_tensor_is_uploaded_without_blocking(device: torch.device) -> None:
    parts = []
    for value in range(200):
        pinned = torch.full((100,), float(value)).pin_memory()
        parts.append(pinned.to(device, non_blocking=True))
        del pinned
    assert torch.stack(parts)[:, 99].cpu().equal(torch.arange(200.0))


def test_a_download_into_pinned_memory_is_complete_after_synchronising(device: torch.device) -> None:
    pinned = torch.zeros(1000).pin_memory()
    pinned.copy_(torch.arange(1000.0, device=device), non_blocking=True)
    torch.accelerator.synchronize()
    assert pinned.equal(torch.arange(1000.0))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers: int, device: torch.device) -> None:
    loader = DataLoader(data(), batch_size=4, pin_memory=True, num_workers=workers)
    seen = []
    for images, labels in loader:
        assert images.is_pinned()
        assert labels.is_pinned()
        assert images.device.type == "cpu"
        seen.append(images.to(device, non_blocking=True))
    assert torch.cat(seen).cpu().equal(data().tensors[0])


def test_a_loader_with_workers_runs_after_the_device_was_used(device: torch.device) -> None:
    total = torch.ones(4, device=device)
    for images, _ in DataLoader(data(), batch_size=8, num_workers=2):
        total += images.to(device).sum(0)
    assert total.sum().item() == data().tensors[0].sum().item() + 4


def test_a_generator_of_the_cpu_shuffles_while_the_device_is_used(device: torch.device) -> None:
    def order() -> list[int]:
        loader = DataLoader(data(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1))
        return [int(label) for _, labels in loader for label in labels.to(device)]

    assert sorted(order()) == list(range(16))
    assert order() == order()


def test_a_default_device_does_not_disturb_a_loader(device: torch.device) -> None:
    with device:
        loader = DataLoader(data(), batch_size=16, shuffle=True, generator=torch.Generator(device))
        assert next(iter(loader))[0].shape == (16, 4)
