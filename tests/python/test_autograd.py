"""Gradients are the CPU's: of many operators, of gradients, across devices, through hooks."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + 2 * b,
    "sub": lambda a, b: torch.sub(a, b, alpha=3),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b.abs() + 1),
    "pow": lambda a, b: (a.abs() + 0.5) ** b,
    "square": lambda a, b: a**2 + b.square(),
    "exp and log": lambda a, b: a.exp() + (b.abs() + 1).log(),
    "sqrt and rsqrt": lambda a, b: (a.abs() + 1).sqrt() + (b.abs() + 1).rsqrt(),
    "sin and cos": lambda a, b: a.sin() * b.cos(),
    "tanh and sigmoid": lambda a, b: a.tanh() + b.sigmoid(),
    "relu": lambda a, b: a.relu() + functional.leaky_relu(b),
    "gelu and silu": lambda a, b: functional.gelu(a) + functional.silu(b),
    "gelu by tanh": lambda a, b: functional.gelu(a, approximate="tanh") * b,
    "abs and neg": lambda a, b: a.abs() - (-b),
    "maximum and minimum": lambda a, b: torch.maximum(a, b) - torch.minimum(a, b),
    "clamp": lambda a, b: a.clamp(-0.5, 0.5) * b.clamp(min=0.1),
    "where": lambda a, b: torch.where(a > b, a, b * 2),
    "matmul": lambda a, b: a @ b.t(),
    "linear": lambda a, b: functional.linear(a, b, b[:, 0]),
    "sum": lambda a, b: a.sum(0) + b.sum(0, keepdim=True),
    "mean and var": lambda a, b: a.mean(1) + b.var(1) + a.std(1),
    "amax": lambda a, b: a.amax(1) + b.amin(1),
    "max and its index": lambda a, b: a.max(1).values * b[:, 0],
    "prod": lambda a, b: a.prod(1) + b.sum(),
    "norm": lambda a, b: a.norm() + torch.linalg.vector_norm(b, dim=1).sum(),
    "cumsum": lambda a, b: a.cumsum(1) * b,
    "logsumexp": lambda a, b: a.logsumexp(1) + b.logsumexp(0).sum(),
    "softmax": lambda a, b: a.softmax(1) * b.log_softmax(0),
    "cat and stack": lambda a, b: torch.cat([a, b, a]).sum(0) + torch.stack([a, b]).prod(0),
    "transposes": lambda a, b: a.t().reshape(4, 3) * b.permute(1, 0).contiguous().view(4, 3),
    "expand and repeat": lambda a, b: a[:1].expand(3, 4) * b.repeat(1, 2)[:, 2:6],
    "index": lambda a, b: a[[0, 2, 2]] * b[:, torch.tensor([3, 0, 0, 1])],
    "index_select": lambda a, b: a.index_select(1, torch.tensor([0, 0, 2], device=a.device)).sum() * b,
    "gather": lambda a, b: a.gather(1, torch.tensor([[0, 3], [1, 1], [2, 0]], device=a.device)).sum() * b,
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 0.0) * b,
    "pad and slices": lambda a, b: functional.pad(a, (1, 2))[:, ::2] * b[:, :1],
    "tril": lambda a, b: a.tril() + b.triu(1),
    "layer_norm": lambda a, b: functional.layer_norm(a, (4,), b[0], b[1]),
    "mse and l1": lambda a, b: functional.mse_loss(a, b) + functional.l1_loss(a, b) + functional.smooth_l1_loss(a, b),
    "binary cross-entropy": lambda a, b: functional.binary_cross_entropy_with_logits(a, b.sigmoid()),
    "cross-entropy": lambda a, b: functional.cross_entropy(a * b, torch.tensor([0, 3, 1], device=a.device)),
    "conv2d": lambda a, b: functional.conv2d(a.view(1, 1, 3, 4), b.view(1, 1, 3, 4)[:, :, :2, :2], padding=1),
    "max_pool2d": lambda a, b: functional.max_pool2d(a.view(1, 1, 3, 4), 2, stride=1) * b.sum(),
    "avg_pool2d": lambda a, b: functional.avg_pool2d(a.view(1, 1, 3, 4), 2) * b.mean(),
    "attention": lambda a, b: functional.scaled_dot_product_attention(
        a.view(1, 1, 3, 4), b.view(1, 1, 3, 4), b.view(1, 1, 3, 4), is_causal=True
    ),
    "embedding": lambda a, b: functional.embedding(torch.tensor([2, 0, 2], device=a.device), a) * b,
    "in-place chain": lambda a, b: (a * 1).mul_(b).add_(1).relu_(),
}


def inputs(where: torch.device | str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, 4, generator=generator).to(where).requires_grad_() for _ in range(2))
    return a, b


def value_and_gradients(function: Callable[[Tensor, Tensor], Tensor], where: torch.device | str) -> list[Tensor]:
    a, b = inputs(where)
    out = function(a, b)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(where)
    gradients = torch.autograd.grad((out * weights).sum(), (a, b), allow_unused=True)
    return [part.detach().cpu() for part in (out, *gradients) if part is not None]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_value_and_gradients_are_the_cpus(
    function: Callable[[Tensor, Tensor], Tensor], device: torch.device, no_fallbacks: None
) -> None:
    actual, expected = (value_and_gradients(function, where) for where in (device, "cpu"))
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mul", "exp and log", "tanh and sigmoid", "matmul", "softmax", "pow", "layer_norm"])
def test_second_derivatives_are_the_cpus(name: str, device: torch.device) -> None:
    def run(where: torch.device | str) -> list[Tensor]:
        a, b = inputs(where)
        first = torch.autograd.grad(FUNCTIONS[name](a, b).square().sum(), (a, b), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (a, b))
        return [part.cpu() for part in second]

    for mine, theirs in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_gradients_accumulate_and_are_cleared(device: torch.device) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0] * 3
    assert x.grad.device == x.device
    optimizer = torch.optim.SGD([x], lr=0.1)
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0.0] * 3
    optimizer.zero_grad()
    assert x.grad is None


def test_a_graph_may_cross_devices(device: torch.device) -> None:
    weight = torch.full((3,), 2.0, requires_grad=True)
    x = torch.ones(3, device=device, requires_grad=True)
    loss = ((weight.to(device) * x).cpu() * weight).sum()
    loss.backward()
    assert weight.grad is not None
    assert x.grad is not None
    assert weight.grad.device.type == "cpu"
    assert weight.grad.tolist() == [4.0] * 3
    assert x.grad.tolist() == [4.0] * 3


def test_hooks_see_and_change_gradients(device: torch.device) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    seen: list[torch.device] = []
    x.register_hook(lambda gradient: seen.append(gradient.device) or gradient * 10)
    (x * 3).sum().backward()
    assert seen[0].type == device.type
    assert x.grad is not None
    assert x.grad.tolist() == [30.0, 30.0]


def test_backward_runs_where_it_is_called(device: torch.device) -> None:
    found = []

    def backward() -> None:
        x = torch.ones(3, device=device, requires_grad=True)
        y = x.exp()
        y.register_hook(lambda _: found.append(threading.get_ident()))
        y.sum().backward()
        found.append(threading.get_ident())

    backward()
    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    assert found[0] == found[1] != found[2] == found[3]
    with torch.autograd.set_multithreading_enabled(True):
        backward()
    assert found[4] != found[5]


def test_no_grad_and_inference_mode_record_nothing(device: torch.device) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        y[0] = 3
        assert y.is_inference()
        assert y.tolist() == [3.0, 3.0]
    assert x.detach().requires_grad is False


def test_a_custom_function_saves_tensors(device: torch.device) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 3 * x * x

    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 12.0]


def test_forward_mode_gives_the_same_derivative(device: torch.device) -> None:
    x = torch.tensor([0.5, 1.0], device=device)
    _, tangent = torch.func.jvp(lambda t: t.sin() * t, (x,), (torch.ones_like(x),))
    expected = x.cpu().cos() * x.cpu() + x.cpu().sin()
    torch.testing.assert_close(tangent.cpu(), expected)


def test_a_vectorised_gradient_equals_a_loop(device: torch.device) -> None:
    weight = torch.linspace(-1, 1, 6, device=device).view(3, 2)
    batch = torch.linspace(0, 2, 8, device=device).view(4, 2)
    gradient = torch.func.grad(lambda w, x: (w @ x).tanh().sum())
    together = torch.func.vmap(gradient, in_dims=(None, 0))(weight, batch)
    single = torch.stack([gradient(weight, x) for x in batch])
    torch.testing.assert_close(together.cpu(), single.cpu())


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with Nesterov momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True
    ),
    "fused SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "foreach Adam with amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, foreach=True),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "fused AdamW with amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True, fused=True),
    "foreach AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "AdamW of a tensor rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), foreach=False),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("last_is_empty", [False, True], ids=["", "with an empty parameter"])
def test_an_optimizer_steps_as_on_the_cpu(
    make: Callable[..., torch.optim.Optimizer], last_is_empty: bool, device: torch.device, no_fallbacks: None
) -> None:
    def run(where: torch.device | str) -> list[Tensor]:
        parameters = [
            nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3).to(where)),
            nn.Parameter(torch.ones(4).to(where)),
        ]
        if last_is_empty:
            parameters.append(nn.Parameter(torch.empty(0).to(where)))
        optimizer = make(parameters)
        for step in range(3):
            optimizer.zero_grad()
            sum((parameter.square() * (step + 1)).sum() for parameter in parameters).backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in parameters]

    for mine, theirs in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_clipping_gives_the_cpus_norm(device: torch.device, no_fallbacks: None) -> None:
    def run(where: torch.device | str) -> tuple[float, list[float]]:
        parameters = [nn.Parameter(torch.ones(n).to(where)) for n in (2, 3)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 4.0)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        return norm.item(), [parameter.grad[0].item() for parameter in parameters if parameter.grad is not None]

    (norm, gradients), (expected_norm, expected) = run(device), run("cpu")
    assert norm == pytest.approx(expected_norm)
    assert gradients == pytest.approx(expected)
