"""Runs cells of the operator board with a chip's limits, and leaves every program in a folder.

    python tests/chips/collect.py FOLDER --plugin tpu --every 20

The programs run on the CPU plugin, so that their results are checked while they are collected; ``programs.py`` compiles
them for the chip. Prints a line for each cell that gives a wrong result, and exits 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

from torch_pjrt import _discovery
from torch_pjrt.spec import PluginSpec

ROOT = Path(__file__).parents[2]
ELSEWHERE = [
    "tests/ops/test_optimizers.py",
    "tests/python/test_numbers_are_inputs.py",
    "tests/python/test_recurrent.py",
]
SAMPLES = 2
FORWARD = ("float32", "bfloat16", "int64", "int32")


def run_cells(every: int, start: int) -> int:
    """In a process whose environment has the limits and the folder."""
    sys.path.insert(0, str(ROOT / "tests"))
    warnings.simplefilter("ignore")
    import torch

    import torch_pjrt
    from ops import board, expected

    torch.set_num_threads(1)
    device = torch.device(torch_pjrt.device_name())
    states = expected.read()
    wrong = 0
    for entry in list(board.ENTRIES)[start::every]:
        for kind, dtype in board.cells(entry):
            name = expected.name_of(dtype)
            if kind != "backward" and (kind != "forward" or name not in FORWARD):
                continue
            found = board.run(entry, kind, dtype, device, SAMPLES)
            state, _ = states.get((entry, kind, name), ("unknown", ""))
            # What a chip lacks is refused, which is no wrong number.
            if found.state == "wrong" and state != "wrong":
                print(f"{entry}, {kind}, {name}: {found.state}, expected {state}: {found.why}", flush=True)
                wrong += 1
    return 1 if wrong else 0


def collect(folder: Path, plugin: str, every: int, processes: int) -> int:
    """Each process takes a part of every n-th entry; returns the number of processes that found something wrong."""
    spec = _discovery.specs()[plugin]
    assert isinstance(spec, PluginSpec)
    folder.mkdir(parents=True, exist_ok=True)
    limits = ",".join(f"{name}={value}" for name, value in spec.capabilities.items())
    environment = {
        **os.environ,
        "TORCH_PJRT_DUMP": str(folder),
        "TORCH_PJRT_CAPABILITIES": limits,
        "TORCH_PJRT_EAGER": "strict",  # each operator's program by itself
    }
    command = [sys.executable, __file__, str(folder), "--cells", "--every", str(every * processes)]
    started = [subprocess.Popen([*command, "--start", str(every * part)], env=environment) for part in range(processes)]
    failed = sum(process.wait() != 0 for process in started)
    if every == 1:  # lists of tensors, recurrent cells and numbers of every kind, which the database has not
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), *ELSEWHERE]
        failed += subprocess.run(command, env=environment, cwd=ROOT).returncode != 0
        rest = [sys.executable, str(Path(__file__).with_name("rest.py"))]
        failed += subprocess.run(rest, env=environment).returncode != 0
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plugin", default="tpu")
    parser.add_argument("--every", type=int, default=1, help="only every n-th entry")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cells", action="store_true", help="what the processes do")
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    if given.cells:
        return run_cells(given.every, given.start)
    return collect(given.folder, given.plugin, given.every, given.processes)


if __name__ == "__main__":
    sys.exit(main())
