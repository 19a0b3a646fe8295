"""The models that the tests train, which live in tests/models."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from models import ALL, GPT, MLP, ReplayedStep, Step, Workload
from models.networks import TinyGPT

__all__ = ["ALL", "GPT", "MLP", "ReplayedStep", "Step", "TinyGPT", "Workload"]
