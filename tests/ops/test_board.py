"""Every entry of PyTorch's operator database is in the state that ``expected.tsv`` says: see ``board.py``."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest
import torch

from ops import board, expected

CELLS = [(entry, kind, dtype) for entry in board.ENTRIES for kind, dtype in board.cells(entry)]
EXPECTED = expected.read() if expected.FILE.exists() else {}
# Samples of one cell in the normal run.
FORWARD_SAMPLES = 200  # float32
BACKWARD_SAMPLES = 12


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def samples(kind: str, dtype: torch.dtype) -> int:
    if kind == "backward":
        return BACKWARD_SAMPLES
    return FORWARD_SAMPLES if dtype is torch.float32 else board.SUBSET


@pytest.mark.parametrize(("entry", "kind", "dtype"), CELLS, ids=[f"{e}-{k}-{name_of(d)}" for e, k, d in CELLS])
def test_cell(entry: str, kind: str, dtype: torch.dtype, device: torch.device, request: pytest.FixtureRequest) -> None:
    most = None if request.config.getoption("--board") == "full" else samples(kind, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = board.run(entry, kind, dtype, device, most)
    results = request.config.getoption("--board-results")
    if results:
        line = {"entry": entry, "kind": kind, "dtype": name_of(dtype), "state": found.state, "why": found.why}
        with (Path(results) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return
    state, reason = EXPECTED.get((entry, kind, name_of(dtype)), ("no line in expected.tsv", ""))
    assert found.state == state, f"{found.why} (expected: {state}; {reason})"


def test_the_file_lists_nothing_else() -> None:
    listed = set(EXPECTED)
    assert listed <= {(e, k, name_of(d)) for e, k, d in CELLS}


def test_no_row_takes_the_gradient_from_a_composite_operator() -> None:
    """A device kernel of an operator that PyTorch differentiates through its parts hides the parts from autograd."""
    import torch_pjrt

    def has(name: str, key: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    hidden = [n for n in torch_pjrt._C.rows() if has(n, "CompositeImplicitAutograd") and not has(n, "Autograd")]
    assert hidden == []
