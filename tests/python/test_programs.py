"""What is compiled, how often and why; what is left to the CPU; strict and debug mode."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.usefixtures("strict")

Run = Callable[..., subprocess.CompletedProcess[str]]

# An operator that has no row and no decomposition; when it gets one, name another here.
WITHOUT_A_ROW = "torch.linalg.eig(torch.eye(3, device=D))"


def new_compiles(pjrt: ModuleType, call: Callable[[], object]) -> int:
    before = pjrt.stats()["compiles"]
    call()
    return pjrt.stats()["compiles"] - before


def test_lists_take_numbers_on_the_cpu_as_inputs(device: torch.device, pjrt: ModuleType) -> None:
    """As the calls one by one do: Adagrad with a learning rate in a tensor makes such lists."""
    lists = [torch.ones(3, 29, device=device), torch.ones(29, device=device)]

    def update(value: float) -> None:
        torch._foreach_mul_(lists, [torch.tensor(value), torch.tensor(value + 1)])

    assert new_compiles(pjrt, lambda: update(2.0)) == 1
    assert new_compiles(pjrt, lambda: update(3.0)) == 0
    assert lists[0].cpu().eq(6).all() and lists[1].cpu().eq(12).all()
    with pytest.raises(RuntimeError, match="same device"):
        torch._foreach_mul_(lists, [torch.ones(29), torch.tensor(1.0)])


@pytest.mark.parametrize("name", ["_foreach_addcdiv", "_foreach_addcmul"])
def test_lists_take_numbers_packed_in_a_tensor(name: str, device: torch.device) -> None:
    """It stands on the CPU, for any device of the lists; other ones get PyTorch's own words."""
    functional, in_place = getattr(torch, name), getattr(torch, f"{name}_")
    here, numbers = [torch.rand(3, 4) + 1, torch.rand(5) + 1], torch.tensor([2.0, 3.0])
    there = [x.to(device) for x in here]
    found, expected = functional(there, there, there, numbers), functional(here, here, here, numbers)
    in_place(there, there, there, numbers)
    torch.testing.assert_close([x.cpu() for x in found], expected)
    torch.testing.assert_close([x.cpu() for x in there], expected)
    wrong = {"on CPU, got": numbers.to(device), "length of scalars": numbers[:1], "dimension 1": numbers[None]}
    for words, given in wrong.items():
        with pytest.raises(RuntimeError, match=words):
            functional(there, there, there, given)


def test_a_thousand_learning_rates_compile_once(device: torch.device, pjrt: ModuleType) -> None:
    parameter, gradient = torch.ones(23, device=device), torch.ones(23, device=device)

    def update(rate: float) -> None:
        parameter.add_(gradient, alpha=-rate)

    assert new_compiles(pjrt, lambda: update(0.3)) <= 1
    rates = [0.001 + i / 7919 for i in range(1000)]
    assert new_compiles(pjrt, lambda: [update(rate) for rate in rates]) == 0
    expected = torch.ones(23)
    for rate in [0.3, *rates]:
        expected.add_(torch.ones(23), alpha=-rate)
    torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
def test_an_optimizer_with_a_schedule_compiles_nothing_after_two_steps(
    options: dict[str, bool], device: torch.device, pjrt: ModuleType
) -> None:
    parameter = torch.nn.Parameter(torch.ones(29, device=device))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    def step() -> None:
        optimizer.zero_grad()
        parameter.square().sum().backward()
        optimizer.step()
        schedule.step()

    step()
    step()
    assert new_compiles(pjrt, lambda: [step() for _ in range(50)]) == 0


SCALAR_CALLS: dict[str, Callable[[torch.Tensor, float], object]] = {
    "mul": lambda x, value: x * value,
    "add": lambda x, value: x + value,
    "add with alpha": lambda x, value: torch.add(x, x, alpha=value),
    "sub from a number": lambda x, value: value - x,
    "div": lambda x, value: x / value,
    "fill_": lambda x, value: x.fill_(value),
    "full": lambda x, value: torch.full((31,), value, device=x.device),
    "clamp": lambda x, value: x.clamp(-value, value),
    "greater": lambda x, value: x > value,
    "where": lambda x, value: torch.where(x > 0, x, value),
    "masked_fill": lambda x, value: x.masked_fill(x > 0, value),
    "addcmul": lambda x, value: torch.addcmul(x, x, x, value=value),
    "lerp": lambda x, value: x.lerp(x, value / 1e4),
    "pow of a number": lambda x, value: value**x,
    "item assignment": lambda x, value: x.__setitem__(3, value),
    "a 0-dim CPU tensor": lambda x, value: x * torch.tensor(value),
    "layer_norm's epsilon": lambda x, value: torch.nn.functional.layer_norm(x, (31,), eps=value / 1e6),
    "arange": lambda x, value: torch.arange(value, value + 31, device=x.device)[:31],
}


@pytest.mark.parametrize("call", SCALAR_CALLS.values(), ids=SCALAR_CALLS.keys())
def test_a_new_number_is_not_a_new_program(
    call: Callable[[torch.Tensor, float], object], device: torch.device, pjrt: ModuleType
) -> None:
    x = torch.ones(31, device=device)
    call(x, 2.5)
    call(x, 3.25)
    assert new_compiles(pjrt, lambda: [call(x, 4.5 + i / 8) for i in range(20)]) == 0


