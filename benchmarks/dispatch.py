"""Microseconds of one operator call on 4x4 float32 operands, from Python, when many are issued.

Contestants take turns in one run: our device in strict mode (a program for each call) and in fused mode (the
default: calls run together; the results of 256 calls are kept and then waited for), a bare PJRT execute of the
very same program (C++, with the program's own inputs), torch on the CPU, and in their own environments JAX's
jitted function of the same operator and Google's TorchTPU. Peers that are not installed are left out; see
peers/setup.sh.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.fused import in_mode
from benchmarks.machine import Reading, Series, alternate, quietness
from benchmarks.peers.rounds import Case
from benchmarks.report import Limit, Report

HERE = Path(__file__).resolve().parent
PEERS = Path(os.environ.get("TORCH_PJRT_BENCH_PEERS", HERE.parent / "out" / "peers"))
STATEMENTS = {
    "a + b": "a + b",
    "a * 2.5": "a * 2.5",
    "relu(a)": "torch.relu(a)",
    "a.add_(b)": "c.add_(b)",
    "mm(a, b)": "torch.mm(a, b)",
    "x.item()": "x.item()",
}
OVER_BARE = {"a * 2.5": 4.0}  # microseconds; 3 for the others
CALLS_OF_STEP = 256
READS = "x.item()"  # runs no program


class Peer:
    """A contestant in a process of its own."""

    def __init__(self, script: str, environment: str, **variables: str) -> None:
        command = [str(PEERS / environment / "bin" / "python"), str(HERE / "peers" / script)]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.versions: dict[str, str] = self.read()["versions"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # a peer may print lines of its own
                return json.loads(line)
        raise RuntimeError(f"{self.process.args} ended with code {self.process.wait()}")

    def measure(self, case: str) -> Reading:
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        answer = self.read()
        return Reading(answer["microseconds"], answer["cpu_seconds"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def start_peers() -> dict[str, Peer]:
    """Those whose environments exist."""
    peers: dict[str, Peer] = {}
    if (PEERS / "jax").exists():
        peers["JAX"] = Peer("jax_dispatch.py", "jax")
    if (PEERS / "torch_tpu").exists():
        found = list((PEERS / "torch_tpu").glob("lib/python3*/site-packages/fastatomstruct_xla_cpu/*.so"))
        try:
            peers["TorchTPU"] = Peer("torch_tpu_dispatch.py", "torch_tpu", TPU_LIBRARY_PATH=str(found[0]))
        except RuntimeError as error:
            print(f"no figures of TorchTPU: {error}")
    return peers


def cases_on(device: str, wait: Callable[[], object]) -> dict[str, Case]:
    names = {
        "torch": torch,
        "a": torch.ones(4, 4, device=device),
        "b": torch.full((4, 4), 0.5, device=device),
        "c": torch.ones(4, 4, device=device),
        "x": torch.ones((), device=device) * 3,
    }
    wait()
    return {case: Case(statement, names, wait) for case, statement in STATEMENTS.items()}


def in_steps(case: Case) -> Reading:
    """Calls between two waits as a training step has them; all of their results are needed."""
    step = f"for i in calls: kept[i] = {case.statement}\nwait()"  # a list that grows would cost 0.1 us a call
    names = {"wait": case.wait, "calls": range(CALLS_OF_STEP), "kept": [None] * CALLS_OF_STEP}
    return Reading(Case(step, {**case.names, **names}).sample() / CALLS_OF_STEP)


def timed(case: Case) -> Reading:
    return Reading(case.sample())


def bare(case: Case) -> Reading:
    """One execute and destroy of the program that the case runs, timed in C++."""
    import torch_pjrt

    torch_pjrt._C.bench_last_program(0)  # from now on programs are remembered
    eval(case.statement, case.names)
    return Reading(torch_pjrt._C.bench_last_program(30000))


def metered(case: Case, part: int) -> Reading:
    """Of a call: microseconds in our kernel (part 1), or in the plugin's execute that it makes (part 3)."""
    import torch_pjrt

    torch_pjrt._C.bench_meter(True)
    case.sample()
    reading = torch_pjrt._C.bench_meter(False)
    return Reading(reading[part] / reading[0] / 1e3)


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch_pjrt.device_name()
    ours = cases_on(device, torch.accelerator.synchronize)
    cpu = cases_on("cpu", lambda: None)
    peers = start_peers()
    found: dict[str, dict[str, Series]] = {}
    try:
        for case in tqdm(STATEMENTS, desc="dispatch", leave=False):
            measures: dict[str, Callable[[], Reading]] = {"ours": partial(timed, ours[case])}
            if case != READS:
                measures["fused"] = partial(in_mode, "fused", partial(in_steps, ours[case]))
                measures["bare"] = partial(bare, ours[case])
                measures["kernel"] = partial(metered, ours[case], 1)
                measures["plugin"] = partial(metered, ours[case], 3)
            measures["cpu"] = partial(timed, cpu[case])
            for name, peer in peers.items():
                measures[name] = partial(peer.measure, case)
            found[case] = alternate(measures, rounds)
    finally:
        for peer in peers.values():
            peer.close()
    return summarise(found, peers)


def summarise(found: dict[str, dict[str, Series]], peers: dict[str, Peer]) -> Report:
    columns = ["us per call", "strict", "min", "fused", "bare PJRT", "on top", "torch CPU"]
    for name in peers:
        columns += [name, f"strict / {name}", f"fused / {name}"]
    report = Report(columns)
    for case, series in found.items():
        ours = series["ours"].median
        bare_time = series["bare"].median if "bare" in series else None
        on_top = None if bare_time is None else ours - bare_time
        fused = series["fused"].median if "fused" in series else ours
        row: list[str | float | None] = [case, ours, series["ours"].minimum, fused, bare_time, on_top]
        row.append(series["cpu"].median)
        for name in peers:
            row += [series[name].median, ours / series[name].median, fused / series[name].median]
        report.rows.append(row)
        if on_top is not None:
            report.limits.append(Limit(f"{case}: us over the bare execute", on_top, OVER_BARE.get(case, 3.0)))
            for name, time, share in (("JAX", fused, 0.6), ("TorchTPU", ours, 1 / 3)):
                if name in peers:
                    report.limits.append(Limit(f"{case}: share of {name}", time / series[name].median, share))
        else:
            report.limits.append(Limit(f"{case}: us", ours, 1.5))
    report.remarks = where_the_time_goes(found)
    report.remarks += [f"{name}: {peer.versions}" for name, peer in peers.items()]
    if len(peers) < 2:
        report.remarks.append("Some peers are not installed: benchmarks/peers/setup.sh makes their environments.")
    report.remarks.append(quietness([one for series in found.values() for one in series.values()]))
    return report


def where_the_time_goes(found: dict[str, dict[str, Series]]) -> list[str]:
    """Splits a call into the plugin's execute as the call sees it (colder caches than in the bare loop), the
    rest of our kernel, and what is outside of it: Python, dispatcher, autograd, and destroying the result.
    """
    lines = ["Where the time goes, us:    plugin  our kernel  PyTorch and the result's end"]
    for case, series in found.items():
        if "bare" in series:
            total, kernel, plugin = (series[name].median for name in ("ours", "kernel", "plugin"))
            lines.append(f"  {case:<24}{plugin:>8.2f}{kernel - plugin:>12.2f}{total - kernel:>12.2f}")
    return lines
