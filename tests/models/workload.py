"""One model, its data, its optimizer: trained the same way on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Workload:
    """A training job whose start is a function of the seed alone.

    ``batches(count)`` gives that many pairs of inputs and class labels, all of one size, on the CPU.
    The network turns inputs into logits whose last dimension is the class.
    """

    name: str
    network: Callable[[], nn.Module]
    optimizer: Callable[..., torch.optim.Optimizer]
    batches: Callable[[int], list[Batch]]
    clip_norm: float | None = None
    optimizer_options: tuple[tuple[str, Any], ...] = ()

    def with_optimizer(self, **options: Any) -> Workload:
        """The same job with more keyword arguments for the optimizer, e.g. ``fused=True``."""
        return replace(self, optimizer_options=tuple(options.items()))


class Step:
    """One training step of a workload on a device; call it with a batch that lies there."""

    def __init__(self, workload: Workload, device: torch.device, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.network = workload.network().to(device)
        self.optimizer = workload.optimizer(self.network.parameters(), **dict(workload.optimizer_options))
        self.clip_norm = workload.clip_norm

    def __call__(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss before the update, still on the device."""
        logits = self.network(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip_norm)
        self.optimizer.step()
        return loss.detach()


class ReplayedStep:
    """The same, captured with ``torch.accelerator.Graph`` after ``warmup`` steps and replayed from then on."""

    def __init__(self, workload: Workload, device: torch.device, seed: int = 0, warmup: int = 2) -> None:
        self.step = Step(workload, device, seed)
        for group in self.step.optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True
        self.warmup = warmup
        self.inputs: list[Tensor] = []
        self.graph = torch.accelerator.Graph()

    def __call__(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if self.warmup > 0:
            self.warmup -= 1
            return self.step(inputs, labels)
        if not self.inputs:
            self.inputs = [inputs.clone(), labels.clone()]
            with self.graph:
                self.loss = self.step(*self.inputs)
        for held, given in zip(self.inputs, (inputs, labels), strict=True):
            held.copy_(given)
        self.graph.replay()
        return self.loss


def train(
    workload: Workload,
    device: torch.device,
    steps: int,
    seed: int = 0,
    kind: Callable[[Workload, torch.device, int], Callable[[Tensor, Tensor], Tensor]] = Step,
) -> Iterator[float]:
    """The loss of each step, from the same weights and data on every device. ``kind``: `Step` or `ReplayedStep`."""
    step = kind(workload, device, seed)
    for inputs, labels in workload.batches(steps):
        yield step(inputs.to(device), labels.to(device)).item()
