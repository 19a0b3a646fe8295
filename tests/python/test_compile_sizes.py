"""``torch.compile`` with sizes that change: one program up to a bound, and numbers as on the CPU at every size."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models import zoo

pytestmark = [
    pytest.mark.usefixtures("pjrt"),
    pytest.mark.filterwarnings("error:torch.compile. "),
]

TABLE = torch.arange(24.0).view(6, 4) / 24
KERNEL = torch.arange(24.0).view(2, 4, 3) / 50


def positions(x: Tensor, below: int) -> Tensor:
    """Numbers of the last dimension as positions."""
    return (x.detach()[..., 0] * below).long()


# Functions of (3, n, 4) with a changing n.
FUNCTIONS: dict[str, list[Callable[[Tensor], Tensor]]] = {
    "element by element": [
        lambda x: x.sin() * 2 + 1,
        lambda x: torch.where(x > 0.5, x, -x),
        lambda x: x / x.shape[1],
        lambda x: x * x.shape[1] + x.numel(),
        lambda x: F.gelu(x).clamp(min=0.3),
        lambda x: x.to(torch.float64) * 0.1,
        lambda x: x.masked_fill(x > 0.5, 0.0),
        lambda x: (x > 0.5).int(),
    ],
    "sums": [
        lambda x: x.sum(),
        lambda x: x.sum(1),
        lambda x: x.sum((1, 2), keepdim=True),
        lambda x: x.mean(),
        lambda x: x.mean((0, 1)),
        lambda x: x.prod(1),
        lambda x: x.var(1),
        lambda x: x.std(),
        lambda x: torch.var_mean(x, 1, correction=0)[1],
        lambda x: x.norm(dim=1),
        lambda x: x.flatten(0, 1).mean(0),
        lambda x: (x > 0.5).sum(1),
        lambda x: x.cumsum(1),
        lambda x: x.flatten(1).cumsum(1),
    ],
    "extremes": [
        lambda x: x.amax(1),
        lambda x: x.amin((0, 1)),
        lambda x: (-x).max(),
        lambda x: x.min(1)[0],
        lambda x: torch.max(x, x.flip(1)),
        lambda x: x.flatten(1).max(1)[1],
        lambda x: (-x).max(1)[1],
        lambda x: (-x).argmax(1),
        lambda x: x.argmin(1, keepdim=True),
        lambda x: (x > 0.9).any(1),
        lambda x: (x > 0).all(),
        lambda x: x.logsumexp(1),
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(1),
    ],
    "order": [
        lambda x: x.permute(1, 0, 2) + 1,
        lambda x: x.transpose(1, 2).reshape(3, -1),
        lambda x: x.view(-1, 4) * 2,
        lambda x: x.unsqueeze(1).expand(-1, 2, -1, -1).reshape(6, -1),
        lambda x: x.flip(1),
        lambda x: x.repeat(1, 2, 1),
        lambda x: x.roll(1, 1),
        lambda x: x.view(3, x.shape[1], 2, 2).transpose(1, 2).contiguous(),
        lambda x: x.flatten(1).tril(),
    ],
    "parts": [
        lambda x: x[:, 1:] * 2,
        lambda x: x[:, :-1] * 2,
        lambda x: x[:, -1] * 2,
        lambda x: x[:, -2:] * 2,
        lambda x: x[:, ::2] * 2,
        lambda x: x.select(1, x.shape[1] - 2) * 2,
        lambda x: torch.cat([x, x], 1),
        lambda x: torch.cat([x[:, 1:], x, x[:, :2]], 1),
        lambda x: torch.cat([x, x], 2),
        lambda x: torch.stack([x, x], 1),
        lambda x: F.pad(x, (0, 0, 2, 3)),
        lambda x: F.pad(x, (1, 0)),
    ],
    "views of the argument": [
        lambda x: x.flatten(),
        lambda x: x[:, 1:],
        lambda x: x[:, -1],
        lambda x: x.select(1, x.shape[1] - 2),
        lambda x: x.transpose(1, 2),
        lambda x: x.unflatten(2, (2, 2)),
        lambda x: x[1],
    ],
    "factories": [
        lambda x: torch.arange(x.shape[1], device=x.device) * 2,
        lambda x: torch.arange(2, x.shape[1] + 2, device=x.device),
        lambda x: torch.arange(x.shape[1], 2 * x.shape[1], device=x.device),
        lambda x: torch.zeros(x.shape[1], 2, device=x.device),
        lambda x: x.new_full((x.shape[1],), 3.0),
        lambda x: torch.full((2,), x.shape[1], device=x.device),
        lambda x: torch.ones(x.shape[1], x.shape[1], device=x.device).tril(),
        lambda x: torch.eye(x.shape[1], device=x.device),
    ],
    "products": [
        lambda x: x @ TABLE[:4].to(x.device),
        lambda x: x @ x.transpose(1, 2),
        lambda x: x.transpose(1, 2) @ x,
        lambda x: torch.einsum("bsd,btd->bst", x, x),
        lambda x: F.linear(x, TABLE.to(x.device), TABLE[:, 0].to(x.device)),
        lambda x: x[0].t() @ x[1],
        lambda x: torch.outer(x[0, :, 0], x[1, :, 1]),
        lambda x: torch.dot(x[0, :, 0], x[1, :, 1]),
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
        lambda x: F.cosine_similarity(x, x.flip(1), dim=1),
    ],
    "layers": [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.rms_norm(x, (4,)),
        lambda x: F.group_norm(x.transpose(1, 2), 2),
        lambda x: F.batch_norm(x.flatten(0, 1), None, None, training=True),
        lambda x: F.instance_norm(x.transpose(1, 2)),
        lambda x: F.conv1d(x.transpose(1, 2), KERNEL.to(x.device), padding=1),
        lambda x: F.conv1d(x.transpose(1, 2), KERNEL.to(x.device), stride=2, padding=1),
        lambda x: F.conv1d(x.flatten(1)[:, None], KERNEL[:, :1].to(x.device), padding=1),
        lambda x: F.normalize(x, dim=1),
        lambda x: F.glu(x),
    ],
    "losses": [
        lambda x: F.cross_entropy(x.flatten(0, 1), positions(x, 4).flatten()),
        lambda x: F.cross_entropy(x.transpose(1, 2), positions(x, 4), reduction="none"),
        lambda x: F.cross_entropy(x.flatten(0, 1), positions(x, 4).flatten(), ignore_index=2),
        lambda x: F.nll_loss(x.log_softmax(-1).flatten(0, 1), positions(x, 4).flatten(), weight=TABLE[1].to(x.device)),
        lambda x: F.mse_loss(x, x * 0.5),
        lambda x: F.binary_cross_entropy(x, x.detach().round()),
        lambda x: F.smooth_l1_loss(x, x * 2, reduction="sum"),
        lambda x: F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
    ],
    "positions": [
        lambda x: F.embedding(positions(x, 6), TABLE.to(x.device)),
        lambda x: x[:, torch.arange(2, device=x.device)],
        lambda x: x[:, torch.tensor([-1, 0], device=x.device)],
        lambda x: x.index_select(1, torch.tensor([0, 1, 0], device=x.device)),
        lambda x: x.gather(1, (x.detach() * 2).long()),
        lambda x: torch.zeros(3, 5, 4, device=x.device).scatter_add(1, (x.detach() * 5).long(), x),
        lambda x: torch.zeros_like(x).scatter(
            1, torch.arange(x.shape[1], device=x.device).flip(0)[None, :, None].expand(3, -1, 4), x
        ),
        lambda x: torch.zeros(8, 4, device=x.device).index_add(0, positions(x, 8)[0], x[0]),
        lambda x: torch.zeros(3, 10, device=x.device).index_put(
            (torch.arange(3, device=x.device)[:, None], positions(x, 10)), x[..., 1], accumulate=True
        ),
        lambda x: F.one_hot(positions(x, 6), 6),
        lambda x: x.sort(-1)[0],
        lambda x: x.topk(2, -1)[0],
    ],
}


def whole(pjrt: ModuleType, after: float) -> int:
    """How many programs of compiled functions the log has since then."""
    log = [entry for entry in pjrt.compile_log() if entry["started"] > after]
    return sum(str(entry["operator"]).startswith("compiled ") for entry in log)


def newest(pjrt: ModuleType) -> float:
    return max((entry["started"] for entry in pjrt.compile_log()), default=-1.0)


@pytest.mark.parametrize("group", FUNCTIONS)
def test_every_size_is_exact_and_there_is_one_program(group: str, device: torch.device, pjrt: ModuleType) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [f(x) for f in FUNCTIONS[group]]

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True)
    before = newest(pjrt)
    has_backward = False
    for n in (5, 9, 16, 3):
        torch.manual_seed(n)
        x = torch.rand(3, n, 4)
        mine, theirs = x.to(device).requires_grad_(), x.clone().requires_grad_()
        torch._dynamo.mark_dynamic(mine, 1)
        found, expected = compiled(mine), function(theirs)
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5, msg=lambda m, i=i, n=n: f"{i} at {n}: {m}")
            assert (a.stride() == b.stride()) or a.is_contiguous() == b.is_contiguous(), (i, n)
        pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.requires_grad]
        if pairs:
            has_backward = True
            weights = [torch.rand(b.shape, dtype=b.dtype) for _, b in pairs]
            torch.autograd.backward([b for _, b in pairs], weights)
            torch.autograd.backward([a for a, _ in pairs], [w.to(device) for w in weights])
            torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-4)
    assert whole(pjrt, before) <= 1 + has_backward  # views of the argument have none


def gpt() -> tuple[Any, Any, Tensor, Tensor]:
    """A model on the device, the same on the CPU, texts of 64 characters and what follows."""
    workload = zoo.ALL["gpt"]
    torch.manual_seed(0)
    model = workload.network()
    tokens, labels = workload.batches(1)[0]
    return copy.deepcopy(model), model, tokens[:2], labels[:2]


def test_a_model_has_one_program_for_all_lengths(device: torch.device, pjrt: ModuleType) -> None:
    """Lengths 1 as well: a size that is marked as unbacked is never specialised."""

    def loss(model: Any, tokens: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens).flatten(0, -2), labels.flatten())

    mine, theirs, tokens, labels = gpt()
    mine.to(device)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True)
    before = newest(pjrt)
    for step, n in enumerate((40, 1, 17, 64, 2, 33, 63)):
        batch = [t[:, :n].contiguous().to(device) for t in (tokens, labels)]
        for t in batch:
            torch._dynamo.decorators.mark_unbacked(t, 1, min=0, max=64, shape_id="length")
        warm = pjrt.stats()["compiles"]
        mine.zero_grad()
        theirs.zero_grad()
        value, expected = compiled(mine, *batch), loss(theirs, tokens[:, :n], labels[:, :n])
        value.backward()
        expected.backward()
        if step >= 3:
            assert pjrt.stats()["compiles"] == warm
        torch.testing.assert_close(value.cpu(), expected)
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)
    assert whole(pjrt, before) == 2


@pytest.mark.filterwarnings("default::FutureWarning")
def test_sizes_without_a_maximum_have_a_program_for_each_bucket(device: torch.device, pjrt: ModuleType) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.softmax(1).sum(0), dynamic=True)
    before = newest(pjrt)
    for n in range(3, 60):
        x = torch.rand(2, n)
        torch.testing.assert_close(compiled(x.to(device)).cpu(), x.softmax(1).sum(0))
    assert whole(pjrt, before) == 5  # up to 16, 24, 32, 48, 64


def test_two_sizes_change(device: torch.device, pjrt: ModuleType) -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x @ y.t(), x @ x.t()], 1).softmax(1).sum(0)

    torch._dynamo.reset()
    compiled = torch.compile(f)
    before = newest(pjrt)
    for n, m in ((3, 7), (7, 3), (10, 16), (16, 2), (5, 5)):
        x, y = torch.rand(n, 4), torch.rand(m, 4)
        mine = [x.to(device), y.to(device)]
        for t in mine:
            torch._dynamo.mark_dynamic(t, 0)
        torch.testing.assert_close(compiled(*mine).cpu(), f(x, y))
    assert whole(pjrt, before) <= 2  # PyTorch may trace once more for sizes that are equal


def test_a_cache_that_grows_stays_on_the_device(device: torch.device, pjrt: ModuleType) -> None:
    """What a program returns goes into the next one as it lies."""
    torch._dynamo.reset()
    step = torch.compile(lambda cache, new: torch.cat([cache, new], 1))
    cache, expected = torch.rand(2, 3, 4).to(device), None
    expected = cache.cpu()
    for i in range(10):
        new = torch.rand(2, 1, 4)
        torch._dynamo.mark_dynamic(cache, 1, min=2, max=64)
        cache, expected = step(cache, new.to(device)), torch.cat([expected, new], 1)
        torch.testing.assert_close(cache.cpu(), expected)
        assert cache.is_contiguous() and cache.view(-1).shape == (2 * (4 + i) * 4,)


def test_a_view_of_a_result_shares_its_memory(device: torch.device) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y[:, 1:], y.view(-1)

    torch._dynamo.reset()
    compiled = torch.compile(f)
    for n in (5, 8):
        x = torch.rand(3, n, device=device)
        torch._dynamo.mark_dynamic(x, 1)
        y, part, flat = compiled(x)
        y.mul_(3)
        torch.testing.assert_close([part, flat], [y[:, 1:], y.view(-1)])


def test_dropout_keeps_its_share(device: torch.device, pjrt: ModuleType) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.dropout(x, 0.25), fullgraph=True)
    before = newest(pjrt)
    for n in (500, 700):
        x = torch.ones(3, n, device=device)
        torch._dynamo.mark_dynamic(x, 1, min=2, max=1000)
        torch.manual_seed(0)
        first, second = compiled(x), compiled(x)
        torch.manual_seed(0)
        assert torch.equal(first, compiled(x)) and not torch.equal(first, second)
        assert abs(first.mean().item() - 1) < 0.1
    assert whole(pjrt, before) == 1


def test_numbers_that_are_no_sizes_compile_once(device: torch.device, pjrt: ModuleType) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, n: x * n + n, dynamic=True)
    x = torch.ones(3, 2)
    before = newest(pjrt)
    for n in range(3, 40):
        torch.testing.assert_close(compiled(x.to(device), n).cpu(), x * n + n)
    assert whole(pjrt, before) == 1


def test_a_program_for_each_size_is_said(device: torch.device) -> None:
    """Where an operator has no rule: the warning names it, and numbers are right."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.cummax(1)[0] * 2)
    with pytest.warns(UserWarning, match=r"each size compiles .*aten.cummax"):
        for n in (5, 7):
            x = torch.rand(3, n)
            mine = x.to(device)
            torch._dynamo.mark_dynamic(mine, 1)
            torch.testing.assert_close(compiled(mine).cpu(), x.cummax(1)[0] * 2)


