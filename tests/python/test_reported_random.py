"""Random numbers where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def test_what_has_no_probability_is_never_drawn(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/99802, https://github.com/pytorch/pytorch/issues/192577
    torch.manual_seed(0)
    for weights in ([0.0, 0.5], [0.5, 0.0], [0.0, 0.0, 1e-30, 0.0], [0, 3, 0, 1, 0]):
        weights = torch.tensor(weights, dtype=torch.float32)
        drawn = torch.multinomial(weights.to(device), 1000, replacement=True).cpu()
        assert (weights[drawn] > 0).all()
    logits = torch.zeros(150_000, device=device)
    logits[77] = 200.0
    drawn = torch.multinomial(logits.softmax(0), 20_000, replacement=True)
    assert (drawn == 77).all().item()
    some = torch.zeros(100, device=device)
    some[::3] = 1.0
    for _ in range(10):
        order = torch.multinomial(some, 34).cpu()
        assert (order % 3 == 0).all() and order.unique().numel() == 34


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_open_intervals_do_not_contain_their_ends(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/99802
    torch.manual_seed(0)
    empty = torch.empty(200_000, dtype=dtype, device=device)
    assert (empty.exponential_() > 0).all().item()
    assert empty.isfinite().all().item()
    assert (empty.uniform_(2, 3) < 3).all().item()
    assert (empty >= 2).all().item()
    assert (torch.rand(200_000, dtype=dtype, device=device) < 1).all().item()
    assert empty.normal_().isfinite().all().item()
    assert empty.log_normal_().isfinite().all().item()
    assert (empty.geometric_(0.5) >= 1).all().item()
    assert not empty.cauchy_().isnan().any().item()
    assert not torch.bernoulli(torch.zeros_like(empty)).any().item()
    assert torch.bernoulli(torch.ones_like(empty)).all().item()


DROPOUTS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Dropout(0.5),
    "dropout in place": lambda: nn.Dropout(0.5, inplace=True),
    "alpha dropout": lambda: nn.AlphaDropout(0.5),
    "channels": lambda: nn.Dropout1d(0.5),
}


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_layer_drops_the_same(name: str, reentrant: bool, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/pull/194478
    def gradient(saving: bool) -> Tensor:
        torch.manual_seed(0)
        layer = nn.Sequential(nn.Linear(8, 8), DROPOUTS[name](), nn.Linear(8, 8), DROPOUTS[name]()).to(device)
        torch.manual_seed(1)
        x = torch.ones(4, 8, device=device, requires_grad=True)
        functional.dropout(x, 0.1)  # the state is not at its start
        y = checkpoint(layer, x, use_reentrant=reentrant) if saving else layer(x)
        functional.dropout(x, 0.1)  # nor where the layer left it
        y.square().sum().backward()
        return layer[0].weight.grad

    assert gradient(True).equal(gradient(False))


OUTSIDE: dict[str, Callable[[torch.device], Tensor]] = {
    "above": lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(0, 300),
    "below": lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(-300, 0),
    "negative": lambda d: torch.empty(3, dtype=torch.uint8, device=d).random_(-1, 5),
    "empty": lambda d: torch.empty(3, dtype=torch.int64, device=d).random_(5, 5),
    "turned": lambda d: torch.empty(3, device=d).random_(5, 2),
    "truth": lambda d: torch.empty(3, dtype=torch.bool, device=d).random_(0, 3),
    "to": lambda d: torch.empty(3, dtype=torch.int16, device=d).random_(300_000),
    "none": lambda d: torch.empty(3, device=d).random_(0),
    "randint": lambda d: torch.randint(200, (3,), dtype=torch.int8, device=d),
    "randint_like": lambda d: torch.randint_like(torch.ones(3, dtype=torch.uint8, device=d), 3, 300),
    "randperm": lambda d: torch.randperm(2050, dtype=torch.float16, device=d),
    "deviations": lambda d: torch.normal(torch.zeros(3, device=d), torch.tensor([1.0, -1.0, 1.0], device=d)),
    "a mean": lambda d: torch.normal(0.0, -torch.ones(3, device=d)),
    "NaN": lambda d: torch.normal(0.0, torch.full((3,), float("nan"), device=d)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_numbers_that_cannot_be_drawn(name: str, device: torch.device) -> None:
    """PyTorch's own errors, and at the call."""
    with pytest.raises(RuntimeError) as expected:
        OUTSIDE[name](torch.device("cpu"))
    with pytest.raises(RuntimeError) as got:
        OUTSIDE[name](device)
    assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_all_numbers_that_can_be_drawn(device: torch.device) -> None:
    for dtype, low, high in ((torch.int8, -128, 128), (torch.uint8, 0, 256), (torch.bool, 0, 2)):
        drawn = torch.empty(4096, dtype=dtype, device=device).random_(low, high).cpu().long()
        assert (drawn.min(), drawn.max()) == (low, high - 1)
    assert torch.randperm(256, dtype=torch.uint8, device=device).sort().values.tolist() == list(range(256))
    with pytest.warns(UserWarning, match="out of bounds"):
        torch.empty(3, device=device).random_(0, 2**25)


def test_every_seed_of_64_bits_is_taken(device: torch.device) -> None:
    drawn = []
    for seed in (2**64 - 1, -1, 2**63, 5):
        torch.manual_seed(seed)
        drawn.append(torch.rand(4, device=device).tolist())
    assert drawn[0] == drawn[1] != drawn[2] != drawn[3]
    torch.manual_seed(5)
