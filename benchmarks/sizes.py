"""A compiled GPT for all lengths up to 128, against one for the length 128 alone: forward and backward."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.machine import Reading, alternate, quietness
from benchmarks.report import Limit, Report
from benchmarks.workloads import TinyGPT

LONGEST = 128
LENGTHS = (17, 65, 128)
BATCH, VOCABULARY = 8, 103


def milliseconds(loss: Callable[[Tensor, Tensor], Tensor], tokens: Tensor, changes: bool) -> Reading:
    inputs, labels = tokens.clone(), tokens.clone()
    for t in (inputs, labels):
        if changes:
            torch._dynamo.mark_dynamic(t, 1, min=2, max=LONGEST)
    start = time.perf_counter()
    value = loss(inputs, labels)
    value.backward()
    value.item()
    return Reading((time.perf_counter() - start) * 1e3)


def run(rounds: int) -> Report:
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    report = Report(["ms per step", "one program", "static at 128", "one program / static", "compiles"])
    torch._dynamo.reset()

    network = TinyGPT(VOCABULARY, LONGEST).to(device)

    def loss(inputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(network(inputs).flatten(0, 1), labels.flatten())

    static, whole = torch.compile(loss, dynamic=False), torch.compile(loss)
    tokens = torch.randint(VOCABULARY, (BATCH, LONGEST))
    every = []
    for length in LENGTHS:
        part = tokens[:, :length].contiguous().to(device)
        measures = {
            "one": partial(milliseconds, whole, part, True),
            "static": partial(milliseconds, static, tokens.to(device), False),
        }
        before = sum(str(entry["operator"]).startswith("compiled") for entry in torch_pjrt.compile_log())
        measures["one"]()
        compiles = sum(str(entry["operator"]).startswith("compiled") for entry in torch_pjrt.compile_log()) - before
        measures["static"]()
        found = alternate(measures, rounds)
        every.extend(found.values())
        ours, theirs = found["one"].median, found["static"].median
        if length == 65:
            report.limits.append(Limit("length 65 / static at 128", ours / theirs, 1.25))
        report.rows.append([f"length {length}", ours, theirs, ours / theirs, compiles])
    report.remarks = [quietness(every)]
    return report
