"""Models compiled ahead of time run elsewhere as they run here, without tracing or compiling."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import networks


class Counting(nn.Module):
    """Writes a buffer, has a constant, returns a nest, and takes a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, factor: float) -> dict[str, Any]:
        self.calls += 1
        y = self.linear(x) * factor + torch.tensor([1.0, 2.0, 3.0], device=x.device)
        return {"y": y, "parts": (y.sum(), y.T), "calls": self.calls.clone()}


def test_results_buffers_and_views_are_those_of_the_model(
    pjrt: ModuleType, device: torch.device, tmp_path: Path
) -> None:
    model = Counting().to(device)
    x = torch.rand(5, 4, device=device)
    pjrt.compile_ahead(model, (x, 2.0), tmp_path / "model")
    assert model.calls.item() == 0
    state = {name: t.clone() for name, t in model.state_dict().items()}
    package = pjrt.load_ahead(tmp_path / "model", state)
    for _ in range(2):
        expected, found = model(x, 2.0), package(x, 2.0)
    torch.testing.assert_close(found, expected)
    assert state["calls"].item() == 2
    transposed = found["parts"][1]
    transposed.zero_()
    assert found["y"].abs().sum().item() == 0


def test_each_example_has_a_program_and_other_arguments_are_refused(
    pjrt: ModuleType, device: torch.device, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1)).to(device).eval()
    examples = [(torch.rand(n, 4, device=device),) for n in (2, 7)]
    pjrt.compile_ahead(model, examples, tmp_path / "model")
    package = pjrt.load_ahead(tmp_path / "model", model.state_dict())
    for (x,) in examples:
        torch.testing.assert_close(package(x + 1), model(x + 1))
    with pytest.raises(
        TypeError, match=r"no program for \(float32\[3, 4\]\); there are those for\n  \(float32\[2, 4\]"
    ):
        package(torch.rand(3, 4, device=device))
    with pytest.raises(TypeError, match="no program for"):
        package(torch.rand(4, 2, device=device).T)


