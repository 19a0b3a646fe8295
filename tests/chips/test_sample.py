"""A sample of the operators compiles for chips that nobody has here; ``make test-chips`` takes all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chips import collect, programs
from torch_pjrt import targets

EVERY = 40  # of the operator database


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("TORCH_PJRT_TEST_DEVICE"):
        pytest.skip("about torch_pjrt")
    try:
        targets.target("tpu:v5e")
    except RuntimeError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("programs")
    assert collect.collect(folder, "tpu", EVERY, processes=1) == 0
    return folder


@pytest.mark.parametrize("name", ["tpu:v5e", "tpu:v6e"])
def test_programs_compile_or_are_listed(name: str, folder: Path) -> None:
    target = targets.target(name, timeout=120)
    chosen = programs.choose(folder)
    assert len(chosen) > 50
    found = programs.surprises(name, programs.compile_all(target, chosen))
    target.close()
    assert not found, "\n".join(found)
