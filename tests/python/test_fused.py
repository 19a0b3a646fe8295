"""Fused eager: calls are noted and run together; nobody can tell by the results."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def fused(pjrt: ModuleType) -> Iterator[None]:
    with pjrt.eager("fused"):
        yield


def chain(x: torch.Tensor, times: int, factor: float = 1.5) -> torch.Tensor:
    for _ in range(times):
        x = torch.sigmoid(x * factor + 0.1).relu()
    return x


def new_compiles(pjrt: ModuleType, call: Callable[[], object]) -> list[str]:
    pjrt.reset_stats()
    call()
    pjrt.stats()  # what is noted runs
    return [entry["operator"] for entry in pjrt.compile_log()]


def test_a_chain_is_one_program(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.randn(17, 19)
    on_device = x.to(device)
    compiled = new_compiles(pjrt, lambda: torch.testing.assert_close(chain(on_device, 5).cpu(), chain(x, 5)))
    assert len(compiled) == 1 and compiled[0].startswith("graph of 20 calls, aten::mul.Tensor to aten::relu")


def test_numbers_and_repetitions_compile_nothing(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.randn(23, 3)
    on_device = x.to(device)
    for _ in range(2):
        chain(on_device, 3).cpu()
    for i in range(10):
        factor = 0.3 + i / 7
        with pjrt.no_compile():
            found = chain(on_device, 3, factor).cpu()
        torch.testing.assert_close(found, chain(x, 3, factor))


def test_equal_numbers_are_not_taken_for_one(device: torch.device, pjrt: ModuleType) -> None:
    """A rate that happens to equal another number once must not be that number ever after."""
    x = torch.full((7, 3), 2.0, device=device)

    def run(a: float, b: float) -> float:
        return float((x * a + 1).mul(b).add(3).sum().item())

    for a, b in ((0.5, 0.5), (0.5, 0.5), (0.5, 0.25), (0.125, 0.5)):
        assert run(a, b) == pytest.approx(21 * ((2 * a + 1) * b + 3))


def test_equal_layers_compile_once(device: torch.device, pjrt: ModuleType) -> None:
    def network(layers: int) -> torch.nn.Sequential:
        parts = [torch.nn.Sequential(torch.nn.Linear(31, 31), torch.nn.LayerNorm(31), torch.nn.GELU(), torch.nn.Tanh())]
        parts += [
            type(parts[0])(*(torch.nn.Linear(31, 31), torch.nn.LayerNorm(31), *parts[0][2:])) for _ in range(layers)
        ]
        return torch.nn.Sequential(*parts).to(device)

    x = torch.randn(5, 31, device=device)
    short, long = network(11), network(47)
    first = new_compiles(pjrt, lambda: short(x).sum().item())
    second = new_compiles(pjrt, lambda: long(x).sum().item())
    assert first and len(second) <= 2, (first, second)


def test_the_second_step_of_a_training_compiles_nothing_new(device: torch.device, pjrt: ModuleType) -> None:
    """Also with an optimizer that makes its state in the first one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(13, 37), torch.nn.ReLU(), torch.nn.Linear(37, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, y = torch.randn(11, 13, device=device), torch.randint(3, (11,), device=device)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    assert new_compiles(pjrt, step)
    assert new_compiles(pjrt, step) == []
    with pjrt.no_compile():
        losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0]


