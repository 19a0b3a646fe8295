"""Reads and writes ``expected.tsv``: the state of every cell of the board, and why where it is not a row.

python tests/ops/expected.py results.jsonl ...     brings the file up to what a run has found, of all cells or some
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).with_name("expected.tsv")
FIELDS = ["entry", "kind", "state", "dtypes", "reason"]
# Why a cell is in such a state when no line of the file says more.
DEFAULT_REASONS = {
    "row": "",
    "decomposed": "PyTorch's decomposition",
    "fallback": "no row yet, and no decomposition into rows",
}


def name_of(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def read() -> dict[tuple[str, str, str], tuple[str, str]]:
    """(entry, kind, dtype) -> (state, reason)."""
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    with FILE.open(newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):
            for dtype in line["dtypes"].split():
                found[line["entry"], line["kind"], dtype] = line["state"], line["reason"]
    return found


def listed(*kinds: str) -> set[tuple[str, str, str]]:
    """The file's cells of these kinds."""
    return {cell for cell in read() if cell[1] in kinds}


def write(states: dict[tuple[str, str, str], tuple[str, str]]) -> None:
    lines: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for (entry, kind, dtype), (state, reason) in states.items():
        lines[entry, kind, state, reason].append(dtype)
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(FIELDS)
        for (entry, kind, state, reason), dtypes in sorted(lines.items()):
            writer.writerow([entry, kind, state, " ".join(dtypes), reason])


def main(paths: list[str]) -> None:
    before = read() if FILE.exists() else {}
    states = dict(before)
    for path in paths:
        for text in Path(path).read_text().splitlines():
            found = json.loads(text)
            key = found["entry"], found["kind"], found["dtype"]
            old = before.get(key)
            kept = old is not None and old[0] == found["state"]
            reason = DEFAULT_REASONS.get(found["state"], " ".join(found["why"].split())[:160])
            states[key] = found["state"], old[1] if kept and old is not None else reason
    write(states)


if __name__ == "__main__":
    main(sys.argv[1:])
