"""Ten values of every number that an operator takes are one program, for every row of the table that takes one.

Arguments follow from the schema; OVERRIDES has what a schema does not say. A new row that takes a number is in the test
by itself: if it needs other arguments, it fails until it has them here.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest
import torch

OTHER_DEVICE = os.environ.get("TORCH_PJRT_TEST_DEVICE")

# Rows whose program depends on a number beyond its special values, and why.
EXCEPTIONS = {
    name: "the scale decides which elements are read, and those positions are constants of the program"
    for name in (
        *("_upsample_nearest_exact1d", "_upsample_nearest_exact1d_backward", "upsample_linear1d"),
        *("_upsample_nearest_exact2d", "_upsample_nearest_exact2d_backward", "upsample_linear1d_backward"),
        *("_upsample_nearest_exact3d", "_upsample_nearest_exact3d_backward", "upsample_trilinear3d"),
        *("upsample_bicubic2d", "upsample_bicubic2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward"),
        *("upsample_nearest1d", "upsample_nearest1d_backward", "upsample_nearest2d", "upsample_nearest2d_backward"),
        *("_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward", "_upsample_lanczos2d_aa"),
        *("_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward"),
        *("upsample_nearest3d", "upsample_nearest3d_backward", "upsample_trilinear3d_backward"),
    )
}
CHECKED = {"normal.float_Tensor"}  # a program before it looks at its tensor's values
FEWEST = 145  # rows in the test; it only grows


def matrix(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).view(shape)


VECTOR, FLAGS = matrix(3), torch.tensor([[True, False, True], [False, True, True]])
WHOLE, PLACES, STEP = torch.arange(6).view(2, 3), torch.tensor([1, 0]), [torch.ones(()), torch.ones(())]
NORM = {"input": matrix(2, 3, 4), "weight": VECTOR, "bias": VECTOR, "running_mean": VECTOR, "running_var": VECTOR}
SAVED = {"save_mean": VECTOR, "save_invstd": VECTOR, "save_var": VECTOR, "reserve": torch.empty(0, dtype=torch.uint8)}
NORM_BACKWARD = {**NORM, **SAVED, "grad_out": matrix(2, 3, 4), "output_mask": [True, True, True], "train": True}
OPTIMIZER = {"state_steps": STEP, "max_exp_avg_sqs": []}
OPTIMIZER_RATE = {**OPTIMIZER, "lr": torch.tensor(0.1)}
BITWISE = {"self": WHOLE}
Value = Any
OVERRIDES: dict[str, dict[str, Value]] = {
    "__lshift__.Scalar": BITWISE,
    "__rshift__.Scalar": BITWISE,
    "_amp_update_scale": {
        "self": torch.ones(1),
        "growth_tracker": torch.zeros(1, dtype=torch.int32),
        "found_inf": torch.zeros(1),
        "growth_interval": 3,
    },
    "_batch_norm_no_update": NORM,
    "_batch_norm_with_update": NORM,
    "_batch_norm_with_update_functional": NORM,
    "_cdist_backward": {"grad": matrix(2, 2), "cdist": matrix(2, 2)},
    "_foreach_add.Tensor": {"other": torch.ones(())},
    "_fused_adagrad": OPTIMIZER,
    "_fused_adagrad.tensor_lr": OPTIMIZER_RATE,
    "_fused_adam": OPTIMIZER,
    "_fused_adam.tensor_lr": OPTIMIZER_RATE,
    "_fused_adamw": OPTIMIZER,
    "_fused_adamw.tensor_lr": OPTIMIZER_RATE,
    "_fused_sgd.tensor_lr": OPTIMIZER_RATE,
    "_native_batch_norm_legit": NORM,
    "_native_batch_norm_legit.no_stats": {**NORM, "training": True},
    "_native_batch_norm_legit_functional": NORM,
    "_native_batch_norm_legit_no_training": NORM,
    "_segment_reduce_backward": {
        **{"grad": matrix(2), "output": matrix(2), "data": VECTOR, "reduce": "sum", "lengths": torch.tensor([1, 2])},
    },
    "_unsafe_masked_index": {"mask": FLAGS[0, :2], "indices": [PLACES, PLACES]},
    "_pdist_backward": {"grad": matrix(1), "pdist": matrix(1)},
    "addbmm": {"batch1": matrix(2, 2, 4), "batch2": matrix(2, 4, 3)},
    "addmm": {"mat1": matrix(2, 4), "mat2": matrix(4, 3)},
    "addmv": {"self": matrix(2), "mat": matrix(2, 4), "vec": matrix(4)},
    "addr": {"vec1": matrix(2), "vec2": matrix(3)},
    "arange.start_out": {"end": lambda v: v + 5, "step": 1.0, "out": matrix(5)},
    "baddbmm": {"self": matrix(2, 2, 3), "batch1": matrix(2, 2, 4), "batch2": matrix(2, 4, 3)},
    "batch_norm_backward": {**NORM_BACKWARD, "update": True},
    "bitwise_and.Scalar": BITWISE,
    "bitwise_left_shift.Tensor_Scalar": BITWISE,
    "bitwise_or.Scalar": BITWISE,
    "bitwise_right_shift.Tensor_Scalar": BITWISE,
    "bitwise_xor.Scalar": BITWISE,
    "bucketize.Scalar": {"boundaries": VECTOR},
    "constant_pad_nd": {"pad": [1, 2]},
    "embedding_renorm_": {"indices": PLACES},
    "histc": {"bins": 4},
    "huber_loss": {"reduction": 1},
    "index_add": {"index": PLACES, "source": matrix(2, 3)},
    "index_fill.int_Scalar": {"index": PLACES},
    "linspace.out": {"steps": 5, "out": matrix(5)},
    "logspace.out": {"steps": 5, "out": matrix(5)},
    "masked_fill.Scalar": {"mask": FLAGS},
    "multi_margin_loss": {"target": PLACES, "p": 1},
    "native_batch_norm": NORM,
    "native_batch_norm_backward": NORM_BACKWARD,
    "native_dropout": {"train": True},
    "native_dropout_backward": {"mask": FLAGS},
    "native_group_norm": {**NORM, "N": 2, "C": 3, "HxW": 4, "group": 1},
    "native_layer_norm": {"normalized_shape": [3], "weight": VECTOR, "bias": VECTOR},
    "norm.ScalarOpt_dim": {"dim": [0]},
    "norm.ScalarOpt_dim_dtype": {"dim": [0]},
    "scatter.value": {"index": PLACES.view(2, 1)},
    "scatter.value_reduce": {"index": PLACES.view(2, 1), "reduce": "add"},
    "searchsorted.Scalar": {"sorted_sequence": VECTOR},
    "segment_reduce": {"data": VECTOR, "reduce": "sum", "lengths": torch.tensor([1, 2])},
}


def takes_number(kind: str) -> bool:
    return kind.removeprefix("Optional[").startswith(("number", "float")) or kind.startswith("List[number")


def schema_of(row: str) -> Any:
    name, _, overload = row.partition(".")
    return torch._C._get_schema(f"aten::{name}", overload)


def rows_with_numbers() -> list[str]:
    if OTHER_DEVICE:
        return []
    from torch_pjrt import _C

    return sorted(r for r in set(_C.rows().values()) if any(takes_number(str(a.type)) for a in schema_of(r).arguments))


ROWS = rows_with_numbers()


def arguments(row: str, number: float, device: torch.device) -> tuple[list[Value], dict[str, Value]]:
    """What the row's operator is called with; its n-th number is ``number`` + n."""

    def there(value: Value) -> Value:
        if isinstance(value, torch.Tensor):
            return value.to(device, copy=True)
        return [there(v) for v in value] if isinstance(value, list) else value

    positional, keywords = [], {}
    count = 0
    for a in schema_of(row).arguments:
        kind = str(a.type)
        if a.name in OVERRIDES.get(row, {}):
            value = OVERRIDES[row][a.name]
            value = value(number) if callable(value) else value
        elif takes_number(kind):
            value = [number, number + 1] if kind.startswith("List") else number + count
            count += 1
        elif kind == "Tensor":
            value = matrix(2, 3)
        elif kind == "List[Tensor]":
            value = [matrix(2, 3), matrix(3)]
        elif kind.startswith("Optional"):
            value = torch.float32 if a.name == "dtype" else None
        elif kind == "int":
            value = torch.float32 if a.name == "dtype" else int(a.name == "reduction")
        elif kind == "bool":
            value = False
        else:
            raise AssertionError(f"{row}: say in OVERRIDES what its {a.name} of type {kind} is")
        if a.kwarg_only:
            keywords[a.name] = there(value)
        else:
            positional.append(there(value))
    return positional, keywords


