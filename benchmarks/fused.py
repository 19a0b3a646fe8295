"""Fused eager against strict and torch CPU: a chain, training steps, first steps, graphs that run once."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.machine import Reading, Series, alternate, quietness
from benchmarks.models import Trainer
from benchmarks.report import Limit, Report
from benchmarks.workloads import ALL, GPT, ReplayedStep, Step

CHAIN, SIZE = 20, 256
ONE_OFF, OPERATORS, LENGTH = 300, ("sin", "cos", "exp", "tanh", "sqrt", "sigmoid", "square", "abs", "neg", "relu"), 12


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(CHAIN // 4):
        x = torch.abs(x * 1.5 + 0.1).relu()
    return x


def in_mode(mode: str, measure: Callable[[], Reading]) -> Reading:
    import torch_pjrt

    with torch_pjrt.eager(mode):
        return measure()


def time_of(call: Callable[[], object], times: int) -> Reading:
    """Microseconds of a call whose result is waited for."""
    start = time.perf_counter()
    for _ in range(times):
        call()
        torch.accelerator.synchronize()
    return Reading((time.perf_counter() - start) / times * 1e6)


def recording() -> float:
    """Microseconds that our kernels take to note a call of a GPT's forward pass."""
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    step = Step(GPT, device)
    inputs = GPT.batches(1)[0][0].to(device)
    readings = []
    for _ in range(22):
        torch.accelerator.synchronize()
        torch_pjrt._C.bench_meter(True)
        kept = step.network(inputs)
        calls, kernel, flush, _ = torch_pjrt._C.bench_meter(False)
        readings.append((kernel - flush) / calls / 1e3)
        del kept
    return statistics.median(readings[2:])


# ---- in a process of their own


def first_step(name: str) -> float:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    step = Step(ALL[name], device)
    batch = [part.to(device) for part in ALL[name].batches(1)[0]]
    start = time.perf_counter()
    step(*batch).item()
    return time.perf_counter() - start


def one_off_graphs(_: str) -> float:
    """Seconds of random rows of operators, each run once."""
    import torch_pjrt

    x = torch.rand(SIZE, SIZE, device=torch_pjrt.device_name())
    choose = random.Random(0)
    start = time.perf_counter()
    for _ in range(ONE_OFF):
        y = x
        for operator in choose.choices(OPERATORS, k=LENGTH):
            y = getattr(torch, operator)(y)
        y.sum().item()
    return time.perf_counter() - start


def apart(what: Callable[[str], float], mode: str, name: str = "") -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fused", what.__name__, name],
        env={**os.environ, "TORCH_PJRT_EAGER": mode, "TORCH_PJRT_CACHE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    report = Report(["", "strict", "fused", "replayed", "torch CPU", "fused / strict", "fused / CPU", "replayed / CPU"])
    every: list[Series] = []

    def add(name: str, strict: float, fused: float, cpu: float | None = None, replayed: float | None = None) -> None:
        against_cpu = [None if cpu is None or t is None else t / cpu for t in (fused, replayed)]
        report.rows.append([name, strict, fused, replayed, cpu, fused / strict, *against_cpu])

    def compare(
        name: str,
        ours: Callable[[], Reading],
        cpu: Callable[[], Reading],
        replayed: Callable[[], Reading] | None = None,
    ) -> tuple[float, float]:
        measures = {"strict": partial(in_mode, "strict", ours), "fused": partial(in_mode, "fused", ours), "cpu": cpu}
        if replayed is not None:
            measures["replayed"] = replayed
        for _ in range(2):
            measures["fused"]()
        found = alternate(measures, rounds)
        every.extend(found.values())
        strict, fused, host = (found[key].median for key in ("strict", "fused", "cpu"))
        add(name, strict, fused, host, found["replayed"].median if replayed is not None else None)
        return fused / strict, fused / host

    x = torch.randn(SIZE, SIZE)
    there = x.to(device)
    ratios = compare(
        f"{CHAIN} operators on {SIZE}x{SIZE}, us",
        partial(time_of, lambda: chain(there), 200),
        partial(time_of, lambda: chain(x), 200),
    )
    report.limits += [Limit("the chain against strict", ratios[0], 0.4), Limit("the chain against CPU", ratios[1], 0.5)]
    for name, workload in ALL.items():
        _, ratio = compare(
            f"{name} step, ms",
            Trainer(workload, device).sample,
            Trainer(workload, torch.device("cpu")).sample,
            Trainer(workload, device, kind=ReplayedStep).sample,
        )
        if name in ("mlp", "gpt"):
            report.limits.append(Limit(f"{name} step against CPU", ratio, 1.0 if name == "mlp" else 1.1))
    for name in ALL:
        times = [(apart(first_step, "strict", name), apart(first_step, "fused", name)) for _ in range(2)]
        strict, fused = min(t[0] for t in times), min(t[1] for t in times)
        add(f"{name} first step, s", strict, fused)
        report.limits.append(Limit(f"{name} first step against strict", fused / strict, 0.7))
    strict, fused = apart(one_off_graphs, "strict"), apart(one_off_graphs, "fused")
    add(f"{ONE_OFF} graphs that run once, s", strict, fused)
    report.limits.append(Limit("graphs that run once, against strict", fused / strict, 1.2))
    with torch_pjrt.eager("fused"):
        report.limits.append(Limit("microseconds to note a call of a GPT's forward pass", recording(), 2.0))
    report.remarks = [quietness(every)]
    return report


if __name__ == "__main__":
    print(json.dumps({"first_step": first_step, "one_off_graphs": one_off_graphs}[sys.argv[1]](sys.argv[2])))
