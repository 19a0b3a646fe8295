"""Every optimizer of PyTorch's database, with every configuration and implementation, steps as on the CPU."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._pytree import tree_map_only

import torch_pjrt
from ops import board, expected
from ops.conftest import Settle

KIND = "optimizer"
DTYPE = torch.float32
STEPS = 7
WARM_UP = 2  # steps that may compile
# Optimizers that do something else in a later step.
LATER = {
    "RAdam": 6,  # the variance is trusted from the sixth step
}
SHAPES = [(3, 4), (4,), (0,), (2, 3, 2), ()]
MATRICES = [(3, 4), (5, 2)]  # what Muon takes


def implementations(info: OptimizerInfo) -> list[str]:
    return ["for_loop", *info.supported_impls] if info.supported_impls else [""]


ENTRIES: dict[str, tuple[OptimizerInfo, str]] = {
    f"{info.name}.{way}".removesuffix("."): (info, way) for info in optim_db for way in implementations(info)
}


def configurations(info: OptimizerInfo, way: str) -> Iterator[dict[str, Any]]:
    # "cuda" is PyTorch's word for a device that can do everything: it adds capturable.
    for given in info.optim_inputs_func("cuda"):
        if way == "differentiable" and given.kwargs.get("capturable"):
            continue  # the path that the CPU takes instead has other gradients
        yield {**given.kwargs, **{name: name == way for name in info.supported_impls}}


def for_cpu(keywords: dict[str, Any]) -> dict[str, Any]:
    """The same configuration where PyTorch does not offer capturable, nor the tensors that only that allows."""
    if not keywords.get("capturable"):
        return keywords
    numbers = tree_map_only(Tensor, lambda t: t.item(), {k: v for k, v in keywords.items() if k != "capturable"})
    return dict(numbers)


def wave(shape: tuple[int, ...], phase: float, dtype: torch.dtype) -> Tensor:
    """Values of both signs without a pattern that a step could cancel."""
    count = int(torch.Size(shape).numel())
    return torch.arange(1, count + 1, dtype=torch.float64).mul(0.7).add(phase).sin().reshape(shape).to(dtype)


def gradient(p: Tensor, k: int, step: int, sparse: bool) -> Tensor:
    grad = wave(tuple(p.shape), 1.3 * step + k, p.dtype).to(p.device)
    return grad.to_sparse() if sparse else grad


def after_steps(
    info: OptimizerInfo, keywords: dict[str, Any], device: torch.device, dtype: torch.dtype, warm_up: int = STEPS
) -> board.Value:
    """The parameters and the optimizer's state; no compile after ``warm_up`` steps."""
    shapes = MATRICES if info.name == "Muon" else SHAPES
    leaves = [wave(shape, float(k), dtype).to(device).requires_grad_() for k, shape in enumerate(shapes)]
    # A differentiable optimizer writes to what autograd has seen.
    params = [p.clone() for p in leaves] if keywords.get("differentiable") else leaves
    optimizer = info.optim_cls(params, **copy.deepcopy(keywords))

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.stack([(p * (p - wave(tuple(p.shape), 2.0, dtype).to(device))).sum() for p in params]).sum()
        total.backward()
        return total

    def step(k: int) -> None:
        if info.step_requires_closure:
            optimizer.step(loss)
            return
        for i, p in enumerate(params):
            p.grad = gradient(p, i, k, info.only_supports_sparse_grads)
        optimizer.step()

    for k in range(STEPS):
        if k < warm_up:
            step(k)
        else:
            with torch_pjrt.no_compile():
                step(k)
    result: list[board.Value] = [params]
    if not info.step_requires_closure:  # else its state is a history of small differences
        result.append([optimizer.state[p] for p in params])
    if keywords.get("differentiable"):
        result.append(torch.autograd.grad([p.sum() for p in params], leaves))
    return result


def check(info: OptimizerInfo, keywords: dict[str, Any], device: torch.device) -> None:
    run = partial(after_steps, info)
    cpu = torch.device("cpu")
    wanted, cpu_error = board.raised(lambda: run(for_cpu(keywords), cpu, DTYPE))
    got, error = board.raised(lambda: run(keywords, device, DTYPE, LATER.get(info.name, WARM_UP)))
    board.refuse(error, cpu_error)
    if type(error) is not type(cpu_error):
        raise board.Disagreement(f"{keywords}: {board.describe(error)} instead of {board.describe(cpu_error)}")
    if error is not None:
        return
    tolerance = board.widest_tolerance(info.decorators, DTYPE)
    try:
        board.agree(got, wanted, tolerance, False, lambda: run(for_cpu(keywords), cpu, board.HIGHER[DTYPE]))
    except board.Disagreement as disagreement:
        raise board.Disagreement(f"{keywords}: {disagreement}") from None


@pytest.mark.parametrize("entry", ENTRIES)
def test_optimizer(entry: str, device: torch.device, settle: Settle) -> None:
    info, way = ENTRIES[entry]
    checks: list[Callable[[], None]] = [partial(check, info, c, device) for c in configurations(info, way)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = board.judge(checks)
    settle(entry, KIND, DTYPE, found)


def test_the_file_lists_nothing_else() -> None:
    assert expected.listed(KIND) <= {(e, KIND, expected.name_of(DTYPE)) for e in ENTRIES}
