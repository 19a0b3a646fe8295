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


def train(workload: Workload, device: torch.device, steps: int, seed: int = 0) -> Iterator[float]:
    """The loss of each step, from the same weights and data on every device."""
    step = Step(workload, device, seed)
    for inputs, labels in workload.batches(steps):
        yield step(inputs.to(device), labels.to(device)).item()
