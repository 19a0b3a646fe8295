"""The machine, and how much of it others use while we measure."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# A sample during which other processes used more than this share of one core is taken again.
DISTURBED = 0.10
TRIES = 5


def facts() -> dict[str, object]:
    """Processor, cores, load and versions."""
    import torch

    facts: dict[str, object] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    try:
        import torch_pjrt

        facts.update({name: str(value) for name, value in torch_pjrt.versions().items()})
    except ImportError:
        facts["torch_pjrt"] = "not installed"
    return facts


def describe() -> str:
    """The facts, one per line."""
    found = facts()
    width = max(map(len, found))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found.items())


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used, and that its host took away."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """One measured value. ``peer_cpu_seconds`` is what a process of ours used for it besides this one."""

    value: float
    peer_cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Sample:
    """A value, and the share of one core that others used meanwhile."""

    value: float
    others: float


def sample(measure: Callable[[], Reading]) -> Sample:
    """The reading least disturbed by others, of at most ``TRIES``; the first quiet one is taken."""
    best: Sample | None = None
    for _ in range(TRIES):
        busy, own, start = busy_seconds(), time.process_time(), time.perf_counter()
        reading = measure()
        elapsed = time.perf_counter() - start
        ours = time.process_time() - own + reading.peer_cpu_seconds
        others = max(0.0, busy_seconds() - busy - ours) / max(elapsed, 0.02)
        if best is None or others < best.others:
            best = Sample(reading.value, others)
        if others <= DISTURBED:
            break
    assert best is not None
    return best


@dataclass
class Series:
    """The samples of one contestant in one case."""

    samples: list[Sample]

    @property
    def median(self) -> float:
        return median(one.value for one in self.chosen())

    @property
    def minimum(self) -> float:
        return min(one.value for one in self.samples)

    @property
    def disturbed(self) -> int:
        return sum(one.others > DISTURBED for one in self.samples)

    def chosen(self) -> list[Sample]:
        """The quiet samples where there are at least three, else all."""
        quiet = [one for one in self.samples if one.others <= DISTURBED]
        return quiet if len(quiet) >= 3 else self.samples


def alternate(measures: dict[str, Callable[[], Reading]], rounds: int) -> dict[str, Series]:
    """All contestants in turn, ``rounds`` times, so that a slow minute is slow for each of them."""
    found: dict[str, Series] = {name: Series([]) for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].samples.append(sample(measure))
    return found


def quietness(series: list[Series]) -> str:
    """A remark on how disturbed the samples were."""
    total = sum(len(one.samples) for one in series)
    disturbed = sum(one.disturbed for one in series)
    if not disturbed:
        return "No sample was disturbed by other processes."
    return (
        f"{disturbed} of {total} samples were disturbed: others used more than {DISTURBED:.0%} of a core in each "
        f"of {TRIES} tries. Medians are of the quiet samples where there are three."
    )
