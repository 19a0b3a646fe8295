"""``--board full`` looks at every sample of every cell, the normal run at a fixed subset."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)

PARTS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--board", choices=["normal", "full"], default="normal", help="how many samples of a cell")
    parser.addoption("--board-part", type=int, choices=range(PARTS), help="only every third entry")
    parser.addoption("--board-results", default="", help="folder for what was found: input of tests.ops.expected")


def entry_of(item: pytest.Item) -> str:
    """What shares programs: all cells of an entry of the operator database."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("entry", item.name) if callspec else item.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cells of one entry run in one process, one after the other, so that each program is compiled once."""
    entries = list(dict.fromkeys(map(entry_of, items)))
    part = config.getoption("--board-part")
    if part is not None:
        entries = entries[part::PARTS]
        kept = set(entries)
        config.hook.pytest_deselected(items=[item for item in items if entry_of(item) not in kept])
        items[:] = [item for item in items if entry_of(item) in kept]
    for item in items if config.pluginmanager.hasplugin("xdist") else []:
        item.add_marker(pytest.mark.xdist_group(entry_of(item)))


@pytest.fixture(scope="session")
def device() -> torch.device:
    import torch_pjrt

    if os.environ.get("TORCH_PJRT_TEST_DEVICE"):
        pytest.skip("about torch_pjrt")
    return torch.device(torch_pjrt.device_name())
