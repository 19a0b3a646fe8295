"""The operator board on a chip that lacks much: nothing may be wrong, and what is refused is on a list.

    python tests/chips/suite.py neuron           compares with refused_cells.tsv
    python tests/chips/suite.py neuron --write   rewrites this profile's part of it

Forward, two samples of each cell.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
LIST = HERE / "refused_cells.tsv"
COLUMNS = ("profile", "entry", "dtype", "message")
DTYPES = {
    "tpu": ("float32", "int64", "bool"),
    "neuron": ("float32", "int64", "bool"),
    "slim": ("float32", "int32", "bool"),
}
SAMPLES = 2


def run_cells(profile: str, start: int, step: int) -> int:
    """A part of the entries, in a process behind the fake plugin; a line of JSON for each cell that does not agree."""
    warnings.simplefilter("ignore")
    import torch

    import torch_pjrt
    from ops import board, expected

    torch.set_num_threads(1)
    device = torch.device(torch_pjrt.device_name())
    states = expected.read()
    for entry in list(board.ENTRIES)[start::step]:
        for kind, dtype in board.cells(entry):
            name = expected.name_of(dtype)
            if kind != "forward" or name not in DTYPES[profile]:
                continue
            found = board.run(entry, kind, dtype, device, SAMPLES)
            listed = states.get((entry, kind, name), ("", ""))[0]
            if found.state in ("wrong", "unsupported") and found.state != listed:
                message = re.sub(r", at \S+:\d+$", "", found.why)  # our own line in the board
                cell = {"entry": entry, "dtype": name, "state": found.state, "message": message}
                print(json.dumps(cell), flush=True)
    return 0


def run_profile(profile: str, processes: int) -> list[dict[str, str]]:
    from chips import profiles

    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **profiles.environment(profile), "TORCH_PJRT_EAGER": "strict", "PYTHONPATH": path}
    command = [sys.executable, __file__, profile, "--cells"]
    started = [
        subprocess.Popen(
            [*command, "--start", str(part), "--step", str(processes)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(processes)
    ]
    cells = []
    for process in started:
        out, _ = process.communicate()
        cells += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if process.returncode:
            cells.append({"entry": "the process", "dtype": "", "state": "wrong", "message": f"{process.returncode}"})
    return sorted(cells, key=lambda c: (c["entry"], c["dtype"]))


def read() -> list[dict[str, str]]:
    with LIST.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("profile", choices=[*DTYPES])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cells", action="store_true", help="what the processes do")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    if given.cells:
        return run_cells(given.profile, given.start, given.step)
    cells = run_profile(given.profile, given.processes)
    wrong = [c for c in cells if c["state"] == "wrong"]
    refused = [c for c in cells if c["state"] == "unsupported"]
    for cell in wrong:
        print(f"{cell['entry']}, {cell['dtype']}: WRONG: {cell['message'][:300]}")
    others = [row for row in read() if row["profile"] != given.profile]
    mine = [{"profile": given.profile, **{k: c[k] for k in COLUMNS[1:]}} for c in refused]
    if given.write:
        with LIST.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows([*others, *mine])
    listed = {(r["entry"], r["dtype"]) for r in read() if r["profile"] == given.profile}
    found = {(c["entry"], c["dtype"]) for c in refused}
    for entry, dtype in sorted(found ^ listed):
        print(f"{entry}, {dtype}: " + ("refused, and not listed" if (entry, dtype) in found else "listed, and works"))
    print(f"{given.profile}: {len(wrong)} cells are wrong, {len(refused)} are refused")
    return 1 if wrong or found != listed else 0


if __name__ == "__main__":
    sys.exit(main())
