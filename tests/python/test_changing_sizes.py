"""Eager calls with sizes that change: a few programs for all of them, and numbers as on the CPU."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from test_compile_sizes import FUNCTIONS
from torch import Tensor
from torch.nn import functional as F

from models import GPT, data, networks
from models.workload import Step

pytestmark = pytest.mark.usefixtures("pjrt")

LENGTHS = [random.Random(7).randint(2, 128) for _ in range(40)]


def compiled_since(pjrt: ModuleType, call: Callable[[], Any]) -> collections.Counter[str]:
    """Programs by operator, of everything that is called."""
    last = max((entry["started"] for entry in pjrt.compile_log()), default=-1.0)
    call()
    return collections.Counter(
        entry["operator"].split(" up to ")[0] for entry in pjrt.compile_log() if entry["started"] > last
    )


def check(call: Callable[..., Tensor], device: torch.device, *args: Tensor) -> None:
    """One call on both devices: values, sizes, strides."""
    mine = call(*(a.to(device) for a in args))
    want = call(*(a.clone() for a in args))
    assert (mine.shape, mine.stride(), mine.dtype) == (want.shape, want.stride(), want.dtype)
    torch.testing.assert_close(mine.cpu(), want)


@pytest.mark.parametrize("group", FUNCTIONS)
def test_results_and_gradients_are_those_of_the_cpu(group: str, device: torch.device) -> None:
    for f in FUNCTIONS[group][::2]:  # the rules are the compiler's, which tries all
        for n in (5, 9, 14, 3, 16):
            torch.manual_seed(n)
            x = torch.rand(3, n, 4)
            mine, want = x.to(device).requires_grad_(), x.clone().requires_grad_()
            ours, theirs = f(mine), f(want)
            assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
            torch.testing.assert_close(ours.cpu(), theirs)
            if theirs.requires_grad:
                weight = torch.rand(theirs.shape, dtype=theirs.dtype)
                ours.backward(weight.to(device))
                theirs.backward(weight)
                assert mine.grad is not None
                torch.testing.assert_close(mine.grad.cpu(), want.grad, rtol=1e-4, atol=1e-4)  # a mistake is larger


CALLS: dict[str, tuple[Callable[..., Tensor], Callable[[int], tuple[Tensor, ...]]]] = {
    "relu": (torch.relu, lambda n: (torch.randn(4, n, 32),)),
    "softmax of a square": (lambda x: x.softmax(-1), lambda n: (torch.randn(2, n, n),)),
    "product": (torch.matmul, lambda n: (torch.randn(3, n, 24), torch.randn(24, 16))),
    "product with its transpose": (lambda x: x @ x.mT, lambda n: (torch.randn(4, n, 24),)),
    "sort": (lambda x: x.sort(-1, descending=True)[0], lambda n: (torch.randn(3, n),)),
    "in place": (lambda x: x.mul_(0.5), lambda n: (torch.randn(4, n, 3),)),
    "a cache's first part": (lambda x: torch.cat([x.new_empty(0), x], 1), lambda n: (torch.randn(2, n, 6),)),
    "cast": (lambda x: x.to(torch.int64), lambda n: (torch.randn(4, n) * 9,)),
    "a length as a number": (lambda x: x / x.shape[1], lambda n: (torch.randn(3, n),)),
    "pad": (lambda x: F.pad(x, (1, 2), value=0.5), lambda n: (torch.randn(3, n),)),
    "convolution": (lambda x, w: F.conv1d(x, w, padding=1), lambda n: (torch.randn(2, 3, n), torch.randn(5, 3, 3))),
    "norm": (lambda x: F.layer_norm(x, (24,)), lambda n: (torch.randn(2, n, 24),)),
    "the last one": (lambda x: x[:, -1] * 2, lambda n: (torch.randn(5, n, 8),)),
}


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("name", CALLS)
def test_forty_lengths_take_a_handful_of_programs(name: str, device: torch.device, pjrt: ModuleType) -> None:
    call, arguments = CALLS[name]
    calls = compiled_since(pjrt, lambda: [check(call, device, *arguments(n)) for n in LENGTHS])
    assert calls and max(calls.values()) <= (10 if name == "the last one" else 6), calls
    with pjrt.no_compile():
        for n in LENGTHS[::-1]:
            check(call, device, *arguments(n))


@pytest.mark.usefixtures("strict", "exact_sizes")
def test_the_switch_gives_each_length_its_program(device: torch.device, pjrt: ModuleType) -> None:
    calls = compiled_since(pjrt, lambda: [check(torch.tanh, device, torch.randn(4, n, 31)) for n in LENGTHS])
    assert calls == {"aten::tanh": len(set(LENGTHS))}


def test_a_model_learns_from_texts_of_all_lengths(device: torch.device, pjrt: ModuleType) -> None:
    """Lengths within two bounds, then others: the losses of the CPU, and nothing is compiled any more."""
    lengths = [12, 20, 9, 30, 14, 24]
    late = [10, 27, 15, 18, 31]
    job = replace(GPT, network=lambda: networks.TinyGPT(data.vocabulary(), 64, layers=1))
    batches = job.batches(len(lengths) + len(late))
    ours, theirs = Step(job, device), Step(job, torch.device("cpu"))

    def step(n: int) -> None:
        x, y = (t[:, :n].contiguous() for t in batches.pop())
        assert ours(x.to(device), y.to(device)).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)

    for n in lengths:
        step(n)
    with pjrt.no_compile():
        for n in late:
            step(n)


def test_a_model_of_one_size_runs_programs_of_that_size(run_python: Callable[..., Any]) -> None:
    code = """
