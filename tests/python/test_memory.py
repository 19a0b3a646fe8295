"""Memory is accounted: what lives, the highest so far, per device; and it is given back."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest
import torch

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("pjrt")


def settle() -> None:
    gc.collect()
    torch.accelerator.synchronize()


def allocated() -> int:
    settle()
    return torch.accelerator.memory_allocated()


def test_a_tensor_is_counted_while_it_lives(device: torch.device) -> None:
    before = allocated()
    x = torch.ones(MIB // 4, device=device)
    assert MIB <= allocated() - before <= MIB + 4096
    del x
    assert allocated() == before


def test_a_view_counts_nothing_and_keeps_its_base(device: torch.device) -> None:
    before = allocated()
    x = torch.ones(MIB // 4, device=device)
    with_base = allocated()
    view = x[10:20]
    assert allocated() == with_base
    del x
    assert allocated() == with_base
    del view
    assert allocated() == before


def test_in_place_writes_do_not_grow_memory(device: torch.device) -> None:
    x = torch.ones(MIB // 4, device=device)
    x.add_(1)
    before, buffers = allocated(), torch.accelerator.memory_reserved()
    for _ in range(50):
        x.add_(1)
        x[5:100].mul_(2)
    assert allocated() <= before + 4096
    assert torch.accelerator.memory_reserved() <= buffers + 4096


def test_a_write_reuses_the_memory_of_what_it_replaces(device: torch.device) -> None:
    x = torch.ones(4 * MIB, device=device)
    x.add_(1)
    settle()
    torch.accelerator.reset_peak_memory_stats()
    start = torch.accelerator.max_memory_reserved()
    x[:100].add_(1)
    x.mul_(2)
    settle()
    assert torch.accelerator.max_memory_reserved() < start + 4 * MIB


def test_the_peak_is_kept_until_it_is_reset(device: torch.device) -> None:
    settle()
    torch.accelerator.reset_peak_memory_stats()
    start = torch.accelerator.max_memory_allocated()
    x = torch.ones(MIB, device=device)
    settle()
    del x
    settle()
    assert torch.accelerator.max_memory_allocated() >= start + 4 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() < start + MIB


def test_the_statistics_have_pytorchs_keys(device: torch.device) -> None:
    keep = torch.ones(MIB, device=device)
    settle()
    stats = torch.accelerator.memory_stats()
    for key in (
        "allocated_bytes.all.current",
        "allocated_bytes.all.peak",
        "allocated_bytes.all.allocated",
        "allocated_bytes.all.freed",
        "allocation.all.current",
        "active_bytes.all.current",
        "reserved_bytes.all.current",
        "num_ooms",
    ):
        assert key in stats, sorted(stats)
    assert stats["allocated_bytes.all.current"] >= keep.nbytes
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    torch.accelerator.reset_accumulated_memory_stats()


def test_free_and_total_memory_are_known(device: torch.device) -> None:
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_the_cache_can_be_emptied(device: torch.device) -> None:
    torch.accelerator.empty_cache()
    assert torch.ones(2, device=device).sum().item() == 2


def test_an_out_of_memory_error_is_counted(device: torch.device) -> None:
    before = torch.accelerator.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1 << 50, device=device)
    assert torch.accelerator.memory_stats()["num_ooms"] == before + 1


def test_an_uninitialised_tensor_may_cost_nothing_but_has_its_size(device: torch.device) -> None:
    x = torch.empty(MIB, device=device)
    assert x.untyped_storage().nbytes() == 4 * MIB
    x.fill_(2)
    assert allocated() >= 4 * MIB


def test_live_bytes_are_in_the_packages_statistics(device: torch.device, pjrt: ModuleType) -> None:
    keep = torch.ones(MIB, device=device)
    settle()
    assert pjrt.stats()["live_bytes"] >= keep.nbytes


def test_a_cycle_of_training_steps_leaks_nothing(device: torch.device) -> None:
    layer = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(layer.parameters())
    x = torch.ones(32, 64, device=device)

    def step() -> None:
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    for _ in range(5):
        step()
    before = allocated()
    for _ in range(100):
        step()
    assert allocated() == before


def test_an_exception_does_not_keep_memory(device: torch.device) -> None:
    def fails() -> None:
        keep = torch.ones(MIB, device=device)
        keep + torch.ones(3, device=device)

    before = allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            fails()
    assert allocated() - before < MIB