def test_the_same_call_compiles_once(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.ones(5, 37, device=device)
    x.tanh()
    hits = pjrt.stats()["hits"]
    assert new_compiles(pjrt, lambda: [x.tanh() for _ in range(10)]) == 0
    assert pjrt.stats()["hits"] >= hits + 10


def test_another_shape_or_dtype_is_another_program(device: torch.device, pjrt: ModuleType) -> None:
    torch.ones(41, device=device).sinh()
    wide, low = torch.ones(43, device=device), torch.ones(41, device=device, dtype=torch.bfloat16)
    torch.accelerator.synchronize()
    assert new_compiles(pjrt, wide.sinh) == 1
    assert new_compiles(pjrt, low.sinh) == 1


def test_the_log_says_which_operator_was_compiled_and_why(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.ones(47, device=device)
    torch.accelerator.synchronize()
    assert new_compiles(pjrt, x.cosh) == 1
    newest = pjrt.compile_log()[-1]  # the log keeps a number of them
    assert "cosh" in newest["operator"]
    assert newest["reason"]
    assert 0 < newest["seconds"] < 60


def test_statistics_have_the_promised_fields_and_can_be_reset(run_python: Run) -> None:
    code = """
import torch_pjrt
x = torch.ones(3, device=D)
x.exp(); x.exp()
stats = torch_pjrt.stats()
for name in ("compiles", "hits", "compile_seconds", "fallbacks", "live_bytes", "programs"):
    assert name in stats, name
assert stats["compiles"] >= 1 and stats["hits"] >= 1 and stats["compile_seconds"] > 0
torch_pjrt.reset_stats()
stats = torch_pjrt.stats()
assert stats["compiles"] == stats["hits"] == stats["fallbacks"] == 0 and stats["compile_seconds"] == 0
assert torch_pjrt.fallbacks() == {}
assert stats["live_bytes"] >= 12 and stats["programs"] >= 1
x.exp()
assert torch_pjrt.stats()["compiles"] == 0
"""
    run_python(code, check=True)


def test_an_operator_left_to_the_cpu_is_counted_and_warned_about_once_with_the_users_line(run_python: Run) -> None:
    code = f"""
import torch_pjrt, warnings
def user_function():
    return {WITHOUT_A_ROW}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    values, _ = user_function()
    user_function()
assert values.device.type == D
assert values.cpu().real.tolist() == [1.0, 1.0, 1.0]
counts = torch_pjrt.fallbacks()
assert len(counts) == 1, counts
(name, count), = counts.items()
assert "eig" in name and count == 2, counts
assert torch_pjrt.stats()["fallbacks"] == 2
texts = [str(warning.message) for warning in caught]
assert len(texts) == 1, texts
assert "eig" in texts[0], texts
"""
    run_python(code, check=True)


def test_the_fallback_can_be_silent(run_python: Run) -> None:
    done = run_python(WITHOUT_A_ROW, TORCH_PJRT_FALLBACK="silent")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_fallback_can_be_an_error(run_python: Run) -> None:
    done = run_python(WITHOUT_A_ROW, TORCH_PJRT_FALLBACK="error")
    assert done.returncode == 1
    assert "eig" in done.stderr
    assert "TORCH_PJRT_FALLBACK" in done.stderr


def test_an_unknown_value_of_a_switch_is_refused(run_python: Run) -> None:
    for variable in ("TORCH_PJRT_FALLBACK", "TORCH_PJRT_EAGER"):
        done = run_python("torch.ones(2, device=D) + 1", **{variable: "perhaps"})
        assert done.returncode == 1
        assert variable in done.stderr
        assert "perhaps" in done.stderr


def test_debug_mode_computes_the_same(run_python: Run) -> None:
    code = """
x = torch.arange(6.0, device=D).reshape(2, 3).requires_grad_()
(x.t() @ x).relu().sum().backward()
print(x.grad.tolist())
"""
    strict = run_python(code, check=True, TORCH_PJRT_EAGER="strict")
    debug = run_python(code, check=True, TORCH_PJRT_EAGER="debug")
    assert strict.stdout == debug.stdout
    assert debug.stderr == ""


def test_debug_mode_reports_a_late_error_at_its_line(run_python: Run) -> None:
    code = """
table = torch.ones(4, 2, device=D)
rows = torch.tensor([9], device=D)
picked = torch.nn.functional.embedding(rows, table)  # the guilty line
print("reached")
"""
    done = run_python(code, TORCH_PJRT_EAGER="debug")
    assert done.returncode == 1
    assert done.stdout == ""


def test_a_warm_step_warns_of_nothing(device: torch.device, pjrt: ModuleType) -> None:
    layer = torch.nn.Linear(3, 3).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.ones(2, 3, device=device)).sum().backward()


def test_what_was_compiled_is_explained(device: torch.device, pjrt: ModuleType) -> None:
    pjrt.reset_stats()
    for n in (61, 67):
        torch.ones(n, device=device).cosh()
    text = pjrt.explain_compiles()
    assert text.startswith(f"{len(pjrt.compile_log())} programs compiled in ") and "aten::cosh" in text
    assert "(was Float[61])" in text and "test_programs.py:" in text
    entries = json.loads(pjrt.explain_compiles("json"))
    assert [e["started"] for e in entries] == sorted(e["started"] for e in entries)
    page = pjrt.explain_compiles("html")
    assert page.startswith("<!doctype html>") and "<td>aten::cosh</td>" in page
    with pytest.raises(ValueError, match="form must be text, json or html"):
        pjrt.explain_compiles("xml")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_that_programs_compile(terminal: bool, pjrt: ModuleType) -> None:
    """From the third second on, and nothing stays of it."""
    code = """
import torch, torch_pjrt, sys
x, n = torch.ones(3000, device=torch_pjrt.device_name()), 1
while torch_pjrt.stats()["compile_seconds"] < 2.2:
    x[:n].lgamma()
    n += 1
"""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end of a terminal is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    assert (b"programs compiled in 2 s, now aten::" in said) == terminal, said
    assert said.endswith(b"\r\x1b[K") == terminal
