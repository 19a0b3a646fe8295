"""``torch.compile(backend="pjrt")``: results as in eager, one program a graph, and nothing compiled twice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import zoo
from models.workload import Step

pytestmark = [
    pytest.mark.usefixtures("pjrt"),
    pytest.mark.filterwarnings("error:torch.compile. a graph runs call by call"),
]


def compiled(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(f, backend="pjrt", **options)


def newest(pjrt: ModuleType) -> float:
    return max((entry["started"] for entry in pjrt.compile_log()), default=-1.0)


def programs(pjrt: ModuleType, after: float) -> int:
    """How many compiled functions the log has since then (it forgets the oldest)."""
    log = [entry for entry in pjrt.compile_log() if entry["started"] > after]
    return sum(str(entry["operator"]).startswith("compiled ") for entry in log)


@pytest.mark.usefixtures("exact_sizes")  # other models were here before
@pytest.mark.parametrize(("name", "mode"), [("mlp", "strict"), ("mlp", "fused"), ("cnn", "strict"), ("gpt", "fused")])
def test_models_train_as_in_eager(name: str, mode: str, device: torch.device, pjrt: ModuleType) -> None:
    workload = zoo.ALL[name]
    batches = [[t.to(device) for t in batch] for batch in workload.batches(4)]
    with pjrt.eager(mode):
        eager, whole = Step(workload, device), Step(workload, device)
        whole.network = compiled(whole.network)  # type: ignore[assignment]
        expected = [eager(*batch).item() for batch in batches]
        found = [whole(*batches[0]).item()]
        before = newest(pjrt)
        found += [whole(*batch).item() for batch in batches[1:3]]
        if mode == "strict":
            assert not [entry for entry in pjrt.compile_log() if entry["started"] > before]
        found.append(whole(*batches[3]).item())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)
    for (key, mine), theirs in zip(
        whole.network.state_dict().items(), eager.network.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3, msg=key)


def test_forward_and_backward_are_a_program_each(device: torch.device, pjrt: ModuleType) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    whole = compiled(model, fullgraph=True)
    before = newest(pjrt)
    for _ in range(3):
        whole(torch.rand(5, 8, device=device)).square().sum().backward()
    assert programs(pjrt, before) == 2


def test_inputs_are_written_in_place(device: torch.device) -> None:
    def f(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        x[1] = 5
        return x * 2

    x, total = torch.ones(3, device=device), torch.zeros(3, device=device)
    view = total[1:]
    assert compiled(f)(x, total).tolist() == [2, 10, 2]
    assert (x.tolist(), total.tolist(), view.tolist()) == ([1, 5, 1], [1, 1, 1], [1, 1])


def test_results_that_are_views_share_memory(device: torch.device) -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return x.t(), x[0], y.view(-1), y, x, x.split(1, 1)[2]

    x = torch.arange(6.0, device=device).view(2, 3)
    t, first, flat, y, same, part = compiled(f)(x)
    x.add_(10)
    y.mul_(2)
    torch.testing.assert_close([t, first, same, part], [x.t(), x[0], x, x[:, 2:]])
    torch.testing.assert_close(flat, y.view(-1))


def test_random_numbers_come_from_the_generator(device: torch.device) -> None:
    f = compiled(lambda x: F.dropout(x, 0.5))
    x = torch.ones(1000, device=device)
    torch.manual_seed(1)
    first, second = f(x), f(x)
    torch.manual_seed(1)
    assert torch.equal(first, f(x)) and not torch.equal(first, second)
    assert 400 < first.count_nonzero().item() < 600


@pytest.mark.parametrize(
    "make",
    [
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.randint_like(x, 2, 9),
        lambda x: torch.rand(500, device=x.device),
        lambda x: torch.randn(500, device=x.device),
        lambda x: torch.randint(7, (500,), device=x.device),
        lambda x: x.clone().uniform_(1, 2),
        lambda x: x.clone().normal_(1, 2),
        lambda x: x.clone().exponential_(),
        lambda x: x.clone().bernoulli_(0.3),
    ],
)
def test_random_numbers_are_those_of_eager(make: Callable[[Tensor], Tensor], device: torch.device) -> None:
    x = torch.zeros(500, device=device)
    torch.manual_seed(3)
    expected = make(x)
    torch.manual_seed(3)
    found = compiled(make)(x)
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("options", [{}, {"atol": 0.5}, {"rtol": 0.3}, {"atol": 0.1, "rtol": 0.3}, {"hermitian": True}])
def test_pseudoinverses_leave_out_what_the_cpus_do(options: dict[str, Any], device: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 4, 4)
    x = (x + x.mT) @ torch.diag(torch.tensor([2.0, 1.0, 0.3, 0.0]))
    x = x + x.mT if "hermitian" in options else x
    found = compiled(lambda x: torch.linalg.pinv(x, **options))(x.to(device))
    torch.testing.assert_close(found.cpu(), torch.linalg.pinv(x, **options), rtol=1e-3, atol=1e-4)


def test_each_size_is_right(device: torch.device) -> None:
    f = compiled(lambda x: (x.softmax(-1) * x.shape[0]).sum(0) + torch.arange(x.shape[1], device=x.device))
    for n in (3, 4, 5, 7, 3, 1, 4):
        x = torch.rand(n, n + 1)
        expected = (x.softmax(-1) * n).sum(0) + torch.arange(n + 1)
        torch.testing.assert_close(f(x.to(device)).cpu(), expected)


def test_gradients_at_each_size(device: torch.device) -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).tanh().mean()

    whole, w = compiled(f), torch.rand(4, 4)
    for n in (2, 3, 6):
        x = torch.rand(n, 4)
        here, there = w.clone().requires_grad_(), w.to(device).requires_grad_()
        f(x, here).backward()
        whole(x.to(device), there).backward()
        assert here.grad is not None and there.grad is not None
        torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_an_operator_without_a_program_is_said_once(device: torch.device) -> None:
    f = compiled(lambda x: torch.linalg.eigvals(x).abs().sum() + 1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [f(torch.eye(3, device=device)).item() for _ in range(3)] == [4, 4, 4]
    assert [str(w.message) for w in said if "aten::linalg_eig has no row" in str(w.message)] == [
        "torch.compile: a graph runs call by call on the device: aten::linalg_eig has no row"
    ]


def test_a_number_is_counted_once_where_the_rest_runs_call_by_call(device: torch.device) -> None:
    def f(x: Tensor, count: Tensor) -> Tensor:
        count += 1
        return torch.linalg.eigvals(x).abs().sum() * count

    count = torch.tensor(0.0)
    with pytest.warns(UserWarning, match="call by call"), torch.no_grad():
        assert compiled(f)(torch.eye(3, device=device), count).item() == 3
    assert count.item() == 1


@pytest.mark.parametrize("options", [{"mode": "fastest"}, {"options": {"fast": True}}], ids=["mode", "options"])
def test_unknown_options_are_errors(options: dict[str, Any], device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"Unrecognized mode=fastest|Unexpected optimization option fast"):
        compiled(lambda x: x + 1, **options)(torch.ones(2, device=device))


@pytest.mark.parametrize("mode", torch._inductor.list_mode_options())
def test_modes_of_pytorch_are_taken(mode: str, device: torch.device) -> None:
    assert compiled(lambda x: x + 1, mode=mode)(torch.ones(2, device=device)).tolist() == [2, 2]


WITHOUT_BACKEND = """
import sys, torch
assert "torch._dynamo" not in sys.modules, "importing torch loads Dynamo"

