"""A wrong call raises what the same call raises on the CPU, and never ends the process."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

Make = Callable[..., Tensor]
Call = Callable[[Make], object]


def maker(device: torch.device | str) -> Make:
    """Ones of a shape on the device."""

    def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(shape, dtype=dtype, device=device)

    return make


MISTAKES: dict[str, Call] = {
    "add of shapes that do not broadcast": lambda t: t(2, 3) + t(4),
    "add_ to a smaller tensor": lambda t: t(3).add_(t(2, 3)),
    "mul into a factor that is too small": lambda t: (lambda x: torch.mul(x, t(2, 3), out=x))(t(3)),
    "mm of wrong inner sizes": lambda t: t(2, 3) @ t(4, 5),
    "mm of wrong ranks": lambda t: torch.mm(t(2), t(2, 2)),
    "bmm of wrong ranks": lambda t: torch.bmm(t(2, 2), t(2, 2, 2)),
    "mm of two dtypes": lambda t: torch.mm(t(2, 2), t(2, 2, dtype=torch.float64)),
    "addmm of a bad bias": lambda t: torch.addmm(t(5), t(2, 3), t(3, 4)),
    "linear of wrong sizes": lambda t: functional.linear(t(2, 3), t(4, 5)),
    "view of a wrong size": lambda t: t(2, 3).view(7),
    "view of a strided tensor": lambda t: t(2, 3).t().view(6),
    "reshape to a wrong size": lambda t: t(2, 3).reshape(4, -1),
    "two unknown sizes": lambda t: t(4).view(-1, -1),
    "expand to another size": lambda t: t(2, 3).expand(2, 4),
    "permute with a wrong number of dims": lambda t: t(2, 3).permute(0),
    "permute with a repeated dim": lambda t: t(2, 3).permute(0, 0),
    "transpose out of range": lambda t: t(2, 3).transpose(0, 2),
    "squeeze out of range": lambda t: t(2, 3).squeeze(5),
    "unsqueeze out of range": lambda t: t(2).unsqueeze(4),
    "select out of range": lambda t: t(2, 3)[5],
    "select of a scalar": lambda t: t()[0],
    "too many indices": lambda t: t(2)[0, 0],
    "narrow out of range": lambda t: t(4).narrow(0, 3, 5),
    "slice with a step of 0": lambda t: t(4)[::0],
    "as_strided out of bounds": lambda t: t(4).as_strided((5,), (1,)),
    "as_strided with a negative stride": lambda t: t(4).as_strided((2,), (-1,)),
    "unfold that is too wide": lambda t: t(4).unfold(0, 5, 1),
    "split of wrong sizes": lambda t: t(4).split([1, 2]),
    "chunk into none": lambda t: t(4).chunk(0),
    "diagonal of one dim": lambda t: t(4, 4).diagonal(0, 1, 1),
    "dtype view of a wrong size": lambda t: t(3, dtype=torch.int8).view(torch.int32),
    "view_as_complex of a wrong size": lambda t: torch.view_as_complex(t(3)),
    "cat of different shapes": lambda t: torch.cat([t(2, 3), t(2, 4)], dim=0),
    "cat of nothing": lambda t: torch.cat([]),
    "stack of different shapes": lambda t: torch.stack([t(2), t(3)]),
    "sum over a dim out of range": lambda t: t(2, 3).sum(dim=2),
    "sum over a dim twice": lambda t: t(2, 3).sum(dim=(0, 0)),
    "mean of integers": lambda t: t(3, dtype=torch.int64).mean(),
    "max of nothing": lambda t: t(0).max(),
    "argmax of nothing": lambda t: t(0).argmax(),
    "softmax over a dim out of range": lambda t: t(2, 3).softmax(dim=3),
    "in-place with a promoted result": lambda t: t(3, dtype=torch.int64).add_(1.5),
    "in-place division of integers": lambda t: t(3, dtype=torch.int64).div_(2),
    "subtraction of booleans": lambda t: t(3, dtype=torch.bool) - t(3, dtype=torch.bool),
    "bitwise operator on floats": lambda t: t(3) & t(3),
    "out= of a wrong dtype": lambda t: torch.add(t(2), t(2), out=t(2, dtype=torch.int64)),
    "out= of a wrong dtype where a meta kernel would cast": lambda t: torch.aminmax(
        t(2), out=(t(dtype=torch.float64), t(dtype=torch.float64))
    ),
    "out= of a wrong dtype with a result of another one": lambda t: torch.complex(
        t(2), t(2), out=t(2, dtype=torch.complex128)
    ),
    "out= of a wrong dtype in a decomposition": lambda t: torch.linalg.cross(
        t(2, 3), t(2, 3), out=t(2, 3, dtype=torch.float64)
    ),
    "where with a float condition": lambda t: torch.where(t(2), t(2), t(2)),
    "masked_fill with a float mask": lambda t: t(2).masked_fill(t(2), 1.0),
    "masked_fill of integers with a complex tensor": lambda t: t(2, dtype=torch.int64).masked_fill(
        t(2, dtype=torch.bool), t(dtype=torch.complex64) * 1j
    ),
    "gather with a float index": lambda t: t(2, 2).gather(0, t(2, 2)),
    "index with a float": lambda t: t(2)[t(2)],
    "index with a mask of another shape": lambda t: t(2, 3)[t(3, dtype=torch.bool)],
    "index_select over a dim out of range": lambda t: t(2).index_select(2, t(1, dtype=torch.int64)),
    "scatter_add_ of ranks that differ": lambda t: t(2, 3).scatter_add_(0, t(2, dtype=torch.int64), t(2)),
    "embedding with float indices": lambda t: functional.embedding(t(2), t(4, 3)),
    "conv2d of wrong channels": lambda t: functional.conv2d(t(1, 3, 8, 8), t(4, 2, 3, 3)),
    "conv2d of a kernel too large": lambda t: functional.conv2d(t(1, 1, 2, 2), t(1, 1, 5, 5)),
    "conv2d with a stride of 0": lambda t: functional.conv2d(t(1, 1, 4, 4), t(1, 1, 3, 3), stride=0),
    "max_pool2d of a bad padding": lambda t: functional.max_pool2d(t(1, 1, 4, 4), 2, padding=3),
    "batch_norm of one value per channel": lambda t: nn.BatchNorm1d(3).to(t(1).device)(t(1, 3)),
    "layer_norm of a wrong shape": lambda t: functional.layer_norm(t(2, 3), (4,)),
    "cross_entropy of wrong sizes": lambda t: functional.cross_entropy(t(2, 3), t(4, dtype=torch.int64)),
    "mse_loss that does not broadcast": lambda t: functional.mse_loss(t(2, 3), t(4)),
    "attention of different widths": lambda t: functional.scaled_dot_product_attention(
        t(1, 1, 4, 8), t(1, 1, 4, 6), t(1, 1, 4, 6)
    ),
    "topk of too many": lambda t: t(3).topk(5),
    "cumsum over a dim out of range": lambda t: t(3).cumsum(2),
    "pad with an odd number": lambda t: functional.pad(t(2, 2), (1, 2, 3)),
    "clamp without bounds": lambda t: t(2).clamp(),
    "tril of one dim": lambda t: t(3).tril(),
    "item of several": lambda t: t(2).item(),
    "bool of several": lambda t: bool(t(2)),
    "backward of several": lambda t: t(2).requires_grad_().mul(2).backward(),
    "backward without a graph": lambda t: t(2).sum().backward(),
    "in-place on a leaf": lambda t: t(2).requires_grad_().add_(1),
    "requires_grad of integers": lambda t: t(2, dtype=torch.int64).requires_grad_(),
    "negative size": lambda t: t(1).new_empty((-1,)),
    "arange of the wrong sign": lambda t: torch.arange(3, 0, 1, device=t(1).device),
    "dropout of a bad probability": lambda t: functional.dropout(t(2), 1.5),
    "uniform_ of a bad range": lambda t: t(2).uniform_(2, 1),
    "normal_ of a negative deviation": lambda t: t(2).normal_(0, -1),
    "uniform integers": lambda t: torch.rand_like(t(2), dtype=torch.int32),
    "complex whole numbers": lambda t: torch.randint_like(t(2), 6, dtype=torch.complex64),
    "values of another dtype": lambda t: t(4).index_put_((t(2, dtype=torch.int64),), t(2, dtype=torch.int64)),
    "a bag of five dimensions": lambda t: torch.embedding_bag(
        t(2, 6), t(2, 1, 1, 1, 1, dtype=torch.int64), t(2, dtype=torch.int64)
    ),
    "a convolution to no channels": lambda t: functional.conv1d(t(2, 4, 15), t(0, 4, 2)),
    "multinomial of none": lambda t: torch.multinomial(t(3), 0),
    "multinomial into floats": lambda t: torch.multinomial(t(3), 1, out=t(1)),
    "multinomial of too many": lambda t: torch.multinomial(t(3), 5),
}


def raised(call: Call, make: Make) -> Exception | None:
    try:
        call(make)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("call", MISTAKES.values(), ids=MISTAKES)
@pytest.mark.filterwarnings("ignore")
def test_a_mistake_raises_what_it_raises_on_the_cpu(call: Call, device: torch.device) -> None:
    expected = raised(call, maker("cpu"))
    assert expected is not None, "the test is wrong: nothing is raised on the CPU"
    actual = raised(call, maker(device))
    assert actual is not None
    assert type(actual) is type(expected), actual
    here = str(actual).replace(f"{device.type}:0", "cpu").replace(device.type, "cpu")
    assert here.partition("\n")[0] == str(expected).partition("\n")[0]


# Calls with a number that decides whether they are allowed.
IN_PLACE = (
    *("add", "sub", "mul", "div", "fmod", "remainder", "pow", "floor_divide", "true_divide", "float_power"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
    *("atan2", "arctan2", "hypot", "copysign", "nextafter", "xlogy", "heaviside", "ldexp"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "__ilshift__", "__iand__", "gcd", "lcm"),
)


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_in_place_keeps_its_sizes(name: str, device: torch.device) -> None:
    dtype = torch.int64 if "cm" in name or "gcd" in name or "bit" in name or "__" in name else torch.float32
    expected, x = torch.full((3,), 6, dtype=dtype), torch.full((3,), 6, dtype=dtype, device=device)
    method = name if name.startswith("__") else name + "_"
    for y in (torch.full((2, 3), 2, dtype=dtype), torch.full((4,), 2, dtype=dtype)):
        with pytest.raises(RuntimeError) as right:
            getattr(expected, method)(y)
        with pytest.raises(RuntimeError) as caught:
            getattr(x, method)(y.to(device))
        assert str(caught.value) == str(right.value)
        assert x.tolist() == expected.tolist()


NUMBERS: dict[str, Callable[[Tensor, float], object]] = {
    "bernoulli": lambda x, v: torch.bernoulli(x, v),
    "bernoulli_": lambda x, v: x.bernoulli_(v),
    "cauchy_": lambda x, v: x.cauchy_(0, v),
    "celu": lambda x, v: functional.celu(x, v),
    "exponential_": lambda x, v: x.exponential_(v),
    "floor_divide of integers": lambda x, v: x.int() // int(v),
    "fmod of integers": lambda x, v: torch.fmod(x.int(), int(v)),
    "geometric_": lambda x, v: x.geometric_(v),
    "huber_loss": lambda x, v: functional.huber_loss(x, x, delta=v),
    "log_normal_": lambda x, v: x.log_normal_(0, v),
    "native_dropout": lambda x, v: torch.native_dropout(x, v, True),
    "normal": lambda x, v: torch.normal(x, v),
    "normal_": lambda x, v: x.normal_(0, v),
    "pow of integers": lambda x, v: torch.pow(x.int(), int(v)),
    "remainder of integers": lambda x, v: torch.remainder(x.int(), int(v)),
    "smooth_l1_loss": lambda x, v: functional.smooth_l1_loss(x, x, beta=v),
    "softshrink": lambda x, v: functional.softshrink(x, v),
    "truncating division of integers": lambda x, v: torch.div(x.int(), int(v), rounding_mode="trunc"),
    "uniform_ to": lambda x, v: x.uniform_(0.25, v),
    "uniform_ from": lambda x, v: x.uniform_(v, 0.75),
}


@pytest.mark.parametrize("call", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.filterwarnings("ignore")
def test_a_number_is_refused_although_the_program_exists(
    call: Callable[[Tensor, float], object], device: torch.device
) -> None:
    def outcome(on: torch.device | str, value: float) -> tuple[type, str] | None:
        error = raised(lambda make: call(make(2), value), maker(on))
        return error and (type(error), str(error).partition("\n")[0])

    values = [0.5, 2.0, 1.0, 0.0, -1.0, 0.5, -2.0, 1e9]
    if call not in [c for name, c in NUMBERS.items() if "integers" in name]:
        values += [float("nan"), float("inf"), -float("inf")]
    expected = [outcome("cpu", v) for v in values]
    assert None in expected and any(expected), "the test is wrong: all the same on the CPU"
    assert [outcome(device, v) for v in values] == expected


def test_out_of_another_dtype_that_the_cpu_casts_to_is_taken(device: torch.device, no_fallbacks: None) -> None:
    x = torch.tensor([1.5, -2.0], device=device)
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        out = torch.zeros(2, dtype=dtype, device=device)
        torch.add(x, 1, out=out)
        assert out.tolist() == [2.5, -1.0]
    index = torch.zeros((), dtype=torch.int64, device=device)
    torch.argmax(x, out=index)
    assert index.item() == 0


CAST: dict[str, Callable[[torch.device | str], Tensor]] = {
    "a sum": lambda d: torch.add(
        torch.full((2,), 33000, dtype=torch.half, device=d), 33000, out=torch.zeros(2, device=d)
    ),
    "integers": lambda d: torch.add(
        torch.full((2,), 100, dtype=torch.int8, device=d), 100, out=torch.zeros(2, device=d)
    ),
    "a function": lambda d: torch.exp(torch.ones(2, dtype=torch.bfloat16, device=d), out=torch.zeros(2, device=d)),
    "a quotient": lambda d: torch.div(
        torch.ones(2, dtype=torch.int8, device=d), 7, out=torch.zeros(2, dtype=torch.double, device=d)
    ),
    # Reductions compute in the dtype of their output.
    "a total": lambda d: torch.sum(
        torch.full((3,), 30000, dtype=torch.half, device=d), 0, out=torch.zeros((), device=d)
    ),
    "a product": lambda d: torch.prod(
        torch.full((3,), 60000, dtype=torch.half, device=d), 0, out=torch.zeros((), device=d)
    ),
    "running totals": lambda d: torch.cumsum(
        torch.full((3,), 30000, dtype=torch.half, device=d), 0, out=torch.zeros(3, device=d)
    ),
}


@pytest.mark.parametrize("name", CAST)
def test_an_output_of_another_dtype_holds_the_rounded_result(name: str, device: torch.device) -> None:
    assert CAST[name](device).cpu().equal(CAST[name]("cpu"))


def test_a_failed_in_place_call_changes_nothing(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(2, 3, device=device))
    assert x.tolist() == [1.0] * 3
    assert x._version == 0


TWO_DEVICES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda here, there: here + there,
    "add, the other way": lambda here, there: there + here,
    "add_": lambda here, there: there.add_(here),
    "mm": lambda here, there: there @ here,
    "cat": lambda here, there: torch.cat([there, here]),
    "stack": lambda here, there: torch.stack([here, there]),
    "where": lambda here, there: torch.where(there > 0, here, there),
    "linear": lambda here, there: functional.linear(here, there),
    "addmm": lambda here, there: torch.addmm(there, here, there),
    "out=": lambda here, there: torch.add(there, there, out=here),
    "out= on the device": lambda here, there: torch.add(here, here, out=there),
    "embedding": lambda here, there: functional.embedding(here.long(), there),
    "cross_entropy": lambda here, there: functional.cross_entropy(there, here),
    "conv2d": lambda here, there: functional.conv2d(there.view(1, 1, 2, 2), here.view(1, 1, 2, 2)),
    "gather": lambda here, there: there.gather(0, here.long()),
    "foreach": lambda here, there: torch._foreach_addcmul_([there], [here], [there]),
    "fused optimizer": lambda here, there: torch._fused_sgd_(
        [there],
        [here],
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    ),
}


def test_one_wrong_item_among_equal_ones_of_a_list_is_refused(device: torch.device) -> None:
    """The sizes of items that look alike are looked at once."""
    for shape, text in (((3,), "must match"), ((2, 2, 2), "doesn't match the broadcast shape")):
        outs, others = ([torch.ones(2, 2, device=device) for _ in range(6)] for _ in range(2))
        others[4] = torch.ones(shape, device=device)
        with pytest.raises(RuntimeError, match=text):
            torch._foreach_addcdiv_(outs, outs[::-1], others, value=2)
        assert all(t.eq(1).all() for t in outs)
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_add_(outs, outs[:5])
    torch._foreach_add_(outs, [1.0, 2, True, 4.0, 5.0, 6.0])
    assert [t[0, 0].item() for t in outs] == [2, 3, 2, 5, 6, 7]


@pytest.mark.parametrize("call", TWO_DEVICES.values(), ids=TWO_DEVICES.keys())
def test_tensors_of_two_devices_are_refused(
    call: Callable[[Tensor, Tensor], object], device: torch.device, pjrt: ModuleType
) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(2, 2), torch.ones(2, 2, device=device))
    assert not isinstance(caught.value, NotImplementedError)
    text = str(caught.value)
    assert "device" in text
    assert f"{device.type}:0" in text
    assert "cpu" in text


def test_an_add_of_two_devices_is_refused_in_pytorchs_words(device: torch.device, pjrt: ModuleType) -> None:
    match = "Expected all tensors to be on the same device, but"
    with pytest.raises(RuntimeError, match=match):
        torch.ones(2) + torch.ones(2, device=device)


def test_a_module_on_the_cpu_refuses_an_input_on_the_device(device: torch.device, pjrt: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="device"):
        nn.Linear(2, 2)(torch.ones(1, 2, device=device))


def test_too_much_memory_is_an_out_of_memory_error(device: torch.device, pjrt: ModuleType) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"."):
        torch.empty(1 << 50, device=device)
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1 << 48, device=device)
    assert torch.ones(2, device=device).sum().item() == 2


def test_too_much_memory_in_an_operator_is_an_out_of_memory_error(device: torch.device, pjrt: ModuleType) -> None:
    column = torch.ones(1 << 24, 1, device=device)
    with pytest.raises(torch.OutOfMemoryError):
        torch.mm(column, column.t())
    assert column[5].item() == 1


def test_a_size_that_overflows_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"."):
        torch.empty(1 << 62, 1 << 10, device=device)


OUT_OF_RANGE: dict[str, Call] = {
    "index": lambda t: t(4)[torch.tensor([5], device=t(1).device)],
    "index by a list": lambda t: t(4)[[7]],
    "negative index": lambda t: t(4)[[-5]],
    "assignment": lambda t: t(4).__setitem__(torch.tensor([4], device=t(1).device), 1.0),
    "index_select": lambda t: t(4).index_select(0, t(1, dtype=torch.int64) * 9),
    "gather": lambda t: t(4).gather(0, t(1, dtype=torch.int64) * 9),
    "scatter_": lambda t: t(4).scatter_(0, t(1, dtype=torch.int64) * 9, 1.0),
    "index_add_": lambda t: t(4).index_add_(0, t(1, dtype=torch.int64) * 9, t(1)),
    "index_copy_": lambda t: t(4).index_copy_(0, t(1, dtype=torch.int64) * 8, t(1)),
    "embedding": lambda t: functional.embedding(t(1, dtype=torch.int64) * 10, t(10, 2)),
    "one_hot": lambda t: functional.one_hot(t(1, dtype=torch.int64) * 8, 8),
    "nll_loss": lambda t: functional.cross_entropy(t(2, 3), t(2, dtype=torch.int64) * 7),
}


@pytest.mark.parametrize("call", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE.keys())
def test_an_index_out_of_range_is_reported_at_the_next_synchronisation_at_the_latest(
    call: Call, device: torch.device
) -> None:
    with pytest.raises((IndexError, RuntimeError), match=r"(?i)out of (bounds|range)|smaller than num_classes"):
        call(maker(device))
        if device.type != "cpu":
            torch.accelerator.synchronize()
    assert torch.ones(2, device=device).sum().item() == 2


def test_a_write_out_of_range_leaves_the_neighbours_alone(device: torch.device) -> None:
    base = torch.zeros(64, device=device)
    with contextlib.suppress(IndexError, RuntimeError):
        base[:5].index_copy_(0, torch.tensor([8], device=device), torch.ones(1, device=device))
        if device.type != "cpu":
            torch.accelerator.synchronize()
    assert base.sum().item() == 0


def test_an_operator_without_a_kernel_says_its_name(device: torch.device, pjrt: ModuleType) -> None:
    name = "torch_pjrt_tests::nothing"
    library = torch.library.Library("torch_pjrt_tests", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match=name):
        torch.ops.torch_pjrt_tests.nothing(torch.ones(2, device=device))


@pytest.mark.parametrize(
    "code",
    [
        "torch.ones(2, device=D) + torch.ones(3, device=D)",
        "torch.empty(1 << 50, device=D)",
        "raise KeyError('user')",
        "x = torch.ones(3, device=D, requires_grad=True); (x * 2).backward()",
        pytest.param(
            "class F(torch.autograd.Function):\n"
            "    forward = staticmethod(lambda ctx, x: x * 1)\n"
            "    def backward(ctx, g): raise ValueError('mine')\n"
            "F.apply(torch.ones(1, device=D, requires_grad=True)).backward()",
            id="in a backward function",
        ),
    ],
)
def test_an_error_that_nobody_catches_is_a_traceback_and_not_a_crash(
    code: str, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = run_python(f"y = torch.ones(5, device=D) * 2\n{code}")
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stderr.startswith("Traceback")
    assert "terminate called" not in done.stderr


def test_a_python_error_in_backward_is_raised_as_it_is(device: torch.device) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Fails.apply(torch.ones(1, device=device, requires_grad=True)).backward()
