"""The vendor-word check passes on the sources as they are, finds words in code and comments, and has exceptions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import check_vendor_words


def run_as_command(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, check_vendor_words.__file__, "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_core_names_no_vendor(tree: Path) -> None:
    done = run_as_command(tree)
    assert done.returncode == 0, done.stdout


def test_the_command_fails_on_a_vendor_word(tree: Path) -> None:
    header = tree / "csrc" / "hlo" / "builder.h"
    header.write_text("// as on TPU\n" + header.read_text())
    done = run_as_command(tree)
    assert done.returncode == 1
    assert "csrc/hlo/builder.h:1: vendor word 'tpu': // as on TPU" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "word"),
    [
        ("csrc/lower/spoiled.cpp", "if (caps.is_cuda) return;", "cuda"),
        ("csrc/exec/spoiled.h", "class CudaGuard;", "cuda"),
        ("csrc/runtime/spoiled.cpp", "auto t = c10::kCUDA;", "cuda"),
        ("csrc/runtime/spoiled.cpp", "auto t = c10::kXPU;", "xpu"),
        ("csrc/pjrt/spoiled.cpp", "// libtpu needs this", "libtpu"),
        ("csrc/pjrt/spoiled.cpp", "// not on TPUs", "tpu"),
        ("csrc/pjrt/spoiled.cpp", 'if (platform == "Neuron") {', "neuron"),
        ("csrc/base/CMakeLists.txt", "set(TPU_FLAGS on)", "tpu"),
        ("python/torch_pjrt/spoiled.py", "def on_rocm(): ...", "rocm"),
        ("python/torch_pjrt/spoiled.py", "# An Intel chip does not", "intel"),
    ],
)
def test_a_vendor_word_is_found(folders: Path, file: str, line: str, word: str) -> None:
    (folders / file).write_text(f"\n{line}\n")
    assert list(check_vendor_words.find_violations(folders)) == [f"{file}:2: vendor word '{word}': {line}"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("csrc/lower/fine.cpp", "// relationship, metallic, amdahl, chip, ship, input"),
        ("python/torch_pjrt/plugins/fine.py", 'NAME = "tpu"  # libtpu'),
        ("docs/fine.md", "cuda and tpu"),
        ("tests/fine.py", "cuda"),
    ],
)
def test_other_words_and_other_places_pass(folders: Path, file: str, line: str) -> None:
    path = folders / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line + "\n")
    assert list(check_vendor_words.find_violations(folders)) == []


def test_an_exception_that_nothing_needs_is_found(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders / "csrc" / "hlo" / "spoiled.cpp").write_text("// TPU\n")
    allowed = {("csrc/hlo/spoiled.cpp", "tpu"): "a reason", ("csrc/hlo/gone.cpp", "tpu"): "a reason"}
    monkeypatch.setattr(check_vendor_words, "ALLOWED", {**check_vendor_words.ALLOWED, **allowed})
    (violation,) = check_vendor_words.find_violations(folders)
    assert violation.endswith("'tpu' is allowed in csrc/hlo/gone.cpp, but does not occur there")