def test_no_row_is_forgotten(pjrt: ModuleType) -> None:
    assert len(set(ROWS) - set(EXCEPTIONS)) >= FEWEST
    assert set(EXCEPTIONS) <= set(ROWS)
    assert set(OVERRIDES) <= set(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in EXCEPTIONS])
def test_ten_numbers_are_one_program(row: str, device: torch.device, pjrt: ModuleType) -> None:
    name, _, overload = row.partition(".")
    name += "_" if name.startswith("_fused") else ""  # PyTorch describes only the form that optimizers call
    call = getattr(getattr(torch.ops.aten, name), overload or "default")
    whole = OVERRIDES.get(row) is BITWISE
    calls = [arguments(row, i + 3 if whole else 0.11 + 0.07 * i, device) for i in range(10)]
    torch.accelerator.synchronize()

    def compiles(positional: list[Value], keywords: dict[str, Value]) -> int:
        before = pjrt.stats()
        call(*positional, **keywords)
        after = pjrt.stats()
        assert after["fallbacks"] == before["fallbacks"]
        assert after["compiles"] + after["hits"] > before["compiles"] + before["hits"], "no program ran"
        return after["compiles"] - before["compiles"]

    counts = [compiles(*c) for c in calls]
    assert counts[0] <= 1 + (row in CHECKED)
    assert sum(counts[1:]) == 0, f"a compile for each of {counts[1:]} further values"
