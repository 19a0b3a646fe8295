"""The device is there without an import, has a name, indices and a module, and says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_importing_torch_is_enough_to_use_the_device(run_python: Run) -> None:
    done = run_python("print((torch.ones(2, device=D) + 1).tolist())")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2.0, 2.0]\n", "")


def test_importing_torch_does_not_start_the_plugin(run_python: Run) -> None:
    done = run_python("import torch_pjrt\nprint(getattr(torch, D).is_initialized())", check=True)
    assert done.stdout == "False\n"


def test_the_autoload_switch_of_pytorch_is_obeyed(run_python: Run) -> None:
    done = run_python("print(hasattr(torch, D))", check=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "False\n"


def test_an_explicit_import_works_without_autoload(run_python: Run) -> None:
    code = "import torch_pjrt\nprint(torch.ones(2, device=D).sum().item())"
    assert run_python(code, check=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "2.0\n"


def test_importing_the_package_first_works(pjrt: ModuleType) -> None:
    code = f"import torch_pjrt, torch; print(torch.ones(2, device={pjrt.device_name()!r}).sum().item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("2.0\n", "")


def test_the_device_is_the_accelerator_of_the_process(device: torch.device, pjrt: ModuleType) -> None:
    assert torch.accelerator.is_available()
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    assert accelerator.type == device.type
    assert torch.accelerator.device_count() >= 1


def test_the_module_answers_what_pytorch_asks_of_it(module: ModuleType, device: torch.device) -> None:
    assert module.is_available()
    assert module.device_count() >= 1
    assert module.current_device() == 0
    assert torch.get_device_module(device) is module
    assert torch.get_device_module() is module
    assert not module._is_in_bad_fork()
    assert torch.float32 in module.get_amp_supported_dtype() or torch.bfloat16 in module.get_amp_supported_dtype()
    assert isinstance(module.get_device_name(), str)
    module.synchronize()


def test_an_index_is_filled_in(device: torch.device) -> None:
    tensor = torch.empty(2, device=device)
    if device.type == "cpu":
        assert tensor.device.index is None
    else:
        assert str(tensor.device) == f"{device.type}:0"
        assert tensor.get_device() == 0


def test_tensors_and_modules_have_the_devices_methods(device: torch.device, pjrt: ModuleType) -> None:
    tensor = getattr(torch.ones(2), device.type)()
    assert tensor.device.type == device.type
    assert getattr(tensor, f"is_{device.type}")
    assert not getattr(torch.ones(2), f"is_{device.type}")
    layer = getattr(torch.nn.Linear(2, 2), device.type)()
    assert layer.weight.device.type == device.type


def test_the_device_is_a_default_device_and_a_context(device: torch.device) -> None:
    with device:
        assert torch.zeros(3).device.type == device.type
    torch.set_default_device(device)
    try:
        assert torch.arange(3).device.type == device.type
        assert torch.tensor([1.0]).device.type == device.type
    finally:
        torch.set_default_device(None)


def test_an_index_past_the_last_device_is_refused(device: torch.device, pjrt: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"99"):
        torch.empty(2, device=f"{device.type}:99")
    with pytest.raises(RuntimeError, match=r"99"):
        torch.accelerator.set_device_index(99)
    assert torch.accelerator.current_device_index() == 0


def test_the_capability_lists_the_dtypes(device: torch.device, pjrt: ModuleType) -> None:
    dtypes = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool} <= set(dtypes)


def test_versions_name_the_plugin(pjrt: ModuleType) -> None:
    versions = pjrt.versions()
    assert versions["torch"] == torch.__version__
    assert versions["torch_pjrt"]
    text = " ".join(str(value) for value in versions.values())
    assert ".so" in text


def test_the_package_describes_itself_on_the_command_line(pjrt: ModuleType) -> None:
    done = subprocess.run([sys.executable, "-m", "torch_pjrt"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert torch.__version__ in done.stdout
    assert ".so" in done.stdout


FOUR_DEVICES = """
assert getattr(torch, D).device_count() == torch.accelerator.device_count() == 4
"""


@pytest.mark.parametrize(
    "code",
    {
        "each holds its tensors": """
tensors = [torch.full((2,), float(i), device=f"{D}:{i}") for i in range(4)]
assert [t.device.index for t in tensors] == [0, 1, 2, 3]
assert [(t + 1).sum().item() for t in tensors] == [2, 4, 6, 8]
""",
        "one is current per thread": """
