"""``torch_pjrt.target``: what a function costs on a chip that is not here."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from models import zoo
from models.networks import LLAMA_7B, Llama
from models.workload import Step
from torch_pjrt import targets
from torch_pjrt.targets import Target

pytestmark = pytest.mark.skipif(bool(os.environ.get("TORCH_PJRT_TEST_DEVICE")), reason="about torch_pjrt")


def make(name: str, **options: Any) -> Target:
    try:
        return targets.target(name, **options)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def v5e() -> Iterator[Target]:
    target = make("tpu:v5e")
    yield target
    target.close()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


# ---- names


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"no plugin 'abacus' compiles .*tpu"):
        targets.target("abacus:v1")
    with pytest.raises(ValueError, match=r"plugin 'tpu' knows no chip 'v9' \(it knows: v2, v3, v4, v5e"):
        targets.target("tpu:v9")


def test_a_wrong_shape_is_the_compilers_own_error() -> None:
    target = make("tpu:v5e:3x3")
    with pytest.raises(RuntimeError, match="3x3"):
        _ = target.devices
    target.close()


@pytest.mark.parametrize(("name", "kind", "gigabytes"), [("v5e", "TPU v5 lite", 16.9), ("v6e", "TPU v6 lite", 33.5)])
def test_the_compiler_describes_the_chip(name: str, kind: str, gigabytes: float) -> None:
    target = make(f"tpu:{name}")
    assert target.devices[0]["kind"] == kind
    assert target.capacity == pytest.approx(gigabytes * 1e9, rel=0.01)
    target.close()


# ---- reports


def test_memory_and_flops_of_a_product(v5e: Target) -> None:
    report = v5e.compile(nn.Linear(1024, 512), torch.empty(64, 1024))
    assert report.compiles and report.fits and report.missing == 0
    exact = 4 * (1024 * 512 + 512 + 64 * 1024)
    assert report.memory["arguments"] == pytest.approx(exact, rel=0.05)
    assert report.memory["outputs"] == pytest.approx(4 * 64 * 512, rel=0.05)
    product = next(o for o in report.operators if o.operator == "aten::addmm")
    assert (product.calls, product.flops) == (1, 2 * 64 * 1024 * 512)
    assert product.where.startswith(__file__)
    assert report.lower_bound and report.lower_bound >= report.flops / v5e.chip.peak_flops
    data = json.loads(report.json())
    assert data["fits"] is True and data["memory"] == report.memory
    assert "aten::addmm" in str(report) and "aten::addmm" in report.html()


def test_a_training_step_is_one_program_and_touches_nothing(v5e: Target) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    report = v5e.compile(step, model, optimizer, torch.randn(8, 64), torch.zeros(8, dtype=torch.int64))
    assert report.compiles, report.error
    weights = sum(p.numel() for p in model.parameters()) * 4
    assert report.memory["aliased"] >= weights  # parameters are updated in place
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters()) and not optimizer.state


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"capturable": True}], ids=str)
def test_optimizers_that_have_states_already(v5e: Target, options: dict[str, bool]) -> None:
    model = nn.Linear(8, 4).to("pjrt")
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    x, y = torch.randn(2, 8), torch.zeros(2, dtype=torch.int64)
    step(model, optimizer, x.to("pjrt"), y.to("pjrt"))
    report = v5e.compile(step, model, optimizer, x, y)
    assert report.compiles, report.error
    assert report.memory["aliased"] >= 3 * 4 * (8 * 4 + 4)  # weights and two moments


@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_the_models_of_the_zoo(v5e: Target, name: str) -> None:
    workload = zoo.ALL[name]
    inputs, labels = workload.batches(1)[0]
    report = v5e.compile(Step(workload, torch.device("cpu")), inputs, labels)
    assert report.fits, str(report)


@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_a_graphics_card_that_is_not_here(name: str) -> None:
    target = make("cuda:h100")
    workload = zoo.ALL[name]
    inputs, labels = workload.batches(1)[0]
    report = target.compile(Step(workload, torch.device("cpu")), inputs, labels)
    assert report.fits, str(report)
    assert report.memory["aliased"] > 0 and report.capacity == 80 << 30
    target.close()


def test_random_numbers_need_a_generators_state(v5e: Target) -> None:
    report = v5e.compile(lambda x: nn.functional.dropout(x, 0.5), torch.empty(4, 4))
    assert report.compiles, report.error


def test_a_model_larger_than_this_machine_is_told_what_is_missing(v5e: Target) -> None:
    with torch.device("meta"):
        model, tokens = Llama(**LLAMA_7B), torch.zeros(1, 128, dtype=torch.int64)
    with torch.no_grad():
        report = v5e.compile(model, tokens)
    assert not report.compiles and not report.fits
    assert "exceeds available" in report.error
    weights = 4 * sum(p.numel() for p in model.parameters())
    assert report.missing == pytest.approx(weights - 15.75 * 2**30, rel=0.05)
    assert "missing" in str(report)


def test_the_executable_can_be_taken_away(v5e: Target) -> None:
    report = v5e.compile(lambda x: x + 1, torch.empty(4), serialize=True)
    assert len(report.executable) > 1000


# ---- refusals


def test_a_value_that_is_read_is_pytorchs_error(v5e: Target) -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException

    with pytest.raises(DataDependentOutputException):
        v5e.compile(lambda x: x * x.sum().item(), torch.ones(3))


def test_shapes_that_do_not_fit_are_pytorchs_error(v5e: Target) -> None:
    with pytest.raises(RuntimeError, match="broadcast"):
        v5e.compile(lambda x, y: x + y, torch.ones(3), torch.ones(4))


def test_what_the_chip_lacks_is_named(v5e: Target) -> None:
    with pytest.raises(NotImplementedError, match="complex128_fft"):
        v5e.compile(torch.fft.fft, torch.empty(8, dtype=torch.complex128))


REFUSED = """module @m {
  func.func @main(%0: tensor<4xf32>) -> (tensor<4xf32>) {
    %1 = "stablehlo.custom_call"(%0) {call_target_name = "no_such_kernel"} : (tensor<4xf32>) -> (tensor<4xf32>)
      loc("aten::frob"("model.py":7:0))
    "func.return"(%1) : (tensor<4xf32>) -> ()
  }
}
"""


def test_a_refusal_names_the_operator_and_the_line(v5e: Target) -> None:
    report = v5e.compile_text(REFUSED)
    assert not report.compiles
    assert "no_such_kernel" in report.error
    assert "model.py:7" in report.error and "aten::frob" in report.error


# ---- the compiler's process


def test_a_compiler_that_dies_is_an_error_message_and_starts_again(v5e: Target) -> None:
    assert v5e.devices and v5e._compiler.child
    os.kill(v5e._compiler.child.pid, signal.SIGKILL)
    v5e._compiler.child.wait()
    report = v5e.compile(lambda x: x + 1, torch.empty(4))
    assert not report.compiles and "died with SIGKILL" in report.error
    assert v5e.compile(lambda x: x + 1, torch.empty(4)).compiles


def test_a_compiler_that_takes_too_long_is_given_up() -> None:
    target = make("tpu:v5e", timeout=0.05)
    with pytest.raises(RuntimeError, match=r"did not end within 0\.05 s"):
        _ = target.devices
    target.close()