def test_graphs_seen_twice_compile_nothing_more(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.rand(41, device=device)
    operations = [torch.sin, torch.cos, torch.exp, torch.tanh, torch.sqrt]

    def run(i: int) -> float:
        y = x
        for k in range(5):
            y = operations[(i // 5**k) % 5](y).abs()
        return float(y.sum().item())

    for _ in range(2):
        for i in range(50):
            run(i)
    with pjrt.no_compile():
        for i in range(50):
            run(i)


def test_a_graph_that_runs_once_compiles_no_more_than_its_operators(device: torch.device, pjrt: ModuleType) -> None:
    """Random rows of few operators: at first as graphs, then by the operators' own programs."""
    x = torch.rand(43, device=device)
    operations = [torch.sin, torch.cos, torch.exp, torch.tanh, torch.sqrt, torch.sigmoid, torch.square, torch.abs]
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        y = x
        for i in torch.randint(len(operations), (12,), generator=generator).tolist():
            y = operations[i](y)
        y.sum().item()

    compiled = new_compiles(pjrt, lambda: [run() for _ in range(60)])
    assert len(compiled) <= 2 * (len(operations) + 1), compiled


def test_only_what_somebody_holds_is_kept(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.ones(8, 8, device=device)
    chain(x, 3).cpu()
    before = pjrt.stats()["live_buffers"]
    y = chain(x, 3)
    torch.accelerator.synchronize()
    assert pjrt.stats()["live_buffers"] == before + 1
    assert y.is_contiguous()


def test_writes_through_views_and_aliases(device: torch.device) -> None:
    def run(where: torch.device | str) -> list[torch.Tensor]:
        base = torch.arange(24.0, device=where).view(4, 6)
        row, columns, flat = base[1], base[:, 2:4], base.view(-1)
        before = base.clone()
        row += 100
        columns.mul_(-1)
        flat[::5] = 7
        shared = base.detach()
        base[3].copy_(base[0])
        shared.t()[0] = 9
        other = torch.empty(4, 6, device=where)
        torch.add(base, before, out=other)
        return [base, row, columns, flat, before, shared, other]

    for _ in range(3):  # noted, compiled, found
        for mine, theirs in zip(run(device), run("cpu"), strict=True):
            torch.testing.assert_close(mine.cpu(), theirs)


def test_random_numbers_are_those_of_strict_mode(device: torch.device, pjrt: ModuleType) -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        x = torch.rand(6, 7, device=device)
        y = torch.nn.functional.dropout(x + 1, 0.5)
        z = torch.randn_like(y) * torch.bernoulli(x)
        return [t.cpu() for t in (x, y, z, torch.randint(100, (9,), device=device))]

    found = [draw() for _ in range(3)]
    with pjrt.eager("strict"):
        wanted = draw()
    for mine in found:
        for m, w in zip(mine, wanted, strict=True):
            torch.testing.assert_close(m, w)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x @ x.t() @ x.t(),
        lambda x: x + torch.ones(5, device=x.device),
        lambda x: torch.softmax(x, 7),
        lambda x: x & x,
        lambda x: x[torch.arange(4, device=x.device) + 1],
        lambda x: torch.nn.functional.embedding(torch.full((2,), 9, device=x.device) + 1, x),
        lambda x: torch.nn.functional.conv1d(x[None], x[None], dilation=-1),
    ],
    ids=["shapes", "broadcast", "dim", "dtype", "index", "position", "dilation"],
)
def test_a_mistake_raises_at_the_call(mistake: Callable[[torch.Tensor], object], device: torch.device) -> None:
    x = torch.randn(4, 3, device=device)
    x = x * 2  # noted
    with pytest.raises(Exception) as mine:
        mistake(x)
    with pytest.raises(Exception) as theirs:
        mistake(x.cpu())
    assert type(mine.value) is type(theirs.value)
    torch.testing.assert_close(x.cpu(), x.clone().cpu())


def test_a_change_of_mode_runs_what_is_noted(device: torch.device, pjrt: ModuleType) -> None:
    x = torch.ones(3, device=device)
    y = x + 1
    with pjrt.eager("debug"):
        z = y * 2
    assert (z + y).tolist() == [6, 6, 6]
    with pytest.raises(ValueError, match="TORCH_PJRT_EAGER must be strict, fused or debug"), pjrt.eager("lazy"):
        pass


def test_threads_note_their_calls_together(device: torch.device) -> None:
    """One device has one row of notes: what a thread reads may be what another one noted."""
    inputs = [torch.randn(16, 16) for _ in range(4)]
    found: dict[int, list[torch.Tensor]] = {}

    def work(i: int) -> None:
        x = inputs[i].to(device)
        found[i] = [chain(x, 4 + k % 3).cpu() for k in range(30)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, results in found.items():
        for k, result in enumerate(results):
            torch.testing.assert_close(result, chain(inputs[i], 4 + k % 3))


def test_a_long_loop_without_a_read_is_cut(device: torch.device) -> None:
    x = torch.zeros(5, device=device)
    for _ in range(10_000):
        x = x + 1
    assert x.tolist() == [10_000.0] * 5


def test_inputs_that_only_the_notes_hold_are_let_go(device: torch.device, pjrt: ModuleType) -> None:
    """A loop over large batches that reads nothing."""
    total = torch.zeros((), device=device)
    batch = torch.ones(4 << 20)  # 16 MiB
    torch.accelerator.reset_peak_memory_stats()
    for _ in range(300):
        total += batch.to(device)[::4096].sum()
    assert pjrt.stats()["peak_bytes"] < 3 << 30
    assert total.item() == 300 * 1024


def test_low_precision_rounds_at_each_call(device: torch.device) -> None:
    x = torch.randn(2048).bfloat16()

    def run(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1) - 1) * 3 - x

    on_device = x.to(device)
    for _ in range(3):
        assert torch.equal(run(on_device).cpu(), run(x))


STEPS = """
import torch_pjrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(9, 21), torch.nn.GELU(), torch.nn.Linear(21, 3)).to(D)
optimizer = torch.optim.AdamW(model.parameters())
for i in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 9, device=D) * i).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_two_runs_make_the_same_programs_in_the_same_order(run_python: Run, tmp_path: Path) -> None:
    texts = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        run_python(STEPS, check=True, TORCH_PJRT_EAGER="fused", TORCH_PJRT_DUMP=str(folder))
        files = sorted(folder.iterdir(), key=lambda f: int(f.name.split("-")[1]))
        texts.append([f.read_text() for f in files])
    assert texts[0] == texts[1] and any("graph of" in t for t in texts[0])


def test_a_process_that_ends_with_notes_ends_silently(run_python: Run) -> None:
    done = run_python("x = torch.ones(3, device=D) + 1; y = x @ x", TORCH_PJRT_EAGER="fused")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
