"""Milliseconds of one training step, batch upload and loss read-back included, against torch CPU."""

from __future__ import annotations

import time

import torch
from tqdm import tqdm

from benchmarks.machine import Reading, Series, alternate, quietness
from benchmarks.report import Report
from benchmarks.workloads import ALL, ReplayedStep, Step, Workload

SECONDS_PER_SAMPLE = 0.3


class Trainer:
    """Trains one model on one device, always on the next of a few batches."""

    def __init__(
        self,
        workload: Workload,
        device: torch.device,
        backend: str = "",
        kind: type[Step] | type[ReplayedStep] = Step,
    ) -> None:
        """``backend``: of torch.compile, for the network and the optimizer's step."""
        self.device = device
        self.batches = workload.batches(4)
        self.step = kind(workload, device)
        if backend:
            assert isinstance(self.step, Step)
            self.step.network = torch.compile(self.step.network, backend=backend)  # type: ignore[assignment]
            self.step.optimizer.step = torch.compile(self.step.optimizer.step, backend=backend)  # type: ignore[method-assign]
        start = time.perf_counter()
        self.train(1)
        self.first_step = time.perf_counter() - start
        self.train(3)
        start = time.perf_counter()
        self.train(1)
        self.steps = max(1, int(SECONDS_PER_SAMPLE / (time.perf_counter() - start)))

    def train(self, steps: int) -> None:
        for number in range(steps):
            inputs, labels = self.batches[number % len(self.batches)]
            self.step(inputs.to(self.device), labels.to(self.device)).item()

    def sample(self) -> Reading:
        """Milliseconds per step."""
        start = time.perf_counter()
        self.train(self.steps)
        return Reading((time.perf_counter() - start) / self.steps * 1e3)


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    report = Report(
        ["ms per step", device.type, "min", "torch CPU", "min ", "x CPU", "first step, s", "programs", "fallbacks"]
    )
    every: list[Series] = []
    for name, workload in tqdm(ALL.items(), desc="models", leave=False):
        before = torch_pjrt.stats()
        ours, cpu = Trainer(workload, device), Trainer(workload, torch.device("cpu"))
        after = torch_pjrt.stats()
        found = alternate({"ours": ours.sample, "cpu": cpu.sample}, rounds)
        every += found.values()
        report.rows.append(
            [
                name,
                found["ours"].median,
                found["ours"].minimum,
                found["cpu"].median,
                found["cpu"].minimum,
                found["ours"].median / found["cpu"].median,
                ours.first_step,
                after["compiles"] - before["compiles"],
                after["fallbacks"] - before["fallbacks"],
            ]
        )
    report.remarks = [f"torch CPU uses {torch.get_num_threads()} threads.", quietness(every)]
    return report
