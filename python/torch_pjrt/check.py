"""Runs a script here with a chip's limits, and compiles every program that it needed for that chip."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch_pjrt import targets

__all__ = ["Refusal", "check_script", "collect"]


@dataclass(frozen=True)
class Refusal:
    """A program that the chip's compiler does not take: operator, the user's line, the compiler's words."""

    operator: str
    where: str
    error: str


def collect(script: list[str], folder: Path, target: targets.Target, device: str) -> int:
    """Runs the script with its arguments on the CPU plugin as device ``device``; its programs go to ``folder``.

    Returns the script's exit status.
    """
    limits = ",".join(f"{name}={value}" for name, value in target.spec.capabilities.items())
    environment = {
        **os.environ,
        "TORCH_PJRT_PLUGIN": "cpu",
        "TORCH_PJRT_DEVICE_NAME": device,
        "TORCH_PJRT_DUMP": str(folder),
        "TORCH_PJRT_EAGER": "strict",  # what the chip lacks is then said of an operator and a line
        "TORCH_PJRT_CAPABILITIES": limits,
    }
    return subprocess.run([sys.executable, *script], env=environment).returncode


def compile_programs(folder: Path, target: targets.Target) -> tuple[list[targets.Report], list[Refusal]]:
    """Every program of the folder once."""
    reports: list[targets.Report] = []
    refusals: list[Refusal] = []
    seen: set[str] = set()
    for path in sorted(folder.glob("*.mlir")):
        operator, where, text = path.read_text().split("\n", 2)
        if text in seen:
            continue
        seen.add(text)
        report = target.compile_text(text)
        reports.append(report)
        if not report.compiles:
            refusals.append(Refusal(operator.removeprefix("// "), where.removeprefix("// "), report.error))
    return reports, refusals


def check_script(script: list[str], name: str, device: str) -> int:
    """Prints what the chip says of the programs. Returns 0 if it takes all, 1 if not, 2 if the script failed."""
    target = targets.target(name)
    kind = target.devices[0]["kind"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        status = collect(script, folder, target, device)
        if status:
            print(f"the script ended with status {status}; its programs up to there:")
        reports, refusals = compile_programs(folder, target)
    target.close()
    taken = [r for r in reports if r.compiles]
    largest = max((r.needed for r in taken), default=0)
    print(f"{name} ({kind}): {len(taken)} of {len(reports)} programs compile; the largest needs {largest} bytes")
    for refusal in refusals:
        print(f"  {refusal.operator}  {refusal.where}\n    " + refusal.error.replace("\n", "\n    "))
    return 2 if status else 1 if refusals else 0
