"""Automatic mixed precision: autocast chooses dtypes, GradScaler scales and skips."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional


def test_autocast_multiplies_in_low_precision_and_sums_in_full(device: torch.device) -> None:
    a = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        product = a @ a
        assert product.dtype == torch.bfloat16
        assert functional.linear(a, a).dtype == torch.bfloat16
        assert functional.conv2d(a.view(1, 1, 4, 4), a.view(1, 1, 4, 4)).dtype == torch.bfloat16
        if device.type != "cpu":
            assert product.softmax(0).dtype == torch.float32
            assert product.exp().dtype == torch.float32
        assert functional.mse_loss(product, product).dtype == torch.float32
        assert (product + a).dtype == torch.float32
        with torch.autocast(device.type, enabled=False):
            assert (a @ a).dtype == torch.float32
    assert (a @ a).dtype == torch.float32
    torch.testing.assert_close(product.float(), a @ a, rtol=0.02, atol=0.05)


def test_autocast_state_can_be_asked(device: torch.device) -> None:
    assert not torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, torch.bfloat16):
        assert torch.is_autocast_enabled(device.type)
        assert torch.get_autocast_dtype(device.type) == torch.bfloat16


def test_autocast_without_a_dtype_has_a_default(device: torch.device) -> None:
    a = torch.ones(2, 2, device=device)
    with torch.autocast(device.type):
        assert (a @ a).dtype in (torch.bfloat16, torch.float16)


def test_autocast_of_a_dtype_that_is_not_supported_warns(device: torch.device) -> None:
    with pytest.warns(UserWarning, match="autocast"), torch.autocast(device.type, torch.int8):
        pass


def test_a_network_trains_in_bfloat16_close_to_full_precision(device: torch.device) -> None:
    def run(low: bool) -> list[float]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(16, 8, generator=generator).to(device)
        y = torch.randint(4, (16,), generator=generator).to(device)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                loss = functional.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())
        return losses

    low, full = run(True), run(False)
    assert low == pytest.approx(full, rel=0.05)
    assert low[-1] < low[0]


def test_the_scaler_scales_unscales_and_steps(device: torch.device, no_fallbacks: None) -> None:
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, growth_interval=2)
    parameter = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        scaled = scaler.scale((parameter * 2).sum())
        assert scaled.device.type == device.type
        scaled.backward()
        assert parameter.grad is not None
        assert parameter.grad[0].item() == 2048
        scaler.unscale_(optimizer)
        assert parameter.grad[0].item() == 2
        scaler.step(optimizer)
        scaler.update()
    assert parameter[0].item() == pytest.approx(0.6)
    assert scaler.get_scale() == 2048


def test_the_scaler_skips_a_step_with_infinities(device: torch.device) -> None:
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    parameter = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale((parameter * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1.0] * 3
    assert scaler.get_scale() == 512


def test_a_fused_step_obeys_found_inf_and_grad_scale(device: torch.device) -> None:
    def step(found: float) -> list[float]:
        parameter = torch.ones(4, device=device)
        torch._fused_adamw_(
            [parameter],
            [torch.full((4,), 8.0, device=device)],
            [torch.zeros(4, device=device)],
            [torch.zeros(4, device=device)],
            [],
            [torch.ones((), device=device)],
            lr=0.1,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            grad_scale=torch.full((), 8.0, device=device),
            found_inf=torch.full((), found, device=device),
        )
        return parameter.tolist()

    assert step(1.0) == [1.0] * 4
    assert step(0.0)[0] < 1.0


def test_a_scaler_keeps_its_state(device: torch.device) -> None:
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0)
    scaler.scale(torch.ones(1, device=device))
    again = torch.amp.GradScaler(device.type)
    again.load_state_dict(scaler.state_dict())
    assert again.scale(torch.ones(1, device=device)).item() == 256.0
