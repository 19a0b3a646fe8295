"""The layer check passes on the sources as they are and fails on each kind of forbidden arrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import check_layers

NOT_NAMED_BY_FOLDER = 'our headers are included as "folder/file.h"'


def run_as_command(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, check_layers.__file__, "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_sources_keep_the_layers(tree: Path) -> None:
    done = run_as_command(tree)
    assert done.returncode == 0, done.stdout


def test_the_command_fails_on_a_forbidden_include(tree: Path) -> None:
    header = tree / "csrc" / "hlo" / "builder.h"
    header.write_text('#include "runtime/cell.h"\n' + header.read_text())
    done = run_as_command(tree)
    assert done.returncode == 1
    assert 'csrc/hlo/builder.h:1: #include "runtime/cell.h": hlo may not include runtime' in done.stdout


@pytest.mark.parametrize(
    ("folder", "line", "problem"),
    [
        ("hlo", '#include "pjrt/api.h"', "hlo may not include pjrt"),
        ("base", '#include "hlo/builder.h"', "base may not include hlo"),
        ("pjrt", '#include "runtime/cell.h"', "pjrt may not include runtime"),
        ("lower", '#include "exec/graph.h"', "lower may not include exec"),
        ("compile", '#include "lower/row.h"', "compile may not include lower"),
        ("runtime", '#include "exec/graph.h"', "runtime may not include exec"),
        ("eager", '#include "bridge/bridge.h"', "eager may not include bridge"),
        ("bridge", '#include "eager/call.h"', "bridge may not include eager"),
        ("exec", '#include "bindings/module.h"', "exec may not include bindings"),
        ("lower", "#include <ATen/ATen.h>", "lower may not include torch"),
        ("compile", "#include <c10/core/Device.h>", "compile may not include torch"),
        ("pjrt", "  #  include <torch/library.h>", "pjrt may not include torch"),
        ("exec", "#include <Python.h>", "exec may not include Python's headers"),
        ("runtime", "#include <torch/csrc/utils/pybind.h>", "runtime may not include Python's headers"),
        ("runtime", "#include <torch/csrc/utils/python_numbers.h>", "runtime may not include Python's headers"),
        ("runtime", "#include <torch/extension.h>", "runtime may not include Python's headers"),
        ("eager", "#include <pybind11/pybind11.h>", "eager may not include Python's headers"),
        ("hlo", '#include "xla/pjrt/c/pjrt_c_api.h"', "hlo may not include the PJRT headers"),
        ("hlo", '#include "builder.h"', NOT_NAMED_BY_FOLDER),
        ("hlo", '#include "../pjrt/api.h"', NOT_NAMED_BY_FOLDER),
    ],
)
@pytest.mark.parametrize("suffix", [".h", ".cpp"])
def test_a_forbidden_include_is_found(folders: Path, folder: str, line: str, problem: str, suffix: str) -> None:
    (folders / "csrc" / folder).mkdir(exist_ok=True)  # the table also has folders that do not exist yet
    (folders / "csrc" / folder / f"spoiled{suffix}").write_text(f"#include <string>\n{line}\n")
    (violation,) = check_layers.find_violations(folders)
    assert violation.startswith(f"csrc/{folder}/spoiled{suffix}:2: {line.strip()}: {problem}")


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("lower", '#include "hlo/builder.h"'),
        ("eager", '#include "exec/graph.h"'),
        ("exec", "#include <ATen/ATen.h>"),
        ("bindings", "#include <Python.h>"),
        ("bindings", '#include "eager/call.h"'),
        ("pjrt", '#include "xla/pjrt/c/pjrt_c_api.h"'),
    ],
)
def test_an_allowed_include_passes(folders: Path, folder: str, line: str) -> None:
    (folders / "csrc" / folder / "fine.h").write_text(line + "\n")
    assert list(check_layers.find_violations(folders)) == []


def test_a_folder_outside_the_table_is_found(folders: Path) -> None:
    (folders / "csrc" / "misc").mkdir()
    (folders / "csrc" / "misc" / "a.h").write_text("#pragma once\n")
    assert list(check_layers.find_violations(folders)) == ["csrc/misc/a.h: csrc/misc is not in the layer table"]


def test_a_forbidden_link_line_is_found(folders: Path) -> None:
    cmake = folders / "csrc" / "hlo" / "CMakeLists.txt"
    cmake.write_text("tpj_folder(hlo\n  SOURCES\n    builder.cpp\n  LINKS base pjrt\n)\n")
    assert list(check_layers.find_violations(folders)) == ["csrc/hlo/CMakeLists.txt: hlo may not link pjrt"]
