"""Compiles programs that a run left in its ``TORCH_PJRT_DUMP`` folder for a chip that is not here.

    python tests/chips/programs.py --target tpu:v5e build/chips

A program stands for its operator and the dtypes of its arguments; the middle one of each by length is compiled. What a
chip refuses is in ``refused.tsv`` with the reason. Any other refusal, and a listed program that compiles, is an error.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from torch_pjrt import targets

REFUSED = Path(__file__).with_name("refused.tsv")
LONGEST = 10.0  # seconds that one compile may take


@dataclass(frozen=True)
class Program:
    """One file: the operator (``aten::add.Tensor``) and the dtypes of the arguments (``f32 i64``)."""

    operator: str
    dtypes: str
    path: Path

    @property
    def name(self) -> tuple[str, str]:
        return self.operator, self.dtypes

    def text(self) -> str:
        return self.path.read_text()


@dataclass(frozen=True)
class Result:
    """What the compiler said: ``""`` or its words, and the seconds it took."""

    program: Program
    error: str
    seconds: float


def read(path: Path) -> Program:
    lines = path.read_text().splitlines()
    head = next(line for line in lines if "func.func @main" in line)
    arguments = head[: head.index("->")]
    dtypes = {kind.split("x")[-1] for kind in re.findall(r"tensor<([^>]*(?:<\w+>)?)>", arguments)}
    return Program(lines[0].removeprefix("// "), " ".join(sorted(dtypes)), path)


def choose(folder: Path) -> list[Program]:
    """One program of each operator and dtypes: the one in the middle by length, as the shortest is often empty."""
    found: dict[tuple[str, str], list[Program]] = {}
    for path in sorted(folder.glob("*.mlir")):
        program = read(path)
        found.setdefault(program.name, []).append(program)
    by_size = [sorted(programs, key=lambda p: p.path.stat().st_size) for programs in found.values()]
    return sorted((programs[len(programs) // 2] for programs in by_size), key=lambda p: p.name)


def compile_all(target: targets.Target, programs: Iterable[Program]) -> list[Result]:
    results = []
    for program in programs:
        report = target.compile_text(program.text())
        results.append(Result(program, report.error, report.seconds))
    return results


def expected(target: str) -> dict[tuple[str, str], str]:
    """(operator, dtypes) -> reason, for this chip."""
    with REFUSED.open() as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(r["operator"], r["dtypes"]): r["reason"] for r in rows if r["target"] == target}


def surprises(target: str, results: list[Result]) -> list[str]:
    """What the list does not say: a line each."""
    listed = expected(target)
    out = []
    for r in results:
        name = " of ".join(r.program.name)
        if r.error and r.program.name not in listed:
            out.append(f"{name} is refused: {r.error.splitlines()[0][:300]} ({r.program.path.name})")
        elif not r.error and r.program.name in listed:
            out.append(f"{name} compiles, though it is listed: {listed[r.program.name]}")
        elif r.seconds > LONGEST:
            out.append(f"{name} takes {r.seconds:.1f} s to compile ({r.program.path.name})")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", required=True)
    given = parser.parse_args()
    target = targets.target(given.target, timeout=60)
    results = compile_all(target, tqdm(choose(given.folder), desc=given.target, leave=False))
    refused = [r for r in results if r.error]
    operators = {r.program.operator for r in results}
    bad = {r.program.operator for r in refused}
    share = 1 - len(refused) / max(1, len(results))
    slowest = max(results, key=lambda r: r.seconds, default=None)
    print(f"{given.target}: {len(results)} programs of {len(operators)} operators, {share:.1%} compile", end="")
    print(f"; {len(operators) - len(bad)} operators without a refusal")
    if slowest:
        print(f"slowest: {' of '.join(slowest.program.name)}, {slowest.seconds:.1f} s")
    for first, count in Counter(r.error.splitlines()[0][:160] for r in refused).most_common(30):
        print(f"{count:5} {first}")
    found = surprises(given.target, results)
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
