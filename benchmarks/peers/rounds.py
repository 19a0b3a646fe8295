"""Timing that every contestant shares. Only the standard library: peers run in environments of their own.

A peer is a process that answers one line per request on standard output:

    {"cases": [...], "versions": {...}}     once, when it is ready
    {"microseconds": 1.9, "cpu_seconds": 0.1}   for each line on standard input that names a case
"""

from __future__ import annotations

import gc
import json
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SECONDS_PER_SAMPLE = 0.1


@dataclass
class Case:
    """A statement to time, the names it uses, and what waits until all of its work is done."""

    statement: str
    names: dict[str, Any]
    wait: Callable[[], object] = lambda: None
    setup: str = "pass"
    calls: int = field(default=0, init=False)

    def sample(self) -> float:
        """Microseconds per call, over about ``SECONDS_PER_SAMPLE`` of calls and one wait."""
        timer = timeit.Timer(self.statement, self.setup, globals=self.names)
        if self.calls == 0:
            timer.timeit(20)  # compiles, and fills caches
            self.wait()
            once = max(timer.timeit(50) / 50, 1e-7)
            self.calls = max(20, int(SECONDS_PER_SAMPLE / once))
        gc.collect()
        start = time.perf_counter()
        timer.timeit(self.calls)
        self.wait()
        return (time.perf_counter() - start) / self.calls * 1e6


def serve(cases: dict[str, Case], versions: dict[str, str]) -> None:
    """Answer requests until standard input ends."""
    print(json.dumps({"cases": list(cases), "versions": versions}), flush=True)
    for line in sys.stdin:
        before = time.process_time()
        microseconds = cases[line.strip()].sample()
        reading = {"microseconds": microseconds, "cpu_seconds": time.process_time() - before}
        print(json.dumps(reading), flush=True)
