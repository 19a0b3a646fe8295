"""The dispatch cases on Google's TorchTPU, over the plugin in TPU_LIBRARY_PATH; see `rounds.py`."""

from __future__ import annotations

import os

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import importlib.metadata

import torch
import torch_tpu  # noqa: F401
from rounds import Case, serve
from torch_tpu import _loader

_loader._init_device("tpu")

a, b = torch.ones(4, 4, device="tpu"), torch.full((4, 4), 0.5, device="tpu")
c = torch.ones(4, 4, device="tpu")
scalar = torch.ones((), device="tpu") * 3
scalar.item()
names = globals()


def wait() -> None:
    """Reading a result waits for what was issued before it."""
    (a + b)[0, 0].item()


serve(
    {
        "a + b": Case("a + b", names, wait),
        "a * 2.5": Case("a * 2.5", names, wait),
        "relu(a)": Case("torch.relu(a)", names, wait),
        "a.add_(b)": Case("c.add_(b)", names, wait),
        "mm(a, b)": Case("torch.mm(a, b)", names, wait),
        "x.item()": Case("scalar.item()", names),
    },
    {"torch_tpu": importlib.metadata.version("torch_tpu"), "torch": torch.__version__},
)
