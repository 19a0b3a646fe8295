"""PyTorch's higher-order operators in compiled functions: one program each, and the CPU's numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, map, scan, while_loop

pytestmark = pytest.mark.usefixtures("pjrt")


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """A graph that runs call by call, or anew for each size, is a failure."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile:")
        yield


def check(f: Callable[..., Any], device: torch.device, *inputs: Tensor, grad: bool = True, **options: Any) -> None:
    """The same results and gradients as on the CPU, where the function runs as PyTorch captures it."""
    found = []
    for where, backend in (("cpu", "aot_eager"), (device, "pjrt")):
        torch._dynamo.reset()
        moved = [x.to(where).requires_grad_(grad and x.is_floating_point()) for x in inputs]
        results = torch.utils._pytree.tree_leaves(torch.compile(f, backend=backend, fullgraph=True, **options)(*moved))
        wanted = [x for x in moved if x.requires_grad]
        if wanted:
            total = sum((r * r).sum() for r in results if r.is_floating_point() and r.requires_grad)
            results += torch.autograd.grad(total, wanted)
        found.append([r.detach().cpu() for r in results])
    for ours, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_runs_the_branch_that_holds(device: torch.device, sign: int) -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: (x @ y).sin(), lambda x, y: x * 2 + y, (x, y)) + 1

    check(f, device, sign * torch.rand(3, 3), torch.rand(3, 3))


def test_cond_does_not_compute_the_other_branch(device: torch.device) -> None:
    @torch.compile(backend="pjrt", fullgraph=True)
    def f(x: Tensor) -> Tensor:
        def forever(x: Tensor) -> Tensor:
            return while_loop(lambda x: x.sum() > -1, lambda x: (x + 1,), (x,))[0]

        return torch.cond(x.sum() > 0, forever, lambda x: x * 2, (x,))

    assert f(torch.tensor([-1.0, -2.0], device=device)).tolist() == [-2, -4]


def test_cond_of_random_numbers_and_several_results(device: torch.device) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(x[0] > 0, lambda x: (nn.functional.dropout(x), x.clone()), lambda x: (x.exp(), x * 3), (x,))

    dropped, same = torch.compile(f, backend="pjrt", fullgraph=True)(torch.ones(400, device=device))
    assert set(dropped.tolist()) == {0.0, 2.0} and same.sum().item() == 400
    check(f, device, -torch.ones(3))


def test_while_loops_that_count_and_that_look_at_values(device: torch.device) -> None:
    def power(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y @ x), (torch.zeros_like(n), torch.eye(4).to(x)))

    check(power, device, torch.rand(4, 4), torch.tensor(5), grad=False)
    check(power, device, torch.rand(4, 4), torch.tensor(0), grad=False)

    def newton(x: Tensor) -> Tensor:
        return while_loop(lambda y: (y * y - x).abs().max() > 1e-4, lambda y: ((y + x / y) / 2,), (x + 1,))[0]

    check(newton, device, torch.rand(7) + 1, grad=False)


def test_loops_inside_of_branches_and_branches_inside_of_loops(device: torch.device) -> None:
    def f(x: Tensor) -> Tensor:
        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cond(i % 2 == 0, lambda y: y + 1, lambda y: y * 3, (y,))

        def loop(x: Tensor) -> Tensor:
            return while_loop(lambda i, _: i < 5, step, (torch.zeros((), dtype=torch.int64, device=x.device), x))[1]

        return torch.cond(x.sum() > 0, loop, lambda x: x.clone(), (x,))

    check(f, device, torch.arange(6.0), grad=False)
    check(f, device, -torch.arange(6.0), grad=False)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_gives_what_it_carries_and_collects(device: torch.device, reverse: bool) -> None:
    def f(start: Tensor, xs: Tensor, ys: Tensor) -> Any:
        def step(c: Tensor, item: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            x, y = item
            c = torch.tanh(c * x) + y
            return c, (c * 2, c[:2].sum())

        return scan(step, start, (xs, ys), reverse=reverse)

    check(f, device, torch.rand(3), torch.rand(6, 3), torch.rand(6, 3))
    check(f, device, torch.rand(3), torch.rand(1, 3), torch.rand(1, 3))


def test_a_recurrent_net_by_scan_learns_what_the_cpus_learns(device: torch.device) -> None:
    torch.manual_seed(0)
    weights, start, xs = torch.randn(8, 8) * 0.3, torch.zeros(4, 8), torch.randn(20, 4, 8)

    def f(w: Tensor, start: Tensor, xs: Tensor) -> Tensor:
        return scan(lambda h, x: ((after := torch.tanh(h @ w + x)), after.clone()), start, xs)[1]

    check(f, device, weights, start, xs)


def test_map_is_over_the_first_dimension(device: torch.device) -> None:
    check(lambda xs, w: map(lambda x, w: (x @ w).relu(), xs, w), device, torch.rand(5, 3, 4), torch.rand(4, 2))


def test_associative_scans(device: torch.device) -> None:
    check(lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"), device, torch.rand(6, 3))


def test_regions_that_are_compiled_once(device: torch.device) -> None:
    @torch.compiler.nested_compile_region
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x @ w)

    check(lambda x, w: layer(layer(x, w), w), device, torch.rand(3, 4), torch.rand(4, 4))


def test_a_condition_that_is_known_is_no_branch(device: torch.device) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, (x,))

    check(f, device, torch.rand(3), dynamic=False)


def test_random_numbers_in_a_loop_run_call_by_call(device: torch.device) -> None:
    def f(x: Tensor) -> Tensor:
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + torch.rand_like(y)), (start, x))[1]

    with pytest.warns(UserWarning, match="call by call on the device: .*random numbers in a loop"):
        y = torch.compile(f, backend="pjrt")(torch.zeros(100, device=device))
    assert 1 < y.mean().item() < 2 and y.std().item() > 0.3
