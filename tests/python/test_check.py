"""``python -m torch_pjrt check``: a script with the device named as the chip's plugin names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_pjrt import targets

pytestmark = pytest.mark.skipif(bool(os.environ.get("TORCH_PJRT_TEST_DEVICE")), reason="about torch_pjrt")

SCRIPT = """
import sys
import torch
x = torch.ones(4, 4, device="tpu")
print((x @ x).sum().item())
{more}
"""


def check(tmp_path: Path, more: str = "") -> tuple[int, str]:
    try:
        targets.target("tpu:v5e")
    except RuntimeError as error:
        pytest.skip(str(error))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(more=more))
    done = subprocess.run(
        [sys.executable, "-m", "torch_pjrt", "check", "--target", "tpu:v5e", str(script), "--epochs", "1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_script_that_fits(tmp_path: Path) -> None:
    code, text = check(tmp_path, "assert sys.argv[1:] == ['--epochs', '1']")
    assert code == 0, text
    assert "64.0" in text
    assert "tpu:v5e (TPU v5 lite): 3 of 3 programs compile" in text


def test_a_script_that_fails(tmp_path: Path) -> None:
    code, text = check(tmp_path, "raise ValueError('mine')")
    assert code == 2
    assert "ValueError: mine" in text and "the script ended with status 1" in text


def test_what_the_chip_lacks_is_an_error_at_the_call(tmp_path: Path) -> None:
    code, text = check(tmp_path, "torch.fft.fft(torch.ones(8, dtype=torch.complex128, device='tpu'))")
    assert code == 2
    assert "capability complex128_fft" in text
