"""``--board full`` looks at every sample of every cell, the normal run at a fixed subset."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)

PARTS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--board", choices=["normal", "full"], default="normal", help="how many samples of a cell")
    parser.addoption("--board-part", type=int, choices=range(PARTS), help="only every third cell")
    parser.addoption("--board-results", default="", help="folder for what was found: input of tests.ops.expected")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--board-part")
    if part is not None:
        config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % PARTS != part])
        items[:] = items[part::PARTS]


@pytest.fixture(scope="session")
def device() -> torch.device:
    import torch_pjrt

    if os.environ.get("TORCH_PJRT_TEST_DEVICE"):
        pytest.skip("about torch_pjrt")
    return torch.device(torch_pjrt.device_name())
