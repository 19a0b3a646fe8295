"""Common operators at three sizes, against JAX's jitted function of the same operator on its CPU backend.

Both take turns in one run; the ratio counts. Without JAX (peers/setup.sh) there is nothing to compare with.
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
import torch.nn.functional as F
from tqdm import tqdm

from benchmarks.dispatch import PEERS, Peer, timed
from benchmarks.machine import Series, alternate, quietness
from benchmarks.peers.operator_cases import OPERATORS, SIZES, name_of, shapes
from benchmarks.peers.rounds import Case
from benchmarks.report import Limit, Report

# Operators that may take more than twice JAX's time, and why.
REASONS = {
    "bmm": "both run the same program, a library's product on the plugin's threads, whose time varies from 15 to 45 us",
    "cross_entropy": "two operators with a result each in eager mode; JAX's jit has one program",
    "layer_norm": "PyTorch's operator has three results (mean and rstd too), JAX's function one",
    "strided copy": "Python's indexing, an empty tensor and a copy are three calls; JAX's jit has one program",
}


def cases_on(device: str) -> dict[str, Case]:
    cases = {}
    for n in SIZES:
        names: dict[str, object] = {"torch": torch, "F": F, "n": n}
        for name, shape in shapes(n).items():
            count = torch.Size(shape).numel()
            names[name] = (torch.arange(count, dtype=torch.float64).sin().abs() + 0.1).float().reshape(shape).to(device)
        names["m"] = names["x"] > 0.5  # type: ignore[operator]
        names["i"] = (torch.arange(n) * 7 % n).to(device)
        for operator, (statement, _) in OPERATORS.items():
            cases[name_of(operator, n)] = Case(statement, names, torch.accelerator.synchronize)
    return cases


def run(rounds: int) -> Report:
    import torch_pjrt

    report = Report(["us per call", "n", torch_pjrt.device_name(), "JAX", "x JAX"])
    if not (PEERS / "jax").exists():
        report.remarks.append("JAX is not installed: benchmarks/peers/setup.sh makes its environment.")
        return report
    ours, jax = cases_on(torch_pjrt.device_name()), Peer("jax_operators.py", "jax")
    ratios, series = [], []
    try:
        for operator in tqdm(OPERATORS, desc="operators", leave=False):
            for n in SIZES:
                case = name_of(operator, n)
                measures = {"ours": partial(timed, ours[case]), "JAX": partial(jax.measure, case)}
                found: dict[str, Series] = alternate(measures, rounds)
                series += found.values()
                ratio = found["ours"].median / found["JAX"].median
                ratios.append(ratio)
                report.rows.append([operator, n, found["ours"].median, found["JAX"].median, ratio])
                if ratio > 2 and operator in REASONS:
                    report.remarks.append(f"{case}: {REASONS[operator]}")
                else:
                    report.limits.append(Limit(f"{case}: ratio to JAX", ratio, 2.0))
    finally:
        jax.close()
    report.limits.append(Limit("median ratio to JAX", statistics.median(ratios), 1.1))
    report.remarks += [f"JAX: {jax.versions}", quietness(series)]
    return report
