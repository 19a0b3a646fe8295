"""Every entry of PyTorch's operator database is in the state that ``expected.tsv`` says: see ``board.py``."""

from __future__ import annotations

import warnings

import pytest
import torch

from ops import board, expected
from ops.conftest import Settle

CELLS = [(entry, kind, dtype) for entry in board.ENTRIES for kind, dtype in board.cells(entry)]
# Samples of one cell in the normal run.
FORWARD_SAMPLES = 200  # float32
BACKWARD_SAMPLES = 5
COMPILED_SAMPLES = 1


def samples(kind: str, dtype: torch.dtype) -> int:
    if kind == "compiled":
        return COMPILED_SAMPLES
    if kind == "backward":
        return BACKWARD_SAMPLES
    return FORWARD_SAMPLES if dtype is torch.float32 else board.SUBSET


@pytest.mark.parametrize(("entry", "kind", "dtype"), CELLS, ids=[f"{e}-{k}-{expected.name_of(d)}" for e, k, d in CELLS])
def test_cell(entry: str, kind: str, dtype: torch.dtype, device: torch.device, full: bool, settle: Settle) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = board.run(entry, kind, dtype, device, None if full else samples(kind, dtype))
    settle(entry, kind, dtype, found)


def test_the_file_lists_nothing_else() -> None:
    assert expected.listed(*board.KINDS) <= {(e, k, expected.name_of(d)) for e, k, d in CELLS}


def test_no_row_takes_the_gradient_from_a_composite_operator() -> None:
    """A device kernel of an operator that PyTorch differentiates through its parts hides the parts from autograd."""
    import torch_pjrt

    def has(name: str, key: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    hidden = [n for n in torch_pjrt._C.rows() if has(n, "CompositeImplicitAutograd") and not has(n, "Autograd")]
    assert hidden == []
