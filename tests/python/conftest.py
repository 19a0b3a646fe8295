"""The device under test, and what many tests ask of it.

``TORCH_PJRT_TEST_DEVICE=cpu`` runs the same tests on PyTorch's CPU device: a check of the tests
themselves. Those that are about the device's own machinery are then skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))  # for `models`

from one_core import one_core  # noqa: E402

one_core()

OTHER_DEVICE = os.environ.get("TORCH_PJRT_TEST_DEVICE")


def device_name() -> str:
    """The name of the device under test, without an index."""
    if OTHER_DEVICE:
        return OTHER_DEVICE
    import torch_pjrt

    return torch_pjrt.device_name()


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(device_name())


@pytest.fixture(scope="session")
def pjrt() -> ModuleType:
    """The package ``torch_pjrt``; a test that asks for it is skipped on another device."""
    if OTHER_DEVICE:
        pytest.skip(f"about torch_pjrt, and the device under test is {OTHER_DEVICE}")
    import torch_pjrt

    return torch_pjrt


@pytest.fixture(scope="session")
def module(pjrt: ModuleType) -> ModuleType:
    """The module ``torch.<device name>``."""
    return getattr(torch, pjrt.device_name())


@pytest.fixture
def strict() -> Iterator[None]:
    """Each call runs when it is made: for tests of what one call costs, or of equal bits whatever is fused."""
    if OTHER_DEVICE:
        yield
        return
    import torch_pjrt

    with torch_pjrt.eager("strict"):
        yield


@pytest.fixture
def exact_sizes() -> Iterator[None]:
    """Calls whose sizes change have a program for each size: for tests with thousands of random sizes."""
    if OTHER_DEVICE:
        yield
        return
    import torch_pjrt

    torch_pjrt.set_flag("SIZES", "exact")
    yield
    torch_pjrt.set_flag("SIZES", "bounded")


@pytest.fixture
def no_fallbacks() -> Iterator[None]:
    """Fails the test when one of its operators was left to the CPU."""
    if OTHER_DEVICE:
        yield
        return
    import torch_pjrt

    before = dict(torch_pjrt.fallbacks())
    yield
    after = torch_pjrt.fallbacks()
    new = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    assert not new, f"left to the CPU: {new}"


@pytest.fixture(scope="session")
def run_python(pjrt: ModuleType) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a process of its own, where ``D`` is the device's name and torch is imported.

    Keyword arguments are environment variables. The output is text; nothing is checked.
    """
    name = pjrt.device_name()

    def run(code: str, *, check: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        env: dict[str, Any] = {**os.environ, **environment}
        done = subprocess.run(
            [sys.executable, "-c", f"import torch\nD = {name!r}\n{code}"],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
