"""Bags of embeddings whose number and lengths change from step to step: exact, by a few programs."""

from __future__ import annotations

import itertools
import random
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

ROWS, COLUMNS = 30, 6
# Options of embedding_bag; whether indices have weights.
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "sum": ({"mode": "sum"}, False),
    "mean": ({"mode": "mean"}, False),
    "max": ({"mode": "max"}, False),
    "weights": ({"mode": "sum"}, True),
    "the last offset": ({"mode": "mean", "include_last_offset": True}, False),
    "padding": ({"mode": "sum", "padding_idx": 3}, True),
}


def inputs(choose: random.Random, bags: int, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, offsets, and a weight for each index; some bags are empty."""
    lengths = [choose.randint(0, 3) for _ in range(bags - 1)] + [choose.randint(2, 3)]
    ends = list(itertools.accumulate(lengths))
    offsets = [0, *(ends if options.get("include_last_offset") else ends[:-1])]
    indices = [choose.randrange(ROWS) for _ in range(ends[-1])]
    weights = [choose.uniform(-1, 1) for _ in indices]
    return torch.tensor(indices), torch.tensor(offsets), torch.tensor(weights)


def step(table: Tensor, indices: Tensor, offsets: Tensor, weights: Tensor | None, options: dict[str, Any]) -> Tensor:
    return functional.embedding_bag(indices, table, offsets, per_sample_weights=weights, **options).sin()


def run(
    call: Any, table: Tensor, given: tuple[Tensor, ...], is_weighted: bool, options: dict[str, Any]
) -> list[Tensor]:
    """Result, gradients of the table and of the weights."""
    indices, offsets, weights = (t.to(table.device) for t in given)
    leaves = [t.detach().requires_grad_() for t in (table, weights)[: 1 + is_weighted]]
    result = call(leaves[0], indices, offsets, leaves[1] if is_weighted else None, options)
    result.square().sum().backward()
    return [t.cpu() for t in (result.detach(), *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_the_cpus_and_few_programs_serve_all(
    kind: str, compiled: bool, device: torch.device, pjrt: ModuleType
) -> None:
    torch.manual_seed(0)
    options, is_weighted = KINDS[kind]
    table, choose = torch.randn(ROWS, COLUMNS), random.Random(kind)
    on_device = table.to(device)
    torch._dynamo.reset()
    call = torch.compile(step) if compiled else step  # what changes is noticed at the second step
    steps = 0
    before = pjrt.stats()["compiles"]
    for bags in (4, None):  # always as many, then another number in each step
        for _ in range(12):
            given = inputs(choose, bags or choose.randint(3, 12), options)
            expected = run(step, table, given, is_weighted, options)
            for mine, right in zip(run(call, on_device, given, is_weighted, options), expected, strict=True):
                torch.testing.assert_close(mine, right)
            steps += 1
            if steps % 12 == 7:
                before = pjrt.stats()["compiles"]
        # Sizes up to 16, 24 and 32 indices, forward and backward.
        assert pjrt.stats()["compiles"] - before <= 4, pjrt.explain_compiles()


def test_one_size_of_bags_in_two_dimensions(device: torch.device, pjrt: ModuleType) -> None:
    table = torch.randn(ROWS, COLUMNS)
    module = torch.nn.EmbeddingBag.from_pretrained(table, freeze=False)
    mine = torch.nn.EmbeddingBag.from_pretrained(table.to(device), freeze=False)
    for size in ((3, 2), (4, 5), (7, 3), (9, 9), (2, 8), (5, 5)):
        indices = torch.randint(ROWS, size)
        module.zero_grad()
        mine.zero_grad()
        results = module(indices), mine(indices.to(device))
        for result in results:
            result.square().sum().backward()
        torch.testing.assert_close(results[1].cpu(), results[0])
        torch.testing.assert_close(mine.weight.grad.cpu(), module.weight.grad)