@torch.compile
def early(x):
    return x.sin() + 1

model = torch.compile(torch.nn.Linear(2, 2, device="{name}"), mode="reduce-overhead")
named = torch.compile(lambda x: x.cos(), backend="{name}")
x = torch.zeros(2, device="{name}")
print(early(x).tolist(), early(x.cpu()).tolist(), named(x).tolist(), model(x).device.type)
import torch_pjrt
assert sum(str(e["operator"]).startswith("compiled ") for e in torch_pjrt.compile_log()) == 3
counters = torch._dynamo.utils.counters["inductor"]
print(counters["fxgraph_cache_miss"] + counters["fxgraph_cache_hit"])
"""


@pytest.mark.parametrize("name", ["pjrt", "tpu"])
def test_no_backend_has_to_be_named(name: str, run_python: Any) -> None:
    """Whatever the device is called; a function on the CPU is inductor's, as ever."""
    done = run_python(WITHOUT_BACKEND.format(name=name), check=True, TORCH_PJRT_DEVICE_NAME=name)
    assert done.stdout.splitlines() == [f"[1.0, 1.0] [1.0, 1.0] [1.0, 1.0] {name}", "1"]


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad], ids=lambda m: m.__name__)
def test_optimizers(make: Any, device: torch.device) -> None:
    """Their step counts stay on the CPU, and are counted there."""
    weights = []
    for whole in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(device)
        optimizer = make(model.parameters(), lr=0.1)
        step = compiled(optimizer.step) if whole else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).square().sum().backward()
            step()
        weights.append(model.weight.detach().cpu())
    torch.testing.assert_close(*weights)


def test_graph_breaks_and_constants(device: torch.device) -> None:
    seen: list[int] = []

    def f(x: Tensor) -> Tensor:
        y = x + torch.tensor([1.0, 2.0, 3.0], device=x.device) + torch.tensor(2.0)
        torch._dynamo.graph_break()
        seen.append(1)
        return y * torch.tensor([2.0, 2.0, 0.0]).to(x.device) + torch.full((3,), 0.5, device=x.device)

    assert compiled(f)(torch.zeros(3, device=device)).tolist() == [6.5, 8.5, 0.5]
    assert seen == [1]


