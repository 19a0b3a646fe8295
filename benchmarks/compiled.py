"""Training steps through torch.compile (network and optimizer) against strict eager, torch CPU's eager, and JAX."""

from __future__ import annotations

from functools import partial

import torch
from tqdm import tqdm

from benchmarks.dispatch import PEERS, Peer
from benchmarks.fused import in_mode
from benchmarks.machine import Reading, Series, alternate, quietness
from benchmarks.models import Trainer
from benchmarks.report import Limit, Report
from benchmarks.workloads import ALL

JAX_AT_MOST = {"mlp": 1.3, "gpt": 1.0}  # share of the step by hand in JAX


def in_ms(peer: Peer, case: str) -> Reading:
    reading = peer.measure(case)
    return Reading(reading.value / 1e3, reading.peer_cpu_seconds)


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    columns = ["ms per step", "compiled", "strict", "torch CPU", "compiled / strict", "compiled / CPU", "first step, s"]
    jax = Peer("jax_steps.py", "jax") if (PEERS / "jax").exists() else None
    report = Report([*columns, *(["JAX", "compiled / JAX"] if jax else [])])
    every: list[Series] = []
    for name, workload in tqdm(ALL.items(), desc="compiled", leave=False):
        torch._dynamo.reset()
        whole, eager = Trainer(workload, device, backend="pjrt"), Trainer(workload, device)
        cpu = Trainer(workload, torch.device("cpu"))
        measures = {"compiled": whole.sample, "strict": partial(in_mode, "strict", eager.sample), "cpu": cpu.sample}
        if jax and name in JAX_AT_MOST:
            measures["jax"] = partial(in_ms, jax, name)
        found = alternate(measures, rounds)
        every.extend(found.values())
        ours, strict, host = (found[key].median for key in ("compiled", "strict", "cpu"))
        row: list[str | float | None] = [name, ours, strict, host, ours / strict, ours / host, whole.first_step]
        if "jax" in found:
            theirs = found["jax"].median
            row += [theirs, ours / theirs]
            report.limits.append(Limit(f"{name} step against JAX", ours / theirs, JAX_AT_MOST[name]))
        report.rows.append(row + [None] * (len(report.columns) - len(row)))
        if name == "gpt":
            report.limits.append(Limit("gpt step against torch CPU", ours / host, 1.0))
    report.remarks = [quietness(every)]
    if jax:
        jax.close()
        report.remarks.append(f"JAX: {jax.versions}")
    return report