@pytest.mark.parametrize("refused", ["forward", "backward"])
def test_one_of_two_graphs_has_a_program_for_each_size(
    refused: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backward graph takes what the forward graph has saved, padded or not, at every call."""
    from torch_pjrt import _sizes, compiler

    trace = compiler._trace

    def refuse(gm: Any, args: Any, at: _sizes.AtBounds | None) -> Any:
        program = trace(gm, args, at)
        if at is not None and at.sizes.is_forward == (refused == "forward"):
            raise NotImplementedError("a row")
        return program

    def f(x: Tensor) -> Tensor:
        return (x.flatten(0, 1).sin().exp() * 2).sum()

    monkeypatch.setattr(compiler, "_trace", refuse)
    torch._dynamo.reset()
    compiled = torch.compile(f)

    def step(n: int) -> None:
        x = torch.rand(3, n, 4)
        mine, theirs = x.to(device).requires_grad_(), x.clone().requires_grad_()
        torch._dynamo.mark_dynamic(mine, 1)
        compiled(mine).backward()
        f(theirs).backward()
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)

    with pytest.warns(UserWarning, match="each size compiles .*: a row"):
        step(5)
    for n in (7, 5, 7):
        step(n)


def test_a_size_above_the_maximum_is_an_error(device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2)
    for n in (5, 12):
        x = torch.ones(n, device=device)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
        if n > 10:
            with pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError, match="12 not in range"):
                compiled(x)
        else:
            assert compiled(x).sum().item() == 10


def test_sizes_that_have_to_be_equal_are_one_or_an_error(device: torch.device, pjrt: ModuleType) -> None:
    """PyTorch itself does not ask whether they are when a graph is captured."""

    def f(x: Tensor, rows: Tensor, new: Tensor) -> Tensor:
        x = x.clone()
        x[rows] = new
        return x

    torch._dynamo.reset()
    whole = torch.compile(f, dynamic=True)

    def call(g: Callable[..., Tensor], n: int, m: int, where: torch.device | str) -> Tensor:
        x, rows, new = torch.zeros(40, 3), torch.arange(n) * 2 % 40, torch.arange(3.0 * m).view(m, 3)
        for t in (rows, new):
            torch._dynamo.mark_dynamic(t, 0)
        return g(x.to(where), rows.to(where), new.to(where)).cpu()

    for n in (5, 9, 14, 5):
        torch.testing.assert_close(call(whole, n, n, device), call(f, n, n, "cpu"))
    with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
        call(whole, 7, 6, device)
    torch.testing.assert_close(call(whole, 11, 11, device), call(f, 11, 11, "cpu"))
