"""Views that other devices lost on the way into an operator; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.complex64]
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda t: t[:, :2],
    "tail": lambda t: t[:, 2:],
    "turned": lambda t: t[:, 2:].rot90(),
    "flipped": lambda t: t[:, 1:3].flip(0, 1),
    "transposed": lambda t: t[:, 1:3].t(),
    "stepped": lambda t: t[:, ::2],
    "a row twice": lambda t: t[1:, :2].expand(2, 2),
    "diagonal": lambda t: t.diagonal(1)[:, None].expand(2, 2),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_of_one_tensor_are_joined_as_they_look(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/85675, https://github.com/pytorch/pytorch/issues/91065
    x = torch.arange(8).view(2, 4).to(dtype)
    for part in PARTS.values():
        agree(
            lambda x, part=part: [
                torch.cat([x[:, :2], part(x)]),
                torch.cat([part(x), x[:, 2:]], 1),
                torch.stack([part(x), x[:, 1:3]], -1),
                torch.stack([x[:, :2], part(x)]),
                torch.hstack([part(x), part(x)]),
                torch.where(part(x) == x[:, :2], part(x), x[:, 2:]),
            ],
            device,
            x,
        )
    if dtype == torch.int64:
        joined = torch.cat([x.to(device)[:, :2], x.to(device)[:, 2:].rot90()])
        assert joined.tolist() == [[0, 1], [4, 5], [3, 7], [2, 6]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_assignment_to_a_slice_is_kept(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/tenstorrent/tt-mlir/issues/9303
    def assign(x: Tensor, values: Tensor) -> list[Tensor]:
        x[:, 1:4] = values
        y = x.clone()
        y[0, 2] = 1
        y[..., -1] = values[..., 0]
        y[:, ::3] = 0
        y.t()[2:3] = values[0, :1]
        return [x, y]

    found = agree(assign, device, torch.zeros(1, 6, dtype=dtype), torch.tensor([[7, 8, 9]]).to(dtype))
    if dtype == torch.int64:
        assert found[0].tolist() == [[0, 7, 8, 9, 0, 0]]


def test_positions_have_the_cpus_strides(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/170175
    for shape in ((9,), (3, 3), (1, 1, 3, 3), (0, 2), ()):
        agree(lambda x: [x.nonzero(), x.argwhere()], device, torch.ones(shape), strides=True)
        agree(lambda x: x.nonzero(as_tuple=True), device, torch.ones(shape), strides=True)
    if device.type != "cpu":
        assert torch.ones(1, 1, 3, 3, device=device).nonzero().stride() == (1, 9)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.ones(3, 3, device=device).nonzero().view(-1)


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": torch.mm,
    "bmm": lambda a, b: torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1)),
    "mv": lambda a, b: a @ b[:, 1],
    "addmm": lambda a, b: torch.addmm(a[:, :1], a, b, beta=0.5, alpha=2),
    "einsum": lambda a, b: torch.einsum("ij,jk->ki", a, b),
    "linear": lambda a, b: torch.nn.functional.linear(a, b.t(), b[0]),
    "outer": lambda a, b: torch.outer(a[:, 1], b[1]),
    "dot": lambda a, b: torch.dot(a[1], b[:, 1]),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_reads_its_factors_from_their_offset(name: str, dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/intel/torch-xpu-ops/issues/1656
    storage = normal(1 + 4 * 6).mul(4).round().to(dtype)
    other = normal(6, 5, seed=1).mul(4).round().to(dtype)
    layouts: list[Callable[[Tensor], Tensor]] = [
        lambda s: s[1:].view(4, 6),
        lambda s: s[1:].view(6, 4).t(),
        lambda s: s[:24].view(4, 6),
        lambda s: s.as_strided((4, 6), (6, 1), 1),
        lambda s: s[1:7].expand(4, 6),
    ]
    for view in layouts:
        agree(lambda s, o, v=view: PRODUCTS[name](v(s), o), device, storage, other)
        agree(lambda s, o, v=view: PRODUCTS[name](o.t(), v(s).t()), device, storage, other)
