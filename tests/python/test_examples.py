"""The example that the README shows does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
RESULT = re.compile(
    r"RESULT device=(?P<device>\S+) accuracy=(?P<accuracy>\d\.\d{4}) programs=(?P<programs>\d+) "
    r"compiles_after_step_2=(?P<late>\d+) fallbacks=(?P<fallbacks>\d+)"
)


def run_digits(device: torch.device, picture: Path) -> dict[str, str]:
    command = [sys.executable, "examples/digits.py", "--device", str(device), "--out", str(picture)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = RESULT.fullmatch(done.stdout.strip().splitlines()[-1])
    assert found, done.stdout
    return found.groupdict()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_digits(torch.device("cpu"), tmp_path_factory.mktemp("cpu") / "digits.png")


def test_the_digits_are_learnt_on_the_device_as_on_the_cpu(
    device: torch.device, expected: dict[str, str], tmp_path: Path
) -> None:
    picture = tmp_path / "new folder" / "digits.png"
    result = run_digits(device, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["device"] == str(device)
    assert float(result["accuracy"]) >= 0.97
    assert abs(float(result["accuracy"]) - float(expected["accuracy"])) <= 0.01
    assert result["late"] == "0"
    assert result["fallbacks"] == "0"
    assert (int(result["programs"]) > 0) == (device.type != "cpu")
