"""A plugin that fails: every fault is a Python exception of the right type with the operator and the user's line, the
process goes on, and no buffer stays behind. Also chips that lack much of what the CPU plugin has.

The plugin is the CPU's behind ``tests/fake_plugin/forwarding_plugin.cpp``; each case runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from chips import profiles

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("TORCH_PJRT_TEST_DEVICE")), reason="about torch_pjrt"),
    pytest.mark.skipif(not profiles.FAKE.exists(), reason=profiles.NO_FAKE),
]

# PJRT_Error_Code
INTERNAL, UNAVAILABLE, RESOURCE_EXHAUSTED, INVALID_ARGUMENT, UNIMPLEMENTED = 13, 14, 8, 3, 12

PREAMBLE = f"""
import ctypes, gc, time, torch
import torch_pjrt
fake = ctypes.CDLL({str(profiles.FAKE)!r})
D = torch_pjrt.device_name()

def plan(kind, calls=0, code={INTERNAL}):
    fake.fake_plan(kind.encode(), calls, code)

def count(what):
    gc.collect()
    return fake.fake_count(what.encode())

def error_of(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")

"""


def run(script: str, timeout: float = 120, **environment: str) -> str:
    """Runs the script behind the fake plugin; it must end by itself, silently and with status 0."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **profiles.environment(), "TORCH_PJRT_EAGER": "strict", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=profiles.ROOT / "tests",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(body: str, **environment: str) -> None:
    """Runs the body twice, with an ``x`` of ones of another size, so that there is something to compile.

    The second time must leave as many buffers as the first one: numbers that are arguments stay on the device.
    """
    rounds = """
left = []
for n in (4, 5):
    body(torch.ones(n, n).to(D), n)
    assert (torch.ones(n, n).to(D) * 3).sum().item() == 3 * n * n  # it goes on
    left.append(count("buffers"))
assert left[1] <= left[0], left
"""
    run(PREAMBLE + "def body(x, n):\n" + textwrap.indent(body, "    ") + rounds, **environment)


def test_a_compile_that_fails() -> None:
    check("""
plan("compile")
text = error_of(lambda: x.exp(), RuntimeError)
assert "aten::exp" in text and "planned failure of compile" in text and "<string>:" in text, text
assert x.exp().sum().item() > 2.7 * n * n  # the next try compiles
""")


def test_a_compile_without_memory() -> None:
    check(f"""
plan("compile", code={RESOURCE_EXHAUSTED})
assert "aten::exp" in error_of(lambda: x.exp(), torch.OutOfMemoryError)
""")


def test_an_execution_that_fails_at_once() -> None:
    check("""
plan("execute")
text = error_of(lambda: x + x, RuntimeError)
assert "aten::add" in text and "planned failure of execute" in text, text
""")


def test_an_execution_without_memory() -> None:
    check(f"""
plan("execute", code={RESOURCE_EXHAUSTED})
assert "aten::add" in error_of(lambda: x + x, torch.OutOfMemoryError)
""")


@pytest.mark.parametrize("write", ["x + x", "x.clone().add_(1)", "torch.add(x, x, out=torch.empty_like(x))"])
def test_an_execution_that_fails_later(write: str) -> None:
    """The error comes where the value is needed, and names who was to compute it."""
    check(f"""
plan("event")
y = {write}
text = error_of(lambda: y.cpu(), RuntimeError)
assert "aten::" in text and "planned failure of event" in text, text
del y
""")


def test_what_depends_on_a_failed_value_fails_too_or_reads_it() -> None:
    check("""
plan("event")
y = x + x
error_of(lambda: torch.accelerator.synchronize() or y.sum().item(), RuntimeError)
del y
""")


@pytest.mark.parametrize("direction", ["torch.ones(64, 64).to(D)", "x.cpu()"])
def test_a_transfer_that_fails(direction: str) -> None:
    check(
        f"""
plan("transfer")
assert "planned failure of transfer" in error_of(lambda: {direction}, RuntimeError)
""",
        TORCH_PJRT_CAPABILITIES="host_visible_buffers=false",
    )


def test_a_device_that_is_lost_and_comes_back() -> None:
    check("""
fake.fake_lose_device(1)
for call in (lambda: x + x, lambda: torch.ones(3, 3).to(D), lambda: x.sin()):
    assert "the fake device is lost" in error_of(call, RuntimeError)
fake.fake_lose_device(0)
""")


def test_slow_events_are_waited_for() -> None:
    check(
        """
fake.fake_slow_events(50)
start = time.perf_counter()
assert (x + x).sum().item() == 2 * n * n
assert time.perf_counter() - start > 0.04
fake.fake_slow_events(0)
""",
        TORCH_PJRT_CAPABILITIES="host_visible_buffers=false",
    )


def test_an_optimizer_step_that_fails_leaves_its_parameters() -> None:
    check("""
p = torch.nn.Parameter(torch.ones(n, n, device=D))
optimizer = torch.optim.SGD([p], lr=0.5, momentum=0.9)
p.grad = torch.ones_like(p)
optimizer.step()
p.grad = torch.ones_like(p)
old = p.detach().cpu()
plan("execute")
error_of(optimizer.step, RuntimeError)
assert torch.isfinite(p.detach().cpu()).all()
del p, optimizer
""")


def test_a_backward_that_fails() -> None:
    check("""
w = torch.ones(n, n, device=D, requires_grad=True)
loss = (w * x).exp().sum()
plan("execute", 1)
assert "planned failure of execute" in error_of(loss.backward, RuntimeError)
loss = (w * x).sum()
loss.backward()
assert w.grad is not None
del w, loss
""")


@pytest.mark.parametrize("kind", ["compile", "execute"])
def test_a_graph_that_fails_once_runs_call_by_call(kind: str) -> None:
    check(
        f"""
plan("{kind}")
y = (x + x).exp().sum()
assert abs(y.item() - 7.389056 * n * n) < 1e-3
del y
""",
        TORCH_PJRT_EAGER="fused",
    )


def test_a_graph_that_cannot_run_says_which_call_and_breaks_no_other() -> None:
    check(
        """
good, z = x * 5, x * 7
good.cpu()
fake.fake_lose_device(1)
y = (x + x).exp().sum()
for i in range(2):  # again and again
    text = error_of(lambda: y.item(), RuntimeError)
    assert "the fake device is lost" in text and "[aten::add.Tensor]" in text and "<string>:" in text, text
fake.fake_lose_device(0)
text = error_of(lambda: y + 1, RuntimeError)
assert "[aten::add.Tensor]" in text, text
assert good.sum().item() == 5 * n * n
del y, z, good
""",
        TORCH_PJRT_EAGER="fused",
    )


def test_a_value_of_a_graph_that_fails_later() -> None:
    check(
        """
plan("event")
y = (x + x) * 2
text = error_of(lambda: y.cpu(), RuntimeError)
assert "aten::mul" in text and "planned failure of event" in text, text
del y
""",
        TORCH_PJRT_EAGER="fused",
    )


TRAINING = """
import torch, torch_pjrt
from models import zoo
from models.workload import train
for name in ("cnn", "gpt"):
    losses = list(train(zoo.ALL[name], torch.device(torch_pjrt.device_name()), 4))
    print(name, *losses)
assert not torch_pjrt.fallbacks(), torch_pjrt.fallbacks()
"""


@pytest.mark.parametrize("profile", ["tpu", "neuron"])
def test_a_chip_that_lacks_much_trains_to_the_same_loss(profile: str) -> None:
    import torch

    from models import zoo
    from models.workload import train

    lines = run(TRAINING, timeout=400, TORCH_PJRT_EAGER="fused", **profiles.PROFILES[profile]).splitlines()
    for line in lines:
        name, *losses = line.split()
        expected = list(train(zoo.ALL[name], torch.device("cpu"), 4))
        torch.testing.assert_close([float(v) for v in losses], expected, rtol=1e-3, atol=0)
    assert len(lines) == 2


def test_a_chip_without_64_bit_floats_says_so_at_the_call() -> None:
    run(
        PREAMBLE
        + """
text = error_of(lambda: torch.ones(3, dtype=torch.float64, device=D) * 2, NotImplementedError)
assert "float64" in text, text
text = error_of(lambda: torch.ones(3, dtype=torch.float64).to(D), NotImplementedError)
assert "float64" in text, text
""",
        **profiles.PROFILES["neuron"],
    )


def test_a_chip_without_64_bit_integers_computes_with_the_others() -> None:
    """int64 is refused at the call, never narrowed; Python's numbers are taken where they fit."""
    run(
        PREAMBLE
        + """
for make in (lambda: torch.arange(3, device=D), lambda: torch.ones(3, dtype=torch.int64).to(D),
             lambda: torch.ones(3, device=D).argmax(), lambda: torch.triu_indices(3, 3, device=D),
             lambda: torch.ones(3, device=D).unique(), lambda: torch.ones(3, dtype=torch.int32, device=D).sum()):
    text = error_of(make, NotImplementedError)
    assert "no 64-bit integers" in text and "use int32" in text, text
whole = torch.arange(12, dtype=torch.int32, device=D).view(3, 4)
assert ((whole * 3 - 7) // 2).tolist() == ((torch.arange(12).view(3, 4) * 3 - 7) // 2).tolist()
assert whole[1:, ::2].sum(dtype=torch.int32).item() == 4 + 6 + 8 + 10
assert "no 64-bit integers" in error_of(lambda: torch.rand(3, device=D), NotImplementedError)
assert "overflow" in error_of(lambda: whole + 2**40, RuntimeError)
from torch import nn
losses = {}
for device in ("cpu", D):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 32).view(8, 4).to(device)
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
    losses[device] = loss.item()
assert abs(losses[D] / losses["cpu"] - 1) < 1e-3, losses
""",
        **profiles.PROFILES["slim"],
    )


def test_a_chip_that_sorts_by_one_comparison_sorts_as_all_do() -> None:
    """NaN last, -0 equal to 0, equal ones in their order."""
    run(
        PREAMBLE
        + """
numbers = [0.0, float("nan"), -0.0, 2.5, float("-inf"), -1.0, float("inf"), -float("nan"), 0.0, -1.0, 1e-30]
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool):
    x = torch.tensor(numbers)
    x = x.to(dtype) if dtype.is_floating_point else x.nan_to_num(5, 9, -9).to(dtype)
    for descending in (False, True):
        mine = torch.sort(x.to(D), descending=descending, stable=True)
        theirs = torch.sort(x, descending=descending, stable=True)
        assert torch.equal(mine.indices.cpu(), theirs.indices), (dtype, descending)
        torch.testing.assert_close(mine.values.cpu(), theirs.values, equal_nan=True)
        assert torch.equal(mine.values.cpu().signbit(), theirs.values.signbit())
""",
        **profiles.PROFILES["neuron"],
    )
