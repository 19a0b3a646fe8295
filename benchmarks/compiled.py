"""Training steps through torch.compile (network and optimizer) against strict eager and torch CPU's eager."""

from __future__ import annotations

from functools import partial

import torch
from tqdm import tqdm

from benchmarks.fused import in_mode
from benchmarks.machine import Series, alternate, quietness
from benchmarks.models import Trainer
from benchmarks.report import Report
from benchmarks.workloads import ALL


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    columns = ["ms per step", "compiled", "strict", "torch CPU", "compiled / strict", "compiled / CPU", "first step, s"]
    report = Report(columns)
    every: list[Series] = []
    for name, workload in tqdm(ALL.items(), desc="compiled", leave=False):
        torch._dynamo.reset()
        whole, eager = Trainer(workload, device, backend="pjrt"), Trainer(workload, device)
        cpu = Trainer(workload, torch.device("cpu"))
        measures = {"compiled": whole.sample, "strict": partial(in_mode, "strict", eager.sample), "cpu": cpu.sample}
        found = alternate(measures, rounds)
        every.extend(found.values())
        ours, strict, host = (found[key].median for key in measures)
        report.rows.append([name, ours, strict, host, ours / strict, ours / host, whole.first_step])
    report.remarks = [quietness(every)]
    return report
