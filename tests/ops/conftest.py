"""``--board full`` looks at every sample of every cell, the normal run at a fixed subset."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from one_core import one_core
from ops import board, expected

one_core()

PARTS = 3
EXPECTED = expected.read() if expected.FILE.exists() else {}

# (entry, kind, dtype, what was found)
Settle = Callable[[str, str, torch.dtype, board.Outcome], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--board", choices=["normal", "full"], default="normal", help="how many samples of a cell")
    parser.addoption("--board-part", type=int, choices=range(PARTS), help="only every third entry")
    parser.addoption("--board-resume", default="", help="file of what has passed, which is left out and added to")
    parser.addoption("--board-results", default="", help="folder for what was found: input of tests.ops.expected")


class Progress:
    """Notes what has passed, so that a run that ended early goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            print(plain(report.nodeid), file=self.file, flush=True)


def plain(nodeid: str) -> str:
    return nodeid.rsplit("@", 1)[0] if "::" not in nodeid.rsplit("@", 1)[-1] else nodeid  # without xdist's group


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--board-resume")
    if path and not hasattr(config, "workerinput"):
        passed = Path(path)
        passed.touch()
        Path(f"{path}.before").write_text(passed.read_text())  # what all workers leave out
        config.pluginmanager.register(Progress(passed))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--board-resume") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # all had passed before


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
    if config.getoption("--board-resume"):
        passed = set(Path(f"{config.getoption('--board-resume')}.before").read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    for item in items if config.pluginmanager.hasplugin("xdist") else []:
        item.add_marker(pytest.mark.xdist_group(entry_of(item)))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where each call runs its own operator's program: that is what the board is about."""
    import torch_pjrt

    if os.environ.get("TORCH_PJRT_TEST_DEVICE"):
        pytest.skip("about torch_pjrt")
    torch_pjrt.set_flag("EAGER", os.environ.get("TORCH_PJRT_EAGER", "strict"))
    torch_pjrt.set_flag("SIZES", os.environ.get("TORCH_PJRT_SIZES", "exact"))
    return torch.device(torch_pjrt.device_name())


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Every sample, not a subset."""
    return bool(request.config.getoption("--board") == "full")


@pytest.fixture
def settle(request: pytest.FixtureRequest) -> Settle:
    """Compares what was found for a cell with ``expected.tsv``, or writes it down for ``--board-results``."""
    results = request.config.getoption("--board-results")

    def check(entry: str, kind: str, dtype: torch.dtype, found: board.Outcome) -> None:
        name = expected.name_of(dtype)
        if results:
            line = {"entry": entry, "kind": kind, "dtype": name, "state": found.state, "why": found.why}
            with (Path(results) / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            return
        state, reason = EXPECTED.get((entry, kind, name), ("no line in expected.tsv", ""))
        assert found.state == state, f"{found.why} (expected: {state}; {reason})"

    return check
