"""Random numbers repeat by seed, have the right distribution, and their state can be kept."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional

DRAWS: dict[str, Callable[[torch.device], Tensor]] = {
    "rand": lambda d: torch.rand(9, device=d),
    "randn": lambda d: torch.randn(3, 5, device=d),
    "randint": lambda d: torch.randint(10, (9,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "uniform_": lambda d: torch.empty(9, device=d).uniform_(-1, 1),
    "normal_": lambda d: torch.empty(9, device=d).normal_(2, 3),
    "bernoulli": lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
    "exponential_": lambda d: torch.empty(9, device=d).exponential_(),
    "dropout": lambda d: functional.dropout(torch.ones(30, device=d), 0.5),
    "multinomial": lambda d: torch.multinomial(torch.ones(20, device=d), 5),
    "rand of bfloat16": lambda d: torch.rand(9, device=d, dtype=torch.bfloat16),
    "rand of float64": lambda d: torch.rand(9, device=d, dtype=torch.float64),
    "random_": lambda d: torch.empty(9, device=d, dtype=torch.int64).random_(),
    "rand_like": lambda d: torch.rand_like(torch.ones(9, device=d)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_the_same_seed_gives_the_same_numbers(
    draw: Callable[[torch.device], Tensor], device: torch.device, no_fallbacks: None
) -> None:
    torch.manual_seed(7)
    first, second = draw(device), draw(device)
    torch.manual_seed(7)
    assert draw(device).equal(first)
    assert draw(device).equal(second)
    assert not first.equal(second)
    torch.manual_seed(8)
    assert not draw(device).equal(first)


def test_draws_of_different_sizes_do_not_repeat_numbers(device: torch.device) -> None:
    torch.manual_seed(0)
    numbers = torch.cat([torch.rand(n, device=device) for n in (1, 2, 3, 5, 8)])
    assert numbers.unique().numel() == numbers.numel()


def test_distributions_have_their_moments(device: torch.device) -> None:
    torch.manual_seed(0)
    n = 20_000
    uniform = torch.rand(n, device=device).cpu()
    assert 0 <= uniform.min() < 0.001
    assert 0.999 < uniform.max() < 1
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.01)
    normal = torch.randn(n, device=device).cpu()
    assert normal.mean().item() == pytest.approx(0, abs=0.03)
    assert normal.std().item() == pytest.approx(1, abs=0.03)
    assert normal.abs().max() > 3.2
    integers = torch.randint(3, 7, (n,), device=device).cpu()
    assert integers.unique().tolist() == [3, 4, 5, 6]
    assert integers.double().mean().item() == pytest.approx(4.5, abs=0.05)
    kept = functional.dropout(torch.ones(n, device=device), 0.25).cpu()
    assert kept.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (kept == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.randperm(100, device=device).sort().values.cpu().equal(torch.arange(100))


def test_neighbouring_seeds_are_not_correlated(device: torch.device) -> None:
    draws = []
    for seed in range(20):
        torch.manual_seed(seed)
        draws.append(torch.rand(500, device=device).cpu())
    correlation = torch.corrcoef(torch.stack(draws)) - torch.eye(20)
    assert correlation.abs().max().item() < 0.25


def test_a_generator_has_a_state_of_its_own(device: torch.device) -> None:
    generator = torch.Generator(device).manual_seed(1)
    assert generator.initial_seed() == 1
    assert generator.device.type == device.type
    first = torch.rand(5, device=device, generator=generator)
    torch.manual_seed(99)
    torch.rand(5, device=device)
    second = torch.rand(5, device=device, generator=generator)
    generator.manual_seed(1)
    assert torch.rand(5, device=device, generator=generator).equal(first)
    assert torch.rand(5, device=device, generator=generator).equal(second)


def test_a_state_is_sixteen_bytes_and_brings_the_numbers_back(device: torch.device, pjrt: ModuleType) -> None:
    generator = torch.Generator(device).manual_seed((1 << 40) + 3)
    torch.rand(5, device=device, generator=generator)
    state = generator.get_state()
    assert (state.dtype, state.numel(), state.device.type) == (torch.uint8, 16, "cpu")
    assert int.from_bytes(bytes(state[:8].tolist()), "little") == (1 << 40) + 3
    first = torch.rand(5, device=device, generator=generator)
    other = torch.Generator(device)
    other.set_state(state)
    assert other.initial_seed() == (1 << 40) + 3
    assert torch.rand(5, device=device, generator=other).equal(first)
    assert not other.get_state().equal(state)


def test_a_state_of_a_wrong_size_or_dtype_is_refused(device: torch.device) -> None:
    generator = torch.Generator(device)
    with pytest.raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(16))


def test_a_generator_of_another_device_is_refused(device: torch.device, pjrt: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"Expected a '.*' device type for generator but found"):
        torch.rand(2, device=device, generator=torch.Generator("cpu"))


def test_the_module_keeps_and_restores_the_state(device: torch.device, module: ModuleType) -> None:
    torch.manual_seed(3)
    assert module.initial_seed() == 3
    state = module.get_rng_state(device)
    first = torch.rand(4, device=device)
    module.set_rng_state(state, device)
    assert torch.rand(4, device=device).equal(first)
    states = module.get_rng_state_all()
    assert len(states) == module.device_count()
    second = torch.rand(4, device=device)
    module.set_rng_state_all(states)
    assert torch.rand(4, device=device).equal(second)
    module.manual_seed(3)
    assert torch.rand(4, device=device).equal(first)
    module.manual_seed_all(3)
    assert torch.rand(4, device=device).equal(first)
    module.seed()
    assert not torch.rand(4, device=device).equal(first)


def test_fork_rng_restores_the_devices_state(device: torch.device, pjrt: ModuleType) -> None:
    torch.manual_seed(5)
    first = torch.rand(4, device=device)
    torch.manual_seed(5)
    with torch.random.fork_rng(device_type=device.type):
        torch.rand(100, device=device)
        torch.manual_seed(77)
    assert torch.rand(4, device=device).equal(first)


def test_a_seed_set_before_the_first_use_counts(run_python: Callable) -> None:
    code = """
torch.manual_seed(11)
first = torch.rand(4, device=D)
torch.manual_seed(11)
assert torch.rand(4, device=D).equal(first)
"""
    assert run_python(code, check=True).stderr == ""


def test_a_seed_gives_the_same_numbers_in_every_process(device: torch.device, run_python: Callable) -> None:
    torch.manual_seed(123)
    here = torch.rand(3, device=device).tolist()
    there = run_python("torch.manual_seed(123)\nprint(torch.rand(3, device=D).tolist())", check=True)
    assert there.stdout.strip() == str(here)


def test_checkpointing_replays_dropout(device: torch.device) -> None:
    from torch.utils.checkpoint import checkpoint

    def run(saving: bool) -> Tensor:
        torch.manual_seed(4)
        x = torch.ones(50, device=device, requires_grad=True)

        def part(y: Tensor) -> Tensor:
            return functional.dropout(y * 2, 0.5)

        out = checkpoint(part, x, use_reentrant=False) if saving else part(x)
        out.sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    assert run(True).equal(run(False))


@pytest.mark.usefixtures("strict")
def test_a_new_seed_or_probability_compiles_nothing(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.ones(16, device=device)
    functional.dropout(x, 0.1)
    torch.rand(16, device=device)
    x.normal_(0, 1)
    before = pjrt.stats()["compiles"]
    for seed in range(1, 20):
        torch.manual_seed(seed)
        torch.rand(16, device=device)
        functional.dropout(x, seed / 40)
        x.normal_(seed, seed)
    assert pjrt.stats()["compiles"] == before
