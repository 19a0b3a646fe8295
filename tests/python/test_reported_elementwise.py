"""Element-wise operators, casts and promotion where other devices were wrong; each test links the report."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor
from torch.nn import functional

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SIGNED = INTEGERS[1:]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]

CLAMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp, both": lambda x: x.clamp(0.1, 2.5),
    "clamp, below": lambda x: x.clamp(min=0.1),
    "clamp, above": lambda x: x.clamp(max=2.5),
    "clamp, mixed": lambda x: x.clamp(1, 2.5),
    "clamp_min": lambda x: torch.clamp_min(x, 1.0),
    "clamp_max": lambda x: torch.clamp_max(x, 1.5),
    "clamp, integers": lambda x: x.clamp(1, 2),
    "clamp, tensors": lambda x: x.clamp(torch.tensor([0.5, 1.5, 2.5], device=x.device), x.to(torch.float64) + 0.25),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", CLAMPS)
def test_clamping_integers_by_floats_gives_floats(name: str, dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/130201, https://github.com/pytorch/pytorch/issues/133100
    agree(CLAMPS[name], device, torch.tensor([0, 2, 3], dtype=dtype))
    if "tensors" not in name:
        agree(CLAMPS[name], device, torch.tensor(0, dtype=dtype))


PAIRED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "clamp": lambda x, y, z: x.clamp(y, z),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "addcmul": lambda x, y, z: x.addcmul(y, z, value=2),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z.abs() + 1),
    "lerp": lambda x, y, z: x.lerp(y, z),
    "sub": lambda x, y, z: torch.sub(x, y, alpha=3) - z,
    "pow": lambda x, y, z: x.abs() ** y / z,
    "remainder": lambda x, y, z: torch.remainder(x, y) + z.atan2(y),
    "maximum": lambda x, y, z: torch.maximum(x, y) + torch.fmin(y, z),
    "compare": lambda x, y, z: (x < y) ^ (y >= z),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t[:4, :4].t(),
    "offset": lambda t: t[1:5, 2:],
    "stepped": lambda t: t[1::2, ::2][:2, :2],
    "a row for all": lambda t: t[1, 1:5].expand(4, 4),
    "a column for all": lambda t: t[2:, 3:4].expand(4, 4),
    "turned": lambda t: t[:4, :4].rot90(),
}


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_are_read_in_the_order_of_their_view(name: str, layout: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/87348
    view = LAYOUTS[layout]
    arguments = [normal(6, 6, seed=seed) for seed in range(3)]
    agree(lambda x, y, z: PAIRED[name](view(x), view(y), view(z)), device, *arguments)
    dense = [view(x).contiguous() for x in arguments]
    for i in range(3):  # one strided operand between dense ones
        mixed = [arguments[k] if k == i else x for k, x in enumerate(dense)]
        agree(
            lambda *xs, i=i: PAIRED[name](*(view(x) if k == i else x for k, x in enumerate(xs))),
            device,
            *mixed,
        )


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_cast_of_an_offset_slice_starts_at_the_slice(source: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/94980, https://github.com/pytorch/pytorch/issues/79286
    for target in DTYPES:
        agree(lambda x, target=target: x[3:].to(target), device, torch.tensor([9, 9, 9, 0, 1, 5]).to(source))


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_the_least_integer_is_divided_as_any_other(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/tenstorrent/tt-metal/issues/55502
    least = torch.iinfo(dtype).min
    x = torch.tensor([least, least + 1, -1, 0, 7, torch.iinfo(dtype).max], dtype=dtype)
    for divisor in (2, 3, -3):
        for other in (divisor, torch.tensor([divisor] * 6, dtype=dtype)):
            y = other if isinstance(other, Tensor) else torch.tensor(divisor, dtype=dtype)
            number = None if isinstance(other, Tensor) else divisor
            agree(
                lambda a, b, n=number: [
                    torch.floor_divide(a, b if n is None else n),
                    torch.remainder(a, b if n is None else n),
                    torch.fmod(a, b if n is None else n),
                    torch.div(a, b if n is None else n, rounding_mode="trunc"),
                    torch.div(a, b if n is None else n, rounding_mode="floor"),
                    a / (b if n is None else n),
                ],
                device,
                x,
                y,
            )
    agree(lambda a: [torch.remainder(a, 2.5), torch.fmod(a, 2.5), a // 2.5], device, x)
    agree(lambda a: [a.abs(), -a, a.sign(), a >> 1, ~a, a.clamp(max=0)], device, x)
    if dtype == torch.int32:
        there = x.to(device)[:1]
        assert (there // 3).item() == -715827883
        assert torch.remainder(there, 3).item() == 1
        assert torch.fmod(there, 3).item() == -2
        assert torch.div(there, 2, rounding_mode="trunc").item() == -1073741824


NAN = float("nan")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_larger_of_a_number_and_nan_is_nan(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/143976
    x = torch.tensor([1, NAN, 3, NAN, float("inf"), -0.0], dtype=dtype)
    y = torch.tensor([2, 2, NAN, NAN, NAN, 0.0], dtype=dtype)
    for a, b in ((x, y), (y, x)):
        agree(
            lambda a, b: [
                torch.maximum(a, b),
                torch.minimum(a, b),
                torch.fmax(a, b),
                torch.fmin(a, b),
                a.clamp(b, b + 1),
                a.clamp(min=b),
                a.clamp(max=b),
                a.clamp(0, 2),
                a.clamp(NAN, 2),
                a.relu(),
                functional.relu6(a),
                functional.hardtanh(a),
                functional.leaky_relu(a),
                torch.where(a > b, a, b),
            ],
            device,
            a,
            b,
        )


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_where_promotes_its_branches(left: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/xla/issues/6479
    mask, values = torch.tensor([True, False, True]), torch.tensor([0, 1, 5])
    for right in DTYPES:
        agree(torch.where, device, mask, values.to(left), values.to(right))
    for number in (1e-8, 3, True):
        agree(lambda m, x, n=number: [torch.where(m, n, x), torch.where(m, x, n)], device, mask, values.to(left))
    agree(lambda m, x: torch.where(m, x, x[0].cpu()), device, mask, values.to(left))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_are_repeated_in_every_dtype(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/huggingface/diffusers/issues/10428
    agree(
        lambda x, counts: [
            x.repeat_interleave(2),
            x.repeat_interleave(2, dim=1),
            x.repeat_interleave(counts, dim=1),
            x.repeat_interleave(counts, dim=1, output_size=3),
            x.repeat(2, 1),
            x.tile((2,)),
        ],
        device,
        torch.tensor([[1, 0, 2]]).to(dtype),
        torch.tensor([2, 0, 1]),
    )


BYTES_ONLY = [torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", BYTES_ONLY, ids=str)
def test_unsigned_dtypes_hold_copy_and_index(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/Ascend/pytorch/issues/83
    most = (1 << torch.iinfo(dtype).bits) - 1
    x = torch.tensor([0, 1, most, most // 2 + 1], dtype=dtype)
    agree(lambda x: [x.clone(), x[2:], x[[3, 0]], x.roll(1), x.view(2, 2).t().contiguous()], device, x)
    agree(lambda x: [x.view(torch.uint8), x == x.roll(1), torch.cat([x, x])], device, x)
    agree(lambda x: x.to(torch.float64), device, x)
    assert (
        torch.zeros(4, dtype=dtype, device=device)
        .view(torch.uint8)
        .cpu()
        .equal(torch.zeros(4, dtype=dtype).view(torch.uint8))
    )
    assert x.to(device)[2].item() == most


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": torch.mm,
    "linear": lambda a, b: functional.linear(a, b.t()),
    "bmm": lambda a, b: torch.bmm(a[None], b[None])[0],
    "addmm": lambda a, b: torch.addmm(a[:, :1], a, b),
    "mv": lambda a, b: a @ b[:, 0],
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "conv1d": lambda a, b: functional.conv1d(a.view(1, 512, 64), b.t().reshape(256, 512, 1)),
    "attention": lambda a, b: functional.scaled_dot_product_attention(a, b.t()[:64], b.t()[64:128]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_float32_product_is_as_exact_as_on_the_cpu(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/xla/issues/8811
    a, b = normal(64, 512), normal(512, 256, seed=1)
    exact = PRODUCTS[name](a.double(), b.double())
    ours = (PRODUCTS[name](a.to(device), b.to(device)).cpu() - exact).abs().max()
    theirs = (PRODUCTS[name](a, b) - exact).abs().max()
    assert ours <= 4 * theirs + 1e-7


UNARY = [
    *"abs acos acosh angle asin asinh atan atanh ceil conj_physical cos cosh deg2rad digamma erf erfc".split(),
    *"erfinv exp exp2 expm1 floor frac i0 isfinite isinf isnan lgamma log log10 log1p".split(),
    *"positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square".split(),
    *"log2 logical_not logit nan_to_num neg tan tanh trunc".split(),
]
WITHOUT_OUT = {"isfinite", "isinf", "isnan", "positive", "relu"}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_an_offset_slice_starts_at_the_slice(name: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/pull/101507
    function = getattr(torch, name)
    x = torch.tensor([9.0, 9.0, 0.1, 0.2, 0.3, 0.4, 0.5, 9.0])
    agree(lambda x: function(x[2:7]), device, x)
    if name in WITHOUT_OUT:
        return

    def into_a_slice(x: Tensor) -> list[Tensor]:
        result = function(x[2:7])
        storage = torch.ones(8, dtype=result.dtype, device=x.device)
        function(x[2:7], out=storage[3:])
        return [storage]

    agree(into_a_slice, device, x)


OPERATORS = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor matmul lt le eq ne gt ge".split()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_python_run_on_the_device(name: str, device: torch.device) -> None:
    import torch_pjrt

    call = getattr(operator, name)
    x, y = torch.tensor([[5, -3], [-8, 7]]), torch.tensor([[1, 2], [3, 1]])
    pairs = [(x, y)] if name == "matmul" else [(x, y), (x, 2), (2, y)]
    for a, b in pairs:
        before = sum(torch_pjrt.fallbacks().values())
        got = call(*(t.to(device) if isinstance(t, torch.Tensor) else t for t in (a, b)))
        assert sum(torch_pjrt.fallbacks().values()) == before
        expected = call(a, b)
        assert got.dtype == expected.dtype
        assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int32])
def test_a_quotient_by_one_number_is_rounded_once(dtype: torch.dtype, device: torch.device) -> None:
    """A product with the reciprocal is not: 123 / 41 < 3."""
    wide = torch.float64 if dtype == torch.int32 else dtype
    compiled = torch.compile(lambda x: (x / 41).floor())
    for n in (3, 41, 47, 49, 55, 61, 97):
        x = (torch.arange(-200, 200) * n).to(dtype)
        there = x.to(device)
        for divisor in (n, torch.tensor(n, dtype=wide)):
            held = divisor.to(device) if isinstance(divisor, Tensor) else divisor
            assert (there / held).cpu().equal(x / divisor)
            for mode in ("trunc", "floor"):
                expected = torch.div(x, divisor, rounding_mode=mode)
                assert torch.div(there, held, rounding_mode=mode).cpu().equal(expected)
        ones = torch.ones(n, dtype=wide, device=device)
        assert ones.mean().item() == 1
        if n == 41:
            assert compiled(there).cpu().equal((x / n).floor())