import threading
torch.accelerator.set_device_index(2)
assert torch.empty(1, device=D).device.index == 2
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_device_index()))
thread.start(); thread.join()
assert seen == [0], seen
with torch.accelerator.device_index(3):
    assert torch.ones(1, device=D).device.index == 3
assert torch.accelerator.current_device_index() == 2
with getattr(torch, D).device(1):
    assert torch.ones(1, device=D).device.index == 1
assert getattr(torch, D).current_device() == 2
""",
        "copies go from one to another": """
a = torch.arange(6.0, device=f"{D}:1").reshape(2, 3)
b = a.t().to(f"{D}:3")
assert b.device.index == 3 and b.cpu().equal(a.cpu().t())
c = torch.zeros(3, 2, device=f"{D}:0")
c.copy_(a.t())
assert c.cpu().equal(a.cpu().t())
""",
        "an operator refuses two of them": """
try:
    torch.ones(2, device=f"{D}:0") + torch.ones(2, device=f"{D}:1")
except RuntimeError as error:
    assert "same device" in str(error) and f"{D}:0" in str(error) and f"{D}:1" in str(error), error
else:
    raise AssertionError("no error")
""",
        "backward runs on the second": """
x = torch.ones(3, device=f"{D}:1", requires_grad=True)
y = (x * x).sum().to(f"{D}:2") * 2
y.backward()
assert x.grad.device.index == 1 and x.grad.tolist() == [4.0] * 3
""",
        "each has a generator": """
torch.manual_seed(5)
draws = [torch.rand(4, device=f"{D}:{i}") for i in range(4)]
torch.manual_seed(5)
assert all(torch.rand(4, device=f"{D}:{i}").equal(d) for i, d in enumerate(draws))
""",
        "memory is counted per device": """
before = [torch.accelerator.memory_allocated(i) for i in range(4)]
keep = torch.ones(1 << 18, device=f"{D}:2")
torch.accelerator.synchronize(2)
after = [torch.accelerator.memory_allocated(i) for i in range(4)]
grown = [a - b for a, b in zip(after, before)]
assert grown[2] >= 1 << 20 and grown[0] == grown[1] == grown[3] == 0, grown
""",
    }.items(),
    ids=lambda item: item[0],
)
def test_of_four_devices(code: tuple[str, str], run_python: Run) -> None:
    done = run_python(FOUR_DEVICES + code[1], TORCH_PJRT_CPU_DEVICES="4")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_device_name_can_be_chosen(run_python: Run) -> None:
    code = "x = torch.ones(2, device='tpu') + 1\nprint(x.device, torch.tpu.is_available())"
    done = run_python(code, TORCH_PJRT_DEVICE_NAME="tpu")
    assert (done.stdout, done.stderr) == ("tpu:0 True\n", "")


def test_a_device_name_that_pytorch_has_is_refused(run_python: Run) -> None:
    done = run_python("torch.ones(2, device='cuda') + 1", TORCH_PJRT_DEVICE_NAME="cuda")
    assert done.returncode == 1
    assert "TORCH_PJRT_DEVICE_NAME" in done.stderr


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_a_bad_plugin_path_says_what_is_wrong(kind: str, run_python: Run, tmp_path: Path) -> None:
    path = tmp_path / "plugin.so"
    if kind == "text":
        path.write_text("not a library")
    done = run_python("torch.ones(2, device=D)", TORCH_PJRT_PLUGIN=str(path), TORCH_PJRT_DEVICE_NAME="pjrt")
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" in done.stderr, "an exception, not a crash"


def test_an_unknown_plugin_name_lists_the_known_ones(run_python: Run) -> None:
    done = run_python("torch.ones(2, device=D)", TORCH_PJRT_PLUGIN="nosuchplugin", TORCH_PJRT_DEVICE_NAME="pjrt")
    assert done.returncode == 1
    assert "nosuchplugin" in done.stderr
    assert "cpu" in done.stderr


def test_torch_without_a_usable_plugin_still_works_on_the_cpu(run_python: Run, tmp_path: Path) -> None:
    code = "print(torch.ones(2).sum().item(), torch.accelerator.is_available())"
    done = run_python(code, TORCH_PJRT_PLUGIN=str(tmp_path / "none.so"), TORCH_PJRT_DEVICE_NAME="pjrt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0 False\n", "")


def test_a_plugin_can_be_named_by_its_path(run_python: Run, pjrt: ModuleType) -> None:
    paths = [str(value) for value in pjrt.versions().values() if str(value).endswith(".so")]
    done = run_python("print(torch.ones(2, device=D).sum().item())", check=True, TORCH_PJRT_PLUGIN=paths[0])
    assert done.stdout == "2.0\n"
