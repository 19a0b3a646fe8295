"""Optimizers, clipping and loss scaling where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

FUSED: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "Adam with amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("make", FUSED.values(), ids=FUSED.keys())
def test_a_fused_step_is_skipped_or_unscaled(
    make: Callable[..., torch.optim.Optimizer], device: torch.device, no_fallbacks: None
) -> None:
    # https://github.com/pytorch/pytorch/pull/186360
    def step(scale: float | None, found: float | None) -> tuple[list[float], dict[str, object]]:
        parameter = nn.Parameter(torch.ones(4, device=device))
        optimizer = make([parameter])
        for factor in (1.0, scale):  # the first makes the state
            parameter.grad = torch.full((4,), factor or 1.0, device=device)
            if factor is scale:
                optimizer.grad_scale = None if scale is None else torch.tensor(scale, device=device)
                optimizer.found_inf = None if found is None else torch.tensor(found, device=device)
            optimizer.step()
        state = {k: v.cpu() for k, v in optimizer.state[parameter].items() if isinstance(v, Tensor)}
        return parameter.tolist(), state

    plain, _ = step(None, None)
    assert step(8.0, 0.0)[0] == pytest.approx(plain)
    once = nn.Parameter(torch.ones(4, device=device))
    once.grad = torch.ones(4, device=device)
    make([once]).step()
    skipped, state = step(8.0, 1.0)
    assert skipped == once.tolist()
    assert "step" not in state or state["step"] == 1


def test_clipping_by_a_norm_reads_nothing_back(device: torch.device, pjrt: ModuleType) -> None:
    # https://github.com/pytorch/xla/issues/2884
    parameters = [nn.Parameter(torch.ones(n, device=device)) for n in (2, 3)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 4.0)

    class Reads(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            there = any(isinstance(a, Tensor) and a.device.type == device.type for a in args)
            here = not isinstance(result, Tensor) or result.device.type == "cpu"
            if there and (func is torch.ops.aten._local_scalar_dense.default or (here and isinstance(result, Tensor))):
                self.seen.append(str(func))
            return result

    for foreach in (None, True, False):
        with Reads() as reads:
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
            nn.utils.clip_grad_value_(parameters, 0.5, foreach=foreach)
        assert reads.seen == []
    with Reads() as reads:
        float(nn.utils.get_total_norm([p.grad for p in parameters]))
    assert reads.seen, "the counter counts"


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_clipping_can_raise_for_what_is_not_finite(bad: float, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/pull/61042
    parameter = nn.Parameter(torch.ones(3, device=device))
    parameter.grad = torch.tensor([1.0, bad, 1.0], device=device)
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    assert not nn.utils.clip_grad_norm_([parameter], 1.0).isfinite()


def test_a_scaler_skips_halves_and_grows(device: torch.device, no_fallbacks: None) -> None:
    # https://github.com/pytorch/pytorch/issues/147731, https://github.com/pytorch/pytorch/issues/119358
    parameter = nn.Parameter(torch.ones(53, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, growth_interval=2)
    scales = []
    for factor in (1.0, float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        before = parameter[0].item()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (parameter[0].item() == before) == (factor != 1.0)
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 512.0, 512.0, 1024.0]


def test_autocast_names_the_dtypes_that_it_takes(device: torch.device, pjrt: ModuleType) -> None:
    # https://github.com/pytorch/pytorch/pull/138423
    with pytest.warns(UserWarning) as caught, torch.autocast(device.type, torch.int8):
        pass
    text = " ".join(str(warning.message) for warning in caught)
    for dtype in getattr(torch, device.type).get_amp_supported_dtype():
        assert str(dtype) in text, text
