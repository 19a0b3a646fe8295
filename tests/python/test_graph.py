"""Captured graphs (torch.accelerator.Graph) give what the same calls give, on what their tensors hold then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("pjrt")


def captured(call: Callable[[], object]) -> torch.accelerator.Graph:
    graph = torch.accelerator.Graph()
    with graph:
        call()
    return graph


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 32, bias=False), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture(params=["fused", "strict"])
def mode(request: pytest.FixtureRequest, pjrt: ModuleType) -> Iterator[str]:
    with pjrt.eager(request.param):
        yield request.param


@pytest.mark.usefixtures("mode")
def test_nothing_runs_until_the_replay(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    y = x * 1

    def call() -> None:
        nonlocal y
        x.add_(1)
        y = x * 10

    graph = captured(call)
    assert x.tolist() == [0, 1, 2, 3]
    graph.replay()
    assert x.tolist() == [1, 2, 3, 4] and y.tolist() == [10, 20, 30, 40]
    x.copy_(torch.zeros(4))
    graph.replay()
    graph.replay()
    assert x.tolist() == [2] * 4 and y.tolist() == [20] * 4


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_training_steps_are_those_of_eager(
    pjrt: ModuleType, device: torch.device, optimizer: type[torch.optim.Optimizer]
) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(16, 12), torch.randint(5, (16,))) for _ in range(12)]
    source = Net().state_dict()
    options = {"lr": 0.01, **({"capturable": True} if optimizer is torch.optim.AdamW else {"momentum": 0.9})}

    def trainer(where: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
        net = Net()
        net.load_state_dict(source)
        net.to(where)
        on_cpu = options | {"capturable": False} if where.type == "cpu" and "capturable" in options else options
        return net, optimizer(net.parameters(), **on_cpu)

    host, host_optimizer = trainer(torch.device("cpu"))
    expected = []
    for x, labels in batches:
        host_optimizer.zero_grad()
        loss = nn.functional.cross_entropy(host(x), labels)
        loss.backward()
        host_optimizer.step()
        expected.append(loss.item())

    net, ours = trainer(device)
    x, labels = (part.to(device) for part in batches[0])
    loss = torch.zeros((), device=device)

    def step() -> None:
        nonlocal loss
        ours.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        ours.step()

    found = []
    for i in range(2):
        x.copy_(batches[i][0])
        labels.copy_(batches[i][1])
        step()
        found.append(loss.item())
    graph = captured(step)
    compiles = pjrt.stats()["compiles"]
    for next_x, next_labels in batches[2:]:
        x.copy_(next_x)
        labels.copy_(next_labels)
        graph.replay()
        found.append(loss.item())
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-3, atol=1e-4)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value.cpu(), host.state_dict()[name], rtol=1e-3, atol=1e-4, msg=name)
    assert pjrt.stats()["compiles"] == compiles


@pytest.mark.usefixtures("mode")
def test_random_numbers_are_those_of_eager(device: torch.device) -> None:
    x = torch.ones(64, device=device)
    y = x

    def call() -> None:
        nonlocal y
        y = nn.functional.dropout(x, 0.5) + torch.rand(64, device=device)

    torch.manual_seed(3)
    expected = []
    for _ in range(3):
        call()
        expected.append(y.cpu())
    torch.manual_seed(3)
    graph = captured(call)
    for value in expected:
        graph.replay()
        assert torch.equal(y.cpu(), value)


@pytest.mark.usefixtures("mode")
def test_checkpoints_draw_the_same_numbers_again(device: torch.device) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to(device)
    x = torch.randn(4, 8, device=device, requires_grad=True)

    def call() -> None:
        x.grad = None
        torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()

    torch.manual_seed(0)
    call()
    expected = x.grad.cpu()
    torch.manual_seed(0)
    graph = captured(call)
    graph.replay()
    assert torch.equal(x.grad.cpu(), expected)


def test_tensors_that_shared_a_buffer_are_told_apart(device: torch.device) -> None:
    a = torch.arange(3.0, device=device)
    b = torch.empty(3, device=device)
    b.copy_(a)
    c = a

    def call() -> None:
        nonlocal c
        c = a * 10 + b

    graph = captured(call)
    b.copy_(torch.ones(3))
    graph.replay()
    assert c.tolist() == [1, 11, 21]


def test_a_copy_in_a_graph_is_of_the_moment_it_was_made(device: torch.device) -> None:
    x, before = torch.zeros(3, device=device), torch.zeros(3, device=device)

    def call() -> None:
        before.copy_(x)
        x.add_(1)

    graph = captured(call)
    for _ in range(3):
        graph.replay()
    assert before.tolist() == [2] * 3 and x.tolist() == [3] * 3


def test_views_and_what_autograd_saves(device: torch.device) -> None:
    x = torch.arange(6.0, device=device, requires_grad=True)
    view = x.detach().view(2, 3)[1]
    y = x

    def call() -> None:
        nonlocal y
        view.mul_(2)
        y = (x * x).sum()

    graph = captured(call)
    graph.replay()
    assert x.tolist() == [0, 1, 2, 6, 8, 10] and y.item() == 205


def test_tensors_that_are_gone_keep_what_they_had(device: torch.device) -> None:
    temporary = [torch.ones(2, device=device), torch.full((2,), 5.0, device=device)]
    y = temporary[0]
    y = y + 0

    def call() -> None:
        nonlocal y
        y = temporary[0] + temporary.pop()

    graph = captured(call)
    temporary.clear()
    graph.replay()
    assert y.tolist() == [6, 6]


def test_graphs_of_compiled_functions_and_of_double_precision(device: torch.device) -> None:
    x = torch.rand(5, device=device)
    wide = torch.rand(5, dtype=torch.float64, device=device)
    function = torch.compile(lambda t: torch.sin(t) * 2)
    function(x)
    y = z = x

    def call() -> None:
        nonlocal y, z
        y = function(x) + 1
        z = (wide * wide).sum()

    graph = captured(call)
    x.copy_(torch.full((5,), 0.5))
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.sin(torch.full((5,), 0.5)) * 2 + 1)
    torch.testing.assert_close(z.cpu(), (wide.cpu() * wide.cpu()).sum())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: torch.accelerator.synchronize(),
        lambda x: x.nonzero(),
        lambda x: x.copy_(torch.zeros(3)),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: torch.rand(3, device=x.device, generator=torch.Generator(x.device)),
    ],
    ids=["item", "cpu", "synchronize", "nonzero", "copy from the CPU", "tensor", "generator"],
)
def test_what_a_capture_cannot_do_is_an_error_and_changes_nothing(
    device: torch.device, call: Callable[[torch.Tensor], object]
) -> None:
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    graph.capture_begin()
    assert torch.accelerator.current_stream().is_capturing()
    x.add_(1)
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        call(x)
    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
        graph.capture_end()
    assert not torch.accelerator.current_stream().is_capturing()
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    graph.reset()
    with graph:
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2, 2, 2]


def test_an_optimizer_that_counts_on_the_cpu_is_refused(device: torch.device) -> None:
    net = nn.Linear(2, 2).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 2, device=device)).sum().backward()
    graph = torch.accelerator.Graph()
    with (
        pytest.raises(RuntimeError, match=r"graph capture of step\(\) for an instance of AdamW but param_groups'"),
        graph,
    ):
        optimizer.step()


def test_misuse_is_an_error(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    graph, other = torch.accelerator.Graph(), torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="capture_end without"):
        graph.capture_end()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="another graph is being captured"):
        other.capture_begin()
    y = x + 1
    graph.capture_end()
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    graph.replay()
    assert y.tolist() == [2, 2, 2]
    x.resize_(8)
    x.copy_(torch.zeros(8))
    with pytest.raises(RuntimeError, match="another size or layout than when it was captured"):
        graph.replay()


def test_memory_of_what_is_overwritten_is_used_again(pjrt: ModuleType, device: torch.device) -> None:
    x = torch.ones(1 << 20, device=device)

    def call() -> None:
        x.mul_(2).add_(1)

    call()
    torch.accelerator.synchronize()
    graph = captured(call)
    before = pjrt.stats()["live_bytes"]
    torch.accelerator.reset_peak_memory_stats()
    graph.replay()
    torch.accelerator.synchronize()
    assert pjrt.stats()["live_bytes"] == before
    assert pjrt.stats()["peak_bytes"] < before + x.nbytes
    assert x[0].item() == 7


def test_what_is_replayed_can_be_read(device: torch.device, tmp_path: Path) -> None:
    x = torch.ones(3, device=device)
    graph = captured(lambda: x.mul_(2).add_(1))
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert (
        tmp_path / "graph.txt"
    ).read_text() == "one program: aten::mul_.Tensor aten::add_.Tensor (1 inputs, 1 results)\n"


def test_a_process_may_end_while_it_captures(run_python: Callable[..., Any]) -> None:
    done = run_python(
        "x = torch.ones(3, device=D)\ngraph = torch.accelerator.Graph(); graph.capture_begin(); y = x + 1\n"
    )
    assert done.returncode == 0 and not done.stderr


def test_a_compiled_optimizer_that_counts_on_the_cpu_is_not_captured(device: torch.device) -> None:
    weight = nn.Parameter(torch.ones(2, device=device))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    step = torch.compile(optimizer.step, backend="pjrt")
    step()
    with pytest.raises(RuntimeError, match="capturable"), torch.accelerator.Graph():
        step()
    assert optimizer.state[weight]["step"].item() == 1
    step()
    assert optimizer.state[weight]["step"].item() == 2