def test_another_process_neither_traces_nor_compiles(
    pjrt: ModuleType, device: torch.device, tmp_path: Path, run_python: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    model = networks.TinyGPT(50, 16).to(device).eval()
    tokens = torch.randint(50, (2, 16), device=device)
    pjrt.compile_ahead(model, (tokens,), tmp_path / "model")
    torch.save(
        {"state": model.state_dict(), "tokens": tokens.cpu(), "expected": model(tokens).cpu()}, tmp_path / "rest"
    )
    done = run_python(
        f"""
import torch_pjrt
from torch_pjrt import compiler
compiler._plain = None  # nothing is traced
rest = torch.load({str(tmp_path / "rest")!r})
package = torch_pjrt.load_ahead({str(tmp_path / "model")!r}, rest["state"])
before = torch_pjrt.stats()["compiles"]
found = package(rest["tokens"].to(D)).cpu()
print(torch_pjrt.stats()["compiles"] - before)
torch.testing.assert_close(found, rest["expected"])
""",
        TORCH_PJRT_CACHE="off",
    )
    assert done.stdout == "0\n", done.stdout + done.stderr[-2000:]


class Ragged(nn.Module):
    """Results of changing and of fixed sizes, views of inputs and of results, numbers, and a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, y: Tensor, n: int) -> tuple[Any, ...]:
        self.calls += 1
        z = self.linear(x).softmax(0)
        return x.T, z, z[:, 1], (x * y).mean(0), torch.cat([x, y]), x.flatten(), x.shape[0] + 1, x * n


def test_one_program_serves_all_sizes_up_to_the_largest(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    on_cpu, model = Ragged(), Ragged().to(device)
    model.load_state_dict(on_cpu.state_dict())
    length = torch.export.Dim("length", max=100)
    inputs = torch.rand(5, 4, device=device), torch.rand(5, 4, device=device), 3
    pjrt.compile_ahead(model, inputs, tmp_path / "model", dynamic=({0: length}, {0: length}, torch.export.Dim.DYNAMIC))
    state = {name: t.clone() for name, t in model.state_dict().items()}
    package = pjrt.load_ahead(tmp_path / "model", state)
    before = pjrt.stats()["compiles"]
    found = {}
    for size in (7, 100, 64, 2, 1, 5, 99):
        x, y = torch.rand(2, size, 4)
        found[size] = x, y, package(x.to(device), y.to(device), size)
    assert pjrt.stats()["compiles"] == before
    for x, y, results in found.values():
        shown = tuple(r.cpu() if isinstance(r, Tensor) else r for r in results)
        torch.testing.assert_close(shown, on_cpu(x, y, len(x)))
    x, y, (transposed, *_) = found[7]
    assert transposed.stride() == (1, 4)
    assert state["calls"].item() == len(found)
    for x, y, n in (
        (torch.rand(101, 4), torch.rand(101, 4), 3),
        (torch.rand(3, 4), torch.rand(4, 4), 3),
        (torch.rand(3, 5), torch.rand(3, 5), 3),
        (torch.rand(3, 4).half(), torch.rand(3, 4), 3),
        (torch.rand(3, 4), torch.rand(3, 4), 1.5),
    ):
        with pytest.raises(TypeError, match=r"\(float32\[0..100, 4\], float32\[0..100, 4\], \d+..\d+\)"):
            package(x.to(device), y.to(device), n)
    with pytest.raises(TypeError, match=r"no program for \(float32\[3, 4\] on cpu"):
        package(torch.rand(3, 4), torch.rand(3, 4), 3)


def test_a_gpt_with_any_batch_and_length(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    torch.manual_seed(0)
    on_cpu = networks.TinyGPT(50, 64).eval()
    model = networks.TinyGPT(50, 64).to(device).eval()
    model.load_state_dict(on_cpu.state_dict())
    sizes = {0: torch.export.Dim("batch", max=4), 1: torch.export.Dim("length", max=64)}
    pjrt.compile_ahead(model, (torch.randint(50, (2, 16), device=device),), tmp_path / "model", dynamic=(sizes,))
    package = pjrt.load_ahead(tmp_path / "model", model.state_dict())
    before = pjrt.stats()["compiles"]
    for size in ((1, 1), (4, 64), (3, 17), (1, 33)):
        tokens = torch.randint(50, size)
        torch.testing.assert_close(package(tokens.to(device)).cpu(), on_cpu(tokens).detach(), rtol=1e-4, atol=1e-5)
    assert pjrt.stats()["compiles"] == before
    with pytest.raises(IndexError, match=r"index out of range: int64\[2, 5\] has to be in \[0, 50\)"):
        package(torch.full((2, 5), 50, device=device))


def test_images_in_any_number(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    """Of operators that torch.export leaves whole."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2)]
    on_cpu = nn.Sequential(*layers, nn.GroupNorm(2, 8), nn.Flatten(2), nn.LSTM(64, 5, batch_first=True)).eval()
    model = copy.deepcopy(on_cpu).to(device)
    sizes = {0: torch.export.Dim("batch", max=8)}
    pjrt.compile_ahead(model, (torch.rand(2, 3, 8, 8, device=device),), tmp_path / "model", dynamic=(sizes,))
    package = pjrt.load_ahead(tmp_path / "model", model.state_dict())
    for batch in (1, 8, 5):
        images = torch.rand(batch, 3, 8, 8)
        (found, states), (expected, expected_states) = package(images.to(device)), on_cpu(images)
        torch.testing.assert_close(found.cpu(), expected.detach())
        torch.testing.assert_close(states[1].cpu(), expected_states[1].detach())


def test_sizes_that_no_program_can_have_are_an_error(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    dim, x = torch.export.Dim, torch.rand(6, 4, device=device)
    path = tmp_path / "model"
    with pytest.raises(ValueError, match=r"dimension 0 of input changes and has no largest value"):
        pjrt.compile_ahead(nn.Linear(4, 4).to(device), (x,), path, dynamic=({0: dim("n")},))
    with pytest.raises(NotImplementedError, match=r"cummax.default: has no rule for sizes that change"):
        pjrt.compile_ahead(Maximum(), (x,), path, dynamic=({0: dim("n", max=9)},))
    with pytest.raises(NotImplementedError, match=r"size 2\*"):
        pjrt.compile_ahead(nn.ReLU(), (x,), path, dynamic=({0: 2 * dim("n", max=9)},))
    with pytest.raises(torch._dynamo.exc.UserError, match="n"):
        pjrt.compile_ahead(nn.Linear(4, 4).to(device), (x,), path, dynamic=({1: dim("n", max=9)},))
    assert not path.exists()


def test_a_text_in_a_file_is_no_size(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    """sympy would evaluate it."""
    sizes = {0: torch.export.Dim("n", max=9)}
    pjrt.compile_ahead(nn.ReLU(), (torch.rand(6, 4, device=device),), tmp_path / "model", dynamic=(sizes,))
    content = torch.load(tmp_path / "model", weights_only=True)
    text = f"open({str(tmp_path / 'written')!r}, 'w')"
    for size in (text, ("size", "Add", text, 1), ("size", "sympify", text)):
        dtype, _ = content["calls"][0]["changing"]["shapes"][0]
        content["calls"][0]["changing"]["shapes"][0] = (dtype, (size, 4))
        torch.save(content, tmp_path / "other")
        with pytest.raises(ValueError, match=r"size|Sympify"):
            pjrt.load_ahead(tmp_path / "other", {})
    assert not (tmp_path / "written").exists()


class Maximum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cummax(0)[0]


def test_a_package_of_other_versions_compiles_anew_and_says_so(
    pjrt: ModuleType, device: torch.device, tmp_path: Path
) -> None:
    model = nn.Linear(3, 3).to(device)
    x = torch.rand(2, 3, device=device)
    pjrt.compile_ahead(model, (x,), tmp_path / "model")
    content = torch.load(tmp_path / "model", weights_only=True)
    assert "path" not in content["versions"]
    content["versions"]["torch_pjrt"] = "0.0.1"
    content["programs"] = []
    torch.save(content, tmp_path / "old")
    with pytest.warns(UserWarning, match=r"compiles anew: it was written with torch_pjrt 0.0.1 \(here: "):
        package = pjrt.load_ahead(tmp_path / "old", model.state_dict())
    torch.testing.assert_close(package(x), model(x).detach())


def test_what_does_not_fit_is_an_error(pjrt: ModuleType, device: torch.device, tmp_path: Path) -> None:
    model = nn.Linear(3, 3).to(device)
    x = torch.rand(2, 3, device=device)
    pjrt.compile_ahead(model, (x,), tmp_path / "model")
    with pytest.raises(KeyError, match="bias"):
        pjrt.load_ahead(tmp_path / "model", {"weight": model.weight})
    with pytest.raises(RuntimeError, match=r"weight is float32\[4, 3\] .* but the model has float32\[3, 3\]"):
        pjrt.load_ahead(tmp_path / "model", nn.Linear(3, 4).to(device).state_dict())
    with pytest.raises(RuntimeError, match="on cpu, but the model has"):
        pjrt.load_ahead(tmp_path / "model", nn.Linear(3, 3).state_dict())
    torch.save({"format": 0}, tmp_path / "other")
    with pytest.raises(ValueError, match="is no package of this version"):
        pjrt.load_ahead(tmp_path / "other", model.state_dict())
    for content in (b"", b"no package", (tmp_path / "model").read_bytes()[:1000]):
        (tmp_path / "damaged").write_bytes(content)
        with pytest.raises(ValueError, match="is no package of this version"):
            pjrt.load_ahead(tmp_path / "damaged", model.state_dict())
    with pytest.raises(ValueError, match="no example inputs"):
        pjrt.compile_ahead(model, [], tmp_path / "model")
    with pytest.raises(NotImplementedError, match="linalg_eig"):
        pjrt.compile_ahead(Eigenvalues(), (torch.rand(3, 3, device=device),), tmp_path / "eigenvalues")
    assert not (tmp_path / "eigenvalues").exists()


class Eigenvalues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x)
