"""A batched product with a matrix of one number, reduced: XLA's CPU compiler (0.11) reads what nobody wrote.

It makes one kernel of the product, the number's broadcast and the reduction; jaxlib 0.11.2 does the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.usefixtures("pjrt")

ONE_NUMBER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "full": lambda x, s: torch.full_like(x, 0.37),
    "expanded": lambda x, s: s.expand_as(x),
    "expanded from one element": lambda x, s: s[None, None].expand_as(x),
    "computed": lambda x, s: s.expand_as(x) * 2 + 1,
    "transposed": lambda x, s: (s * 2).expand_as(x).mT.contiguous().exp(),
    "its softmax": lambda x, s: torch.zeros_like(x).softmax(-1),
}


@pytest.mark.parametrize("name", ONE_NUMBER)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_product_with_one_number_is_reduced(name: str, is_compiled: bool, device: torch.device) -> None:
    def f(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        product = (x @ ONE_NUMBER[name](x, s)) * x
        return product.sum(-1), product.sum(), product.amax(-1), torch.bmm(ONE_NUMBER[name](x, s), x).sum(1)

    torch._dynamo.reset()
    run = torch.compile(f, backend="pjrt", dynamic=False) if is_compiled else f
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x, s = torch.rand(3, 50, 50, dtype=dtype), torch.rand((), dtype=dtype)
        for _ in range(3):  # the first two are call by call, or may be
            results = run(x.to(device), s.to(device))
            for mine, want in zip(results, f(x.double(), s.double()), strict=True):
                tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
                torch.testing.assert_close(mine.cpu().double(), want, rtol=tolerance, atol=tolerance)
