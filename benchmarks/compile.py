"""Seconds to compile each operator the first time it meets a shape, as the device logs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.report import Report

# Shapes that nothing else uses: each makes every operator compile once.
SIZES = (19, 23, 29)
CALLS: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + x,
    "mul by a number": lambda x: x * 2.5,
    "relu": lambda x: x.relu(),
    "gelu": functional.gelu,
    "exp": lambda x: x.exp(),
    "to bfloat16": lambda x: x.to(torch.bfloat16),
    "sum": lambda x: x.sum(1),
    "mean and variance": lambda x: torch.var_mean(x, 1),
    "argmax": lambda x: x.argmax(1),
    "softmax": lambda x: x.softmax(1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[1:]),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1),
    "mm": lambda x: x @ x,
    "linear": lambda x: functional.linear(x, x, x[0]),
    "transpose, then add": lambda x: x.t() + x,
    "write into a slice": lambda x: x[1:5, ::2].fill_(1),
    "index": lambda x: x[[0, 3, 5]],
    "embedding": lambda x: functional.embedding(torch.tensor([1, 2], device=x.device), x),
    "cat": lambda x: torch.cat([x, x]),
    "rand": lambda x: torch.rand(x.shape, device=x.device),
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "max_pool2d": lambda x: functional.max_pool2d(x[None], 2),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}


def run(rounds: int) -> Report:
    import torch_pjrt

    report = Report(["ms", "programs", "compile", "first call", "second call"])
    totals = 0.0
    for name, call in CALLS.items():
        compiled, first, second, programs = [], [], [], 0
        for size in SIZES:
            x = torch.linspace(-1, 1, size * size).view(size, size).to(torch_pjrt.device_name())
            length = len(torch_pjrt.compile_log())
            first.append(milliseconds(call, x))
            entries = torch_pjrt.compile_log()[length:]
            programs = len(entries)
            compiled.append(sum(entry["seconds"] for entry in entries) * 1e3)
            second.append(milliseconds(call, x))
        totals += sum(first)
        report.rows.append([name, programs, median(compiled), median(first), median(second)])
    report.remarks.append(f"Each operator on {len(SIZES)} shapes; medians. All first calls: {totals / 1e3:.1f} s.")
    return report


def milliseconds(call: Callable[[Tensor], object], x: Tensor) -> float:
    start = time.perf_counter()
    call(x)
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) * 1e3