def test_numbers_on_the_cpu_are_inputs(device: torch.device, pjrt: ModuleType) -> None:
    def f(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        m = n * 2 + 1
        return x * m, m

    whole, x = compiled(f), torch.ones(2, device=device)
    results = [whole(x, torch.tensor(float(n))) for n in range(3)]
    assert [(r.tolist(), m.item(), m.device.type) for r, m in results] == [
        ([n * 2 + 1] * 2, n * 2 + 1, "cpu") for n in range(3)
    ]


def test_autocast(device: torch.device) -> None:
    model = nn.Linear(8, 8).to(device)

    def f(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return model(x)

    x = torch.rand(2, 8, device=device)
    found = compiled(f)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, f(x))


def test_an_error_of_the_program_names_the_function(device: torch.device, pjrt: ModuleType) -> None:
    f, x = compiled(lambda x: x.sin() + x.cos()), torch.ones(17, device=device)
    with pjrt.no_compile(), pytest.raises(RuntimeError, match=r"compiled test_compile.py:\d+"):
        f(x)


def test_a_function_that_is_gone_gives_its_graph_back(device: torch.device) -> None:
    import gc

    f = compiled(lambda x: x.exp())
    f(torch.ones(3, device=device))
    number = newest_function()
    del f
    torch._dynamo.reset()
    gc.collect()
    with pytest.raises(RuntimeError, match="was given back"):
        torch.ops.tpj.run_traced.default(number, [torch.ones(3, device=device)])


def newest_function() -> int:
    """The number of the newest traced function."""
    from torch_pjrt import _C

    number = _C.add_traced("nothing", 0, ((), ()))
    _C.drop_traced(number)
    return number - 1


ROWS = torch.arange(12.0).view(6, 2)

OUT_OF_RANGE: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "embedding": (lambda i: F.embedding(i.flatten(), ROWS.to(i.device)), 6),
    "cross_entropy": (lambda i: F.cross_entropy(ROWS.to(i.device)[:3], i.flatten(), ignore_index=-1), 2),
    "nll_loss2d": (lambda i: F.nll_loss(ROWS.to(i.device)[:3, :, None, None], i[:, None], ignore_index=-1), 2),
    "gather": (lambda i: ROWS.to(i.device).gather(1, i[:, :1]), 2),
    "index": (lambda i: ROWS.to(i.device)[i], 6),
    "index_select": (lambda i: ROWS.to(i.device).index_select(0, i.view(-1)), 6),
    "scatter": (lambda i: ROWS.to(i.device).scatter(1, i[:, :1], 5.0), 2),
    "index_add": (lambda i: ROWS.to(i.device).index_add(0, i.flatten(), ROWS[:3].to(i.device)), 6),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_positions_out_of_range_are_errors(name: str, dynamic: bool, device: torch.device) -> None:
    """PyTorch's own, as in eager; and the next call is right again."""
    f, size = OUT_OF_RANGE[name]
    good, bad = torch.tensor([[0], [1], [1]]), torch.tensor([[0], [size], [1]])
    whole = compiled(f, fullgraph=True)
    if dynamic:
        whole(good[:2].to(device)) if name in ("embedding", "gather", "index", "index_select", "scatter") else None
    for _ in range(2):
        torch.testing.assert_close(whole(good.to(device)).cpu(), f(good))
        with pytest.raises((IndexError, RuntimeError)) as mine:
            whole(bad.to(device))
        with pytest.raises((IndexError, RuntimeError)) as theirs:
            f(bad)
        assert (type(mine.value), str(mine.value)) == (type(theirs.value), str(theirs.value))


@pytest.mark.parametrize("wrap", [lambda f: f, torch.compile], ids=["function", "compiled"])
def test_a_function_as_stablehlo(wrap: Any, pjrt: ModuleType) -> None:
    before = pjrt.stats()["compiles"]
    text = pjrt.stablehlo(wrap(lambda x, w: (x @ w).tanh().sum()), torch.empty(2, 3, device="meta"), torch.ones(3, 4))
    assert pjrt.stats()["compiles"] == before
    for part in ("tensor<2x3xf32>", "tensor<3x4xf32>", "stablehlo.dot_general", "stablehlo.tanh", "stablehlo.reduce"):
        assert part in text
    module = nn.Linear(3, 4)
    assert "tensor<4x3xf32>" in pjrt.stablehlo(wrap(module), torch.ones(2, 3))


def test_a_value_that_is_read_has_no_stablehlo(pjrt: ModuleType) -> None:
    with pytest.raises(torch._subclasses.fake_tensor.DataDependentOutputException):
        pjrt.stablehlo(lambda x: x * x.sum().item(), torch.ones(2))


def test_a_number_of_the_host_is_read_before_it_is_written(device: torch.device) -> None:
    @torch.compile(backend="pjrt")
    def f(x: Tensor, step: Tensor) -> Tensor:
        y = x * step
        step.add_(1)
        return y

    x, step = torch.ones(3, device=device), torch.tensor(2.0)
    for want in (2.0, 3.0, 4.0):
        assert f(x, step).tolist() == [want] * 3
        assert step.item() == want + 1


def test_importing_us_breaks_no_compiled_optimizer() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    optimizer = torch.optim.AdamW([p])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.compile(optimizer.step, backend="eager")()
    assert not [why for why in torch._dynamo.utils.counters["graph_break"] if "torch_pjrt" in why]
