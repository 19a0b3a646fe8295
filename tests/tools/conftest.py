"""Fixtures for the tests of tools/."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of csrc and python that a test may spoil, without what a build left there."""
    for folder in ("csrc", "python"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """The folders of csrc and python alone, without files: enough for what concerns one file, and quicker."""
    for folder in ("csrc", "python"):
        for path in (ROOT / folder).rglob("*/"):
            (tmp_path / path.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
    return tmp_path
