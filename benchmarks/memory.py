"""Memory: how far the peak of a GPT step lies above its live tensors, and whether 2,000 MLP steps leak."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.report import Limit, Report
from benchmarks.workloads import GPT, MLP, Step

STEPS = 2000


class LiveBytes(TorchDispatchMode):
    """The most bytes that the storages of a device's tensors had at one time, as PyTorch sees them."""

    def __init__(self, device: str, alive: list[torch.Tensor]) -> None:
        super().__init__()
        self.device = device
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0
        self.see(alive)

    def see(self, values: object) -> None:
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self.device:
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.storages = {key: value for key, value in self.storages.items() if not value[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.see(result)
        return result


def gpt_peak() -> tuple[int, int, int]:
    """Bytes at the peak of a warm step: of real buffers, of live tensors, of the programs' temporaries."""
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    step = Step(GPT, device)
    batch = [part.to(device) for part in GPT.batches(1)[0]]
    for _ in range(2):
        step(*batch).item()
    gc.collect()
    torch.accelerator.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    step(*batch).item()
    peak = torch.accelerator.max_memory_reserved()
    state = [value for entry in step.optimizer.state.values() for value in entry.values()]
    with LiveBytes(device.type, [*step.network.state_dict().values(), *batch, *state]) as live:
        step(*batch).item()
    return peak, live.peak, int(torch_pjrt.stats().get("temporary_bytes", 0))


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mlp_resident() -> list[int]:
    """Resident bytes after 500 steps and then after every 250 up to ``STEPS``."""
    import torch_pjrt

    device = torch.device(torch_pjrt.device_name())
    step = Step(MLP, device)
    batches = MLP.batches(20)
    seen = []
    for number in range(1, STEPS + 1):
        inputs, labels = batches[number % len(batches)]
        step(inputs.to(device), labels.to(device)).item()
        if number >= 500 and number % 250 == 0:
            seen.append(resident_bytes())
    return seen


def run(rounds: int) -> Report:
    report = Report(["MiB", "value"])
    peak, live, temporary = gpt_peak()
    report.rows += [
        ["GPT step: buffers at most", peak / 2**20],
        ["GPT step: live tensors at most", live / 2**20],
        ["GPT step: programs' temporaries", temporary / 2**20],
    ]
    report.limits.append(Limit("GPT step: (buffers - temporaries) / live tensors", (peak - temporary) / live, 1.5))

    # In a process of its own, so that what ran before does not matter.
    code = "import json\nfrom benchmarks.memory import mlp_resident\nprint(json.dumps(mlp_resident()))"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    report.rows.append(["MLP: resident after 500 steps", seen[0] / 2**20])
    report.rows.append([f"MLP: resident after {STEPS} steps", seen[-1] / 2**20])
    report.limits.append(Limit("MLP: (highest - lowest) / resident", (max(seen) - min(seen)) / seen[0], 0.02))
    return report
