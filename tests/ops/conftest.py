"""``--board full`` looks at every sample of every cell, the normal run at a fixed subset."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--board", choices=["normal", "full"], default="normal", help="how many samples of a cell")
    parser.addoption("--board-results", default="", help="folder for what was found: input of tests.ops.expected")


@pytest.fixture(scope="session")
def device() -> torch.device:
    import torch_pjrt

    if os.environ.get("TORCH_PJRT_TEST_DEVICE"):
        pytest.skip("about torch_pjrt")
    return torch.device(torch_pjrt.device_name())
