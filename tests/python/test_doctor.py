"""``python -m torch_pjrt doctor``: plain words and exit codes for a machine with nothing, with the CPU plugin, with a
library whose chip is elsewhere, with a broken one, and with one that hangs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(bool(os.environ.get("TORCH_PJRT_TEST_DEVICE")), reason="about torch_pjrt")


def doctor(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "torch_pjrt", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode, done.stdout


def plugin_package(folder: Path, name: str, body: str) -> str:
    """A folder for PYTHONPATH with a package that registers one plugin, as an installed one would."""
    (folder / f"{name}_plugin.py").write_text(f"from torch_pjrt.spec import PluginSpec\n{body}")
    info = folder / f"{name}_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torch_pjrt.plugins]\n{name} = {name}_plugin:spec\n")
    return str(folder)


def test_the_cpu_plugin_works_and_the_others_say_what_is_missing() -> None:
    code, text = doctor()
    assert code == 0
    assert "check: 2x2 ones @ ones sums to 8.0 (expected 8.0)" in text
    assert "host_visible_buffers = true" in text
    assert "cpu: in use" in text
    for name in ("cuda", "metal", "neuron", "oneapi", "rocm", "tenstorrent", "tpu"):
        line = next(line for line in text.splitlines() if line.startswith(f"  {name}: "))
        assert "not installed. Install" in line or "this machine shows no" in line or "is for Macs" in line


def test_a_machine_without_plugins(tmp_path: Path) -> None:
    """Nothing to load: the device does not work, and each plugin says how to get it."""
    code, text = doctor(TORCH_PJRT_PLUGIN="nothing")
    assert code == 2
    assert "TORCH_PJRT_PLUGIN=nothing names no registered plugin" in text


def test_a_broken_library(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_text("not a library" * 100)
    code, text = doctor(TORCH_PJRT_PLUGIN=str(broken))
    assert code == 1
    assert "does not work" in text and "broken.so" in text and "invalid ELF header" in text


def test_a_library_that_is_gone() -> None:
    code, text = doctor(TORCH_PJRT_PLUGIN="/nowhere/lib.so")
    assert code == 2
    assert "no such file: /nowhere/lib.so" in text


def test_a_plugin_whose_chip_is_not_here(tmp_path: Path) -> None:
    """Its library is there: nobody gets it unasked, and who asks hears where the chip should be."""
    library = tmp_path / "acme.so"
    library.write_text("")
    body = f"def spec(): return PluginSpec('acme', 'acme', '{library}', no_chip='this machine shows no Acme card')"
    path = plugin_package(tmp_path, "acme", body)
    code, text = doctor(PYTHONPATH=path)
    assert code == 0
    assert "acme: installed; this machine shows no Acme card, so that it is used only when" in text
    assert "cpu: in use" in text
    code, text = doctor(PYTHONPATH=path, TORCH_PJRT_PLUGIN="acme")
    assert code == 3
    assert "run it where the chip is; this machine shows no Acme card" in text


def test_a_tpu_runtime_without_a_tpu() -> None:
    """The library loads and looks for its chip; how long it may look is bounded."""
    pytest.importorskip("libtpu", reason="libtpu is not installed")
    if Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists():
        pytest.skip("this machine may have a TPU")
    code, text = doctor(TORCH_PJRT_PLUGIN="tpu", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
    assert code == 3, text
    assert "tpu: in use; this machine shows no TPU" in text and "Device 'tpu' does not work" in text
    assert "run it where the chip is" in text and "`torch_pjrt.target` compiles for it here" in text


def test_a_spec_that_raises_takes_no_other_down(tmp_path: Path) -> None:
    path = plugin_package(tmp_path, "acme", "def spec(): raise OSError('no licence')")
    code, text = doctor(PYTHONPATH=path)
    assert code == 0
    assert "acme: cannot describe itself: OSError('no licence')" in text


def test_a_plugin_that_hangs_is_given_up(tmp_path: Path) -> None:
    source = tmp_path / "hang.c"
    source.write_text("#include <unistd.h>\nvoid *GetPjrtApi(void) { for (;;) sleep(1); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "hang.so", source], check=True)
    code, text = doctor("--timeout", "8", TORCH_PJRT_PLUGIN=str(tmp_path / "hang.so"))
    assert code == 1
    assert "did not answer within 8 s" in text


def test_the_example_of_a_vendors_package_works_when_it_is_installed(tmp_path: Path) -> None:
    """``pip install examples/new_plugin`` is all: the chip has its own device name and is preferred."""
    source = Path(__file__).parents[2] / "examples" / "new_plugin"
    shutil.copytree(source, tmp_path / "source")  # a build leaves files beside its sources
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(tmp_path / "source")], check=True)
    code, text = doctor(PYTHONPATH=str(tmp_path / "site"))
    assert code == 0, text
    assert "acme: in use" in text and "Device 'acme': plugin" in text


def test_a_real_chip_wins_over_the_cpu_plugin(tmp_path: Path) -> None:
    body = "def spec(): return PluginSpec('acme', 'acme', '/usr/bin/env')"
    code, text = doctor(PYTHONPATH=plugin_package(tmp_path, "acme", body))
    assert code == 1
    assert "Device 'acme' does not work" in text
