"""Runs the named workloads, prints a table for each, and says which limits hold."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
from pathlib import Path

import torch_pjrt
from benchmarks import machine
from benchmarks.report import Report

# Each is a module with `run(rounds: int) -> Report`; "build" compiles everything and takes minutes.
WORKLOADS = {
    "dispatch": "microseconds of one operator call, against bare PJRT, torch CPU, JAX and TorchTPU",
    "operators": "microseconds of common operators at three sizes, against JAX's jitted function",
    "compile": "seconds to compile each operator",
    "compiled": "training steps through torch.compile against strict eager and torch CPU",
    "sizes": "a compiled model for all lengths up to a bound against one for the longest alone",
    "fused": "fused eager against strict and torch CPU: a chain, training steps, first steps, graphs that run once",
    "models": "milliseconds of a training step, against torch CPU",
    "memory": "peak memory of a GPT step; resident memory over 2,000 MLP steps",
    "build": "seconds to build from nothing and after a change in one row",
}
# What one call costs, in the mode where it runs by itself.
STRICT = {"dispatch", "operators", "compile"}
BY_DEFAULT = ["dispatch", "operators", "compile", "fused", "compiled", "sizes", "models", "memory"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help="; ".join(WORKLOADS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything there")
    parser.add_argument("--rounds", type=int, default=11, help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a limit does not hold")
    options = parser.parse_args()
    names = options.workloads or BY_DEFAULT
    for name in names:
        if name not in WORKLOADS:
            parser.error(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")

    print(machine.describe())
    reports: dict[str, Report] = {}
    for name in names:
        print(f"\n== {name}: {WORKLOADS[name]}", flush=True)
        with torch_pjrt.eager("strict") if name in STRICT else contextlib.nullcontext():
            reports[name] = importlib.import_module(f"benchmarks.{name}").run(options.rounds)
        print(reports[name].text(), flush=True)

    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": machine.facts(),
            "workloads": {name: report.data() for name, report in reports.items()},
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n")
        print(f"\nwritten to {options.json}")
    broken = [limit.name for report in reports.values() for limit in report.limits if not limit.holds]
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
