"""Files, printing, copies and life of a process where other devices were wrong; each test links the report."""

from __future__ import annotations

import io
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from agree import normal
from torch import Tensor, nn

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("saved_on", ["cpu", "device"])
def test_a_file_is_loaded_by_every_kind_of_location(saved_on: str, weights_only: bool, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/79384, https://github.com/pytorch/pytorch/issues/77874
    file = io.BytesIO()
    base = torch.arange(12.0).view(3, 4).to("cpu" if saved_on == "cpu" else device)
    content = {"base": base, "view": base[1:, ::2], "low": base.to(torch.bfloat16), "parameter": nn.Parameter(base)}
    torch.save(content, file)
    name = device.type
    source = "cpu" if saved_on == "cpu" else str(base.device)
    places: list[Any] = [
        device,
        name,
        lambda storage, tag: torch.serialization.default_restore_location(storage, name),
        {source: name},
    ]
    places += [f"{name}:0", torch.device(name, 0), {source: f"{name}:0"}] if name != "cpu" else []
    for place in places:
        file.seek(0)
        loaded = torch.load(file, map_location=place, weights_only=weights_only)
        for key, value in content.items():
            assert loaded[key].device.type == device.type
            assert loaded[key].stride() == value.stride()
            assert loaded[key].cpu().equal(value.cpu())
        loaded["base"].zero_()
        assert not loaded["view"].any().item()


def test_ten_thousand_uploads_whose_source_is_gone(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/189690, https://github.com/pytorch/pytorch/issues/139550
    for start in range(0, 10_000, 100):
        parts = []
        for seed in range(start, start + 100):
            source = torch.full((65,), float(seed))
            parts.append(source.to(device, non_blocking=True))
            del source
            torch.full((65,), -1.0)  # likely to take the freed memory
        assert torch.stack(parts)[:, 64].cpu().equal(torch.arange(float(start), start + 100))


def test_an_upload_that_allocates_is_about_as_fast_as_a_copy(device: torch.device, pjrt: ModuleType) -> None:
    # https://github.com/tenstorrent/tt-mlir/issues/9359
    source = torch.ones(250_000_000 // 4)
    target = torch.empty_like(source, device=device)

    def best(call: Callable[[], object]) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            keep = call()
            torch.accelerator.synchronize()
            times.append(time.perf_counter() - start)
            del keep
        return min(times)

    assert best(lambda: source.to(device)) < 3 * best(lambda: target.copy_(source)) + 0.02


def test_many_sizes_cost_little_memory(run_python: Run) -> None:
    # https://github.com/pytorch/pytorch/issues/132596, https://github.com/pytorch/pytorch/issues/181213
    code = """
import resource, torch_pjrt
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
layer = torch.nn.Linear(8, 8).to(D)
for n in range(1, 65):
    layer(torch.ones(n, 8, device=D))
programs, before = torch_pjrt.stats()["programs"], rss()
for n in range(65, 321):
    layer(torch.ones(n, 8, device=D))
for _ in range(10):
    for n in range(65, 321):
        layer(torch.ones(n, 8, device=D))
grown = torch_pjrt.stats()["programs"] - programs
assert grown <= 2 * 256, grown
assert (rss() - before) / grown < 300_000, (rss() - before) / grown
"""
    run_python(code, check=True)


def test_after_a_failure_other_tensors_print_and_compute(device: torch.device) -> None:
    # https://github.com/tenstorrent/tt-xla/issues/2757
    x = torch.arange(4.0, device=device)
    failures: list[Callable[[], object]] = [
        lambda: x @ torch.ones(3, device=device),
        lambda: x[torch.tensor([9], device=device)].cpu(),
        lambda: torch.empty(1 << 50, device=device),
        lambda: torch.linalg.cholesky(-torch.eye(2, device=device)).cpu(),
    ]
    for fail in failures:
        with pytest.raises((RuntimeError, IndexError)):
            fail()
        assert "0., 1., 2., 3." in repr(x)
        assert (x * 2).sum().item() == 12


def test_a_tensor_in_a_queue_arrives_or_says_why_not(run_python: Run, tmp_path) -> None:
    # https://github.com/hao-ai-lab/FastVideo/issues/1846
    script = tmp_path / "sends.py"
    script.write_text(
        """
import sys
import torch
import torch.multiprocessing as multiprocessing

def main():
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    try:
        queue.put(torch.ones(3, device=sys.argv[1]))
    except Exception as error:
        print(type(error).__name__, error)
        return
    print(queue.get().cpu().tolist())

if __name__ == "__main__":
    main()
"""
    )
    done = run_python(f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, {str(script)!r}, D]))")
    assert done.returncode == 0, done.stderr
    (answer,) = done.stdout.splitlines()
    assert answer == "[1.0, 1.0, 1.0]" or "only available on CPU" in answer


def test_repeated_training_and_exit_always_end_with_0(run_python: Run) -> None:
    # https://github.com/pytorch/pytorch/issues/190489
    code = """
x = torch.ones(4, 4, device=D, requires_grad=True)
layer = torch.nn.Linear(4, 4).to(D)
layer(x).square().sum().backward()
"""
    for _ in range(4):
        done = run_python(code)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("strict")
def test_two_threads_with_two_models_get_what_one_gets(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/190489
    def train(kind: int) -> list[float]:
        weight = normal(8, 8, seed=kind).to(device).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.05, momentum=0.9)
        x, losses = normal(4, 8, seed=9).to(device), []
        for _ in range(30):
            optimizer.zero_grad()
            y = x @ weight
            loss = (y.tanh() if kind else y.relu()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = [train(kind) for kind in range(2)]
    for _ in range(5):
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(train, range(2))) == expected


def test_memory_counters_follow_one_mebibyte(device: torch.device, pjrt: ModuleType) -> None:
    # https://github.com/pytorch/pytorch/issues/167447, https://github.com/pytorch/pytorch/pull/193838
    def counters() -> dict[str, int]:
        torch.accelerator.synchronize()
        return torch.accelerator.memory_stats()

    torch.accelerator.reset_peak_memory_stats()
    before = counters()
    x: Tensor | None = torch.ones(1 << 18, device=device)
    during = counters()
    del x
    after = counters()
    for kind in ("allocated_bytes", "active_bytes"):
        assert during[f"{kind}.all.current"] - before[f"{kind}.all.current"] >= 1 << 20
        assert after[f"{kind}.all.current"] == before[f"{kind}.all.current"]
        assert after[f"{kind}.all.peak"] >= during[f"{kind}.all.current"]
    assert after["allocated_bytes.all.freed"] - before["allocated_bytes.all.freed"] >= 1 << 20
