"""Every module of PyTorch's database is in the state that ``expected.tsv`` says, in training and in evaluation mode."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_flatten

from ops import board, expected
from ops.conftest import Settle

KIND = "module"
ENTRIES: dict[str, ModuleInfo] = {info.name: info for info in module_db}
SUBSET = 3  # inputs of a module, in each mode, in the normal run
# One of each family in float64 too.
DOUBLE = """nn.BatchNorm2d nn.Conv2d nn.CrossEntropyLoss nn.GELU nn.LSTM nn.LayerNorm nn.Linear nn.MaxPool2d
    nn.MultiheadAttention""".split()
CELLS = [(name, torch.float32) for name in ENTRIES] + [(name, torch.float64) for name in DOUBLE]


def inputs_of(info: ModuleInfo, dtype: torch.dtype, training: bool, most: int | None) -> list[ModuleInput]:
    board.seed()
    every = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    return board.spread(list(every), most)


def built(info: ModuleInfo, given: ModuleInput, dtype: torch.dtype, training: bool) -> nn.Module:
    board.seed()
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    return module.to(dtype).train(training)


Call = tuple[tuple[Any, ...], tuple[()], dict[str, Any]]


def values(module: nn.Module, call: Call) -> board.Value:
    """Results, gradients of inputs and parameters, and the buffers afterwards."""
    args, _, keywords = call
    inputs = [t for t in tree_flatten((args, keywords))[0] if isinstance(t, Tensor) and t.requires_grad]
    result = module(*args, **keywords)
    outputs = [t for t in tree_flatten(result)[0] if isinstance(t, Tensor) and t.requires_grad]
    leaves = inputs + [p for p in module.parameters() if p.requires_grad]
    seeds = [board.cotangent(t) for t in outputs]
    grads = torch.autograd.grad(outputs, leaves, seeds, allow_unused=True) if outputs else []
    return result, grads, dict(module.named_buffers())


def inferred(module: nn.Module, call: Call) -> board.Value:
    """Without gradients: attention and encoders have other operators for that."""
    with torch.no_grad():
        return module(*call[0], **call[2])


def check(
    info: ModuleInfo,
    given: ModuleInput,
    dtype: torch.dtype,
    training: bool,
    device: torch.device,
    f: Callable[[nn.Module, Call], board.Value],
) -> None:
    module = built(info, given, dtype, training)
    sample = SampleInput(given.forward_input.args, kwargs=given.forward_input.kwargs)
    if info.is_lazy:  # its parameters, which are drawn on the device that the first input is on
        fresh = copy.deepcopy(module).to(device)
        board.compare(
            inferred(fresh, board.moved(sample, device)),
            inferred(module, board.copied(sample)),
            None,
            random=True,
        )
        board.compare(fresh.state_dict(), module.state_dict(), None, random=True)
    on_device = copy.deepcopy(module).to(device)
    higher = copy.deepcopy(module)
    expected_values = f(module, board.copied(sample))
    got, error = board.raised(lambda: f(on_device, board.moved(sample, device)))
    board.refuse(error, None)
    if error is not None:
        raise board.Disagreement(f"{board.describe(error)} instead of a result") from error

    def exact() -> board.Value:
        return f(higher.to(board.HIGHER[dtype]), board.copied(board.higher(sample, dtype)))

    tolerance = board.widest_tolerance(info.decorators, dtype)
    board.agree(got, expected_values, tolerance, False, exact if dtype in board.HIGHER else None)


def checks(
    info: ModuleInfo, dtype: torch.dtype, device: torch.device, most: int | None
) -> Iterator[Callable[[], None]]:
    for training in (True, False):
        for given in inputs_of(info, dtype, training, most):
            yield lambda g=given, t=training: check(info, g, dtype, t, device, values)
            if not training:
                yield lambda g=given: check(info, g, dtype, False, device, inferred)


@pytest.mark.parametrize(("entry", "dtype"), CELLS, ids=[f"{e}-{expected.name_of(d)}" for e, d in CELLS])
def test_module(entry: str, dtype: torch.dtype, device: torch.device, full: bool, settle: Settle) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = board.judge(checks(ENTRIES[entry], dtype, device, None if full else SUBSET))
    settle(entry, KIND, dtype, found)


def test_the_file_lists_nothing_else() -> None:
    assert expected.listed(KIND) <= {(e, KIND, expected.name_of(d)) for e, d in CELLS}