import sys; sys.path.insert(0, "tests")
import torch_pjrt
from models import CNN
from models.workload import Step
step = Step(CNN, torch.device(D))
for x, y in CNN.batches(4):
    step(x.to(D), y.to(D)).item()
print([entry["operator"] for entry in torch_pjrt.compile_log() if " up to " in entry["operator"]])
"""
    assert run_python(code, check=True).stdout == "[]\n"


@pytest.mark.usefixtures("strict")
def test_sizes_that_stay_get_their_own_program(device: torch.device, pjrt: ModuleType) -> None:
    """The same line for models of several widths, each for many steps; two sizes in turn are no such thing."""

    def row(*sizes: int) -> collections.Counter[str]:
        return compiled_since(pjrt, lambda: [check(torch.asinh, device, torch.randn(3, n)) for n in sizes])

    row(5, 9, 14)
    assert not row(*[12, 15] * 260)
    assert row(*[12] * 260) == {"aten::asinh": 1}
    assert "same in 256 steps" in pjrt.compile_log()[-1]["reason"]


@pytest.mark.usefixtures("strict")
def test_the_newest_column_of_what_grows_never_stays(device: torch.device, pjrt: ModuleType) -> None:
    """The sizes of the view are the same in every step; its strides and its offset are not."""

    def grow(first: int, last: int) -> collections.Counter[str]:
        def call() -> None:
            for n in range(first, last):
                x = torch.randn(3, n)
                torch.testing.assert_close(x.to(device)[:, -1:].acosh().cpu(), x[:, -1:].acosh(), equal_nan=True)

        return compiled_since(pjrt, call)

    grow(4, 20)
    assert grow(20, 120).total() <= 3  # a bound of the storage each


def test_what_is_written_in_place_is_seen_by_every_view(device: torch.device) -> None:
    for n in (5, 9, 14, 30, 33, 16):
        x = torch.randn(3, n, 4)
        mine, want = x.to(device), x.clone()
        views = [(t, t[:, 1:], t.transpose(0, 1), t[1]) for t in (mine, want)]
        for t, tail, turned, row in views:
            t.add_(1)
            tail.mul_(3)
            turned.sub_(t.transpose(0, 1) * 0.5)
            row.copy_(t[2] * 2)
            t[:, -1] = 7
        for ours, theirs in zip(*views, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)


def test_a_write_leaves_alone_what_lies_beside_it(device: torch.device) -> None:
    """The same storage, also where it is larger than the view that is written."""
    for n in (5, 9, 14, 30, 33, 16):
        x = torch.randn(40, 4)
        mine, want = x.to(device), x.clone()
        for t in (mine, want):
            t[:n].mul_(2)
            t[3 : n + 1].add_(t[:1])
            t[n:].neg_()
        torch.testing.assert_close(mine.cpu(), want)


def test_two_names_of_one_storage_grow_together(device: torch.device) -> None:
    for n in (5, 9, 14, 30, 33, 16):
        x = torch.randn(n, 4)
        mine = x.to(device)
        alias, flat = mine.detach(), mine.view(-1)
        torch.testing.assert_close((mine * 2).cpu(), x * 2)
        flat += 1
        torch.testing.assert_close(alias.cpu(), x + 1)
        assert alias.data_ptr() == mine.data_ptr()


def test_mistakes_are_still_mistakes(device: torch.device) -> None:
    for n in (5, 9, 14, 30):
        x = torch.randn(3, n, device=device)
        (x + x).cpu()
        (x @ x.T).cpu()
        torch.cat([x, x], 1).cpu()
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(30\) must match the size of tensor b \(31\)"):
        x + torch.randn(3, 31, device=device)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 1"):
        torch.cat([x, x[:2]], 1)
    for n in (5, 9, 14):
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.zeros(1, n, device=device).expand(3, n).add_(1)
        with pytest.raises(IndexError, match="index out of range in self"):
            F.embedding(torch.full((2, n), 7, device=device), torch.zeros(7, 4, device=device))


@pytest.mark.usefixtures("strict")
def test_an_operator_without_a_rule_says_so(device: torch.device, pjrt: ModuleType) -> None:
    for n in (5, 9, 14, 30):
        check(lambda x: x.cummax(1)[0], device, torch.randn(3, n))
    reasons = [entry["reason"] for entry in pjrt.compile_log() if entry["operator"].startswith("aten::cummax")]
    assert "each size compiles anew: aten.cummax.default: has no rule for sizes that change" in reasons[-1]


@pytest.mark.usefixtures("strict")
def test_a_forbidden_compile_spoils_nothing(device: torch.device, pjrt: ModuleType) -> None:
    for n in (5, 9):
        check(torch.erf, device, torch.randn(3, n, 6))
    x = torch.randn(3, 14, 6).to(device)
    with pytest.raises(RuntimeError, match="erf"), pjrt.no_compile():
        torch.erf(x)
    check(torch.erf, device, torch.randn(3, 14, 6))
    with pjrt.no_compile():
        check(torch.erf, device, torch.randn(3, 15, 6))


def test_the_default_device_makes_no_difference(device: torch.device) -> None:
    with torch.device(device):
        for n in (5, 9, 14, 30):
            x = torch.rand(3, n)
            torch.testing.assert_close((x * 3 / n).cpu(), x.cpu() * 3 / n)


def test_random_numbers_are_those_of_the_seed(device: torch.device) -> None:
    def draw() -> list[Tensor]:
        torch.manual_seed(3)
        return [F.dropout(torch.rand(4, n, device=device), 0.5).cpu() for n in (5, 9, 14, 30, 12)]

    first, second = draw(), draw()
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
