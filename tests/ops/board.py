"""Runs one entry of PyTorch's operator database on the device and on the CPU, and says how the device did it.

A *cell* of the board is an entry (``linalg.norm``, ``nn.functional.gelu``), a kind of check and a dtype. Its state:

    row          every sample agrees with the CPU, and no decomposition or fallback ran
    decomposed   the same with PyTorch's decomposition of some operator
    fallback     the same, but the CPU ran some operator
    eager        the same, but torch.compile had no program for some graph, whose calls ran one by one
    unsupported  the device refuses some sample with NotImplementedError, and no sample is wrong
    wrong        some sample disagrees: a number, a shape, a dtype, or an error of another kind
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map_only

KINDS = ("forward", "backward", "variants", "errors", "compiled")
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
SUBSET = 1  # samples of a cell that is not looked at in full
VARIANT_SAMPLES = 2
HIGHER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
# (rtol, atol) of torch.testing.assert_close; float32's for every other dtype.
DEFAULT_TOLERANCES = {torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5)}
# Draws and uninitialised memory: only sizes, strides and dtypes can be compared.
RANDOM = set(
    """bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal multinomial
    new_empty new_empty_strided nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d
    nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.rrelu normal rand_like randint randint_like randn randn_like
    uniform svd_lowrank pca_lowrank""".split()
)

# What the CPU's kernel leaves empty in evaluation mode is private to the backward.
PRIVATE_RESULTS = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}
# Results that are positions of equal values: any of them is right, so that the values that they name are compared.
POSITIONS = {"topk", "kthvalue", "mode", "median", "nanmedian", "sort", "argsort", "msort"}
# Factors whose vectors may have any sign or phase: what they multiply to is compared instead.
FACTORS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "linalg.eigh": lambda values, v: (values, (v * values.unsqueeze(-2)) @ v.mH, v.mH @ v),
    "linalg.svd": lambda u, s, vh: (s, multiplied(u, s, vh), u.mH @ u, vh @ vh.mH),
    "svd": lambda u, s, v: (s, multiplied(u, s, v.mH), u.mH @ u, v.mH @ v),
}
# Beyond the defaults (rtol, atol), with the reason.
TOLERANCES = {
    "erfinv": (1e-5, 1e-5),  # its slope has no bound at the ends: gradients there are in the thousands
    "linalg.householder_product": (1e-4, 1e-4),  # a long chain of products in the backward
    # Six squarings; in float32 the CPU's gradient, too, is 1e-4 off the one in float64.
    "matrix_exp": (5e-5, 1e-5),
    # The CPU is off by 7e-7 in float64 beyond 5; tests/python/test_special.py has exact numbers.
    "special.bessel_j0": (1.3e-6, 1e-5),
    "special.bessel_y1": (1.3e-6, 1e-5),
}
ROUNDED_BYTES = ("interpolate", "upsample")  # uint8: the CPU rounds after each dimension, we at the end
# Arguments that must be on the CPU, whatever the device.
HOST_ARGUMENTS = {"tensor_split"}

Value = Any


class Disagreement(AssertionError):
    """The device's answer is not the CPU's."""


class CallByCall(Exception):
    """torch.compile runs a graph as in eager."""


class Refused(Exception):
    """The device says that it cannot do this."""


def refuse(error: BaseException | None, expected: BaseException | None) -> None:
    """Raises Refused for an honest no."""
    if "UnsafeScriptObjectError" in str(error):
        raise Refused("the sample calls functions of generators, which Dynamo refuses on every device")
    unsupported = isinstance(error, TypeError) and "does not support tensors of type" in str(error)
    if unsupported or (isinstance(error, NotImplementedError) and not isinstance(expected, NotImplementedError)):
        raise Refused(str(error).splitlines()[0] if str(error) else type(error).__name__)


@dataclass
class Outcome:
    state: str
    samples: int
    why: str = ""


def full_name(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


ENTRIES: dict[str, OpInfo] = {full_name(op): op for op in op_db}


def cells(entry: str) -> Iterator[tuple[str, torch.dtype]]:
    """The kinds and dtypes that there are to check."""
    op = ENTRIES[entry]
    if op.name.startswith("jiterator"):
        return  # compiles CUDA source text
    for dtype in DTYPES:
        if dtype in op.supported_dtypes("cpu"):
            yield "forward", dtype
    main = main_dtype(op)
    if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"):
        yield "backward", torch.float32
    yield "variants", main
    if torch.float32 in op.supported_dtypes("cpu"):
        yield "compiled", torch.float32
    if op.error_inputs_func is not None:
        yield "errors", main


def main_dtype(op: OpInfo) -> torch.dtype:
    return next((d for d in DTYPES if d in op.supported_dtypes("cpu")), torch.float32)


# ---- moving


def place(t: Tensor, device: torch.device) -> Tensor:
    """The same tensor on the device: storage, offset, strides, conjugate and negative bits, requires_grad."""
    if t.layout is not torch.strided:
        raise Refused(f"a sample with layout {t.layout}")
    if t.device.type != "cpu":  # an error sample: a tensor on another device
        return t
    if t.is_conj():
        return place(t.conj(), device).conj()
    if t.is_neg():
        return torch._neg_view(place(torch._neg_view(t), device))
    source = t.detach()
    if source.is_contiguous() and source.storage_offset() == 0:
        moved = source.to(device)
    else:
        base = source.as_strided((source.untyped_storage().nbytes() // source.itemsize,), (1,), 0)
        moved = base.to(device).as_strided(source.size(), source.stride(), source.storage_offset())
    return moved.requires_grad_() if t.requires_grad else moved


def moved(
    sample: SampleInput, device: torch.device, host_arguments: bool = False
) -> tuple[Value, tuple[Value, ...], dict[str, Value]]:
    def convert(x: Value) -> Value:
        if isinstance(x, torch.device):
            return device
        return place(x, device)

    def walk(x: Value) -> Value:
        return tree_map_only((Tensor, torch.device), convert, x)

    keywords = {k: (str(device) if k == "device" and isinstance(v, str) else walk(v)) for k, v in sample.kwargs.items()}
    return walk(sample.input), tuple(sample.args) if host_arguments else walk(tuple(sample.args)), keywords


def copied(sample: SampleInput) -> tuple[Value, tuple[Value, ...], dict[str, Value]]:
    def convert(t: Tensor) -> Tensor:
        if t.layout is not torch.strided:
            raise Refused(f"a sample with layout {t.layout}")
        if t.is_conj():
            return convert(t.conj()).conj()
        if t.is_neg():
            return torch._neg_view(convert(torch._neg_view(t)))
        source = t.detach()
        base = source.as_strided((source.untyped_storage().nbytes() // source.itemsize,), (1,), 0).clone()
        fresh = base.as_strided(source.size(), source.stride(), source.storage_offset())
        return fresh.requires_grad_() if t.requires_grad else fresh

    walk = lambda x: tree_map_only(Tensor, convert, x)  # noqa: E731
    return walk(sample.input), walk(tuple(sample.args)), {k: walk(v) for k, v in sample.kwargs.items()}


# ---- comparing


def tolerances(op: OpInfo, dtype: torch.dtype) -> tuple[float, float] | None:
    """PyTorch's own exception for this entry, the widest that it makes for any of its tests; None: its defaults."""
    if dtype is torch.uint8 and any(part in op.name for part in ROUNDED_BYTES):
        return 0.0, 2.0 if "bicubic" in full_name(op) else 1.0  # the CPU's weights are 16-bit integers
    return widest_tolerance(op.decorators, dtype, TOLERANCES.get(full_name(op)))


def widest_tolerance(
    decorators: Iterable[Any], dtype: torch.dtype, widest: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """Over the decorators that PyTorch hangs on an entry of one of its databases."""
    for decoration in decorators:
        if not isinstance(decoration, DecorateInfo):
            continue
        for decorator in decoration.decorators:
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                tol = decorator.d[dtype]
                widest = (max(tol.rtol, widest[0]), max(tol.atol, widest[1])) if widest else (tol.rtol, tol.atol)
    return widest


def compare(got: Value, expected: Value, tolerance: tuple[float, float] | None, random: bool) -> None:
    """Raises Disagreement."""
    flat_got, _ = tree_flatten(got)
    flat_expected, _ = tree_flatten(expected)
    if len(flat_got) != len(flat_expected):
        raise Disagreement(f"{len(flat_got)} results instead of {len(flat_expected)}")
    for g, e in zip(flat_got, flat_expected, strict=True):
        if not isinstance(e, Tensor):
            if type(g) is not type(e) or (g != e and not random and not (g != g and e != e)):
                raise Disagreement(f"{g!r} instead of {e!r}")
            continue
        if not isinstance(g, Tensor):
            raise Disagreement(f"{type(g).__name__} instead of a tensor")
        if (g.dtype, g.shape) != (e.dtype, e.shape):
            raise Disagreement(f"{g.dtype} {tuple(g.shape)} instead of {e.dtype} {tuple(e.shape)}")
        if random:
            continue
        rtol, atol = tolerance or (None, None)
        try:
            torch.testing.assert_close(g.detach().cpu(), e.detach(), rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise Disagreement(str(error)) from None


def agree(
    got: Value,
    expected: Value,
    tolerance: tuple[float, float] | None,
    random: bool,
    exact: Callable[[], Value] | None,
) -> None:
    """Raises Disagreement where ``got`` is neither near to ``expected`` nor as near to ``exact()`` as that is."""
    try:
        compare(got, expected, tolerance, random)
    except Disagreement:
        if exact is None:
            raise
        value, error = raised(exact)
        if error is not None or not no_worse(got, expected, value):
            raise


def no_worse(got: Value, expected: Value, exact: Value) -> bool:
    """Is the device as near to the result in higher precision as the CPU is?"""
    for g, e, x in zip(tree_flatten(got)[0], tree_flatten(expected)[0], tree_flatten(exact)[0], strict=True):
        if not isinstance(e, Tensor) or not (e.is_floating_point() or e.is_complex()):
            if isinstance(e, Tensor) and not torch.equal(g.cpu(), e):
                return False
            continue
        x, kind = x.detach(), e.dtype
        g, e = g.detach().cpu().to(x.dtype), e.detach().to(x.dtype)
        ours, theirs = (g - x).abs(), (e - x).abs()
        both = torch.isnan(g) & torch.isnan(e) | (g == e)
        lost = torch.isnan(e) & ~torch.isnan(x)  # the CPU has no number: the exact one decides
        if not torch.allclose(g[lost].to(kind), x[lost].to(kind), *DEFAULT_TOLERANCES.get(kind, (1.3e-6, 1e-5))):
            return False
        both = both | lost
        ours, theirs = ours.masked_fill(both, 0), theirs.masked_fill(both, 0)
        if ours.isnan().any() or theirs.isnan().any():
            return False
        scale = x.abs().nan_to_num(0, 0, 0).max() if x.numel() else 0.0
        if x.numel() and ours.max() > 3 * theirs.max() + torch.finfo(got_dtype(e, g, expected)).eps * scale:
            return False
    return True


def got_dtype(e: Tensor, g: Tensor, expected: Value) -> torch.dtype:
    first = next(t for t in tree_flatten(expected)[0] if isinstance(t, Tensor) and t.dtype in HIGHER)
    return first.dtype if not first.is_complex() else torch.float32


def raised(f: Callable[[], Value]) -> tuple[Value, BaseException | None]:
    try:
        return f(), None
    except Refused:
        raise
    except Exception as error:
        return None, error


def seed() -> None:
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)


# ---- the checks


def samples_of(op: OpInfo, dtype: torch.dtype, grad: bool, most: int | None) -> Iterator[SampleInput]:
    seed()
    found = op.sample_inputs("cpu", dtype, requires_grad=grad)
    if most is None:
        yield from found
        return
    yield from spread(list(found), most)


def spread(every: list[Any], most: int | None) -> list[Any]:
    """At most so many of them, evenly from the whole list; one is the middle one, as the first is often a number."""
    if most == 1:
        return every[len(every) // 2 :][:1]
    return every[:: max(1, len(every) // most)][:most] if most is not None else every


def higher(sample: SampleInput, dtype: torch.dtype) -> SampleInput:
    def convert(x: Value) -> Value:
        if isinstance(x, Tensor):
            return x.detach().to(HIGHER[dtype]).requires_grad_(x.requires_grad) if x.dtype == dtype else x
        return HIGHER[dtype] if x is dtype else x

    return sample.transform(convert)


def check_call(
    op: OpInfo,
    dtype: torch.dtype,
    sample: SampleInput,
    device: torch.device,
    f: Callable[..., Value],
    may_raise: bool = False,
) -> None:
    """``f(input, args, kwargs)`` on both devices; ``may_raise``: the CPU may refuse it, and then so must the device."""
    args = copied(sample)
    seed()
    expected, cpu_error = raised(lambda: f(*args))
    if cpu_error is not None and (isinstance(cpu_error, Disagreement) or not may_raise):
        raise cpu_error
    args, error = raised(lambda: moved(sample, device, op.name in HOST_ARGUMENTS))
    refuse(error, None)  # a tensor that the device cannot hold
    if error is not None:
        raise error
    seed()
    got, error = raised(lambda: f(*args))
    refuse(error, cpu_error)
    if (error is None) != (cpu_error is None):
        raise Disagreement(f"{describe(error)} instead of {describe(cpu_error)}")
    if error is not None:
        if type(error) is not type(cpu_error):
            raise Disagreement(f"{describe(error)} instead of {describe(cpu_error)}")
        return
    if op.name in PRIVATE_RESULTS and may_hide(expected):
        got, expected = got[:1], expected[:1]
    if op.name == "argsort" and isinstance(got, Tensor) and got.dtype == expected.dtype:
        got, expected = named(sample, (got, got))[1:], named(sample, (expected, expected))[1:]
    if op.name in POSITIONS and all(isinstance(r, tuple) and len(r) == 2 for r in (got, expected)):
        if not got[1].is_floating_point():  # not gradients
            got, expected = named(sample, got), named(sample, expected)
    factors = FACTORS.get(op.name)
    if factors and not isinstance(expected, Tensor) and len(expected) == factors.__code__.co_argcount:
        f = lambda *a, call=f: factors(*call(*a))  # noqa: E731
        got, expected = factors(*(t.cpu() for t in got)), factors(*expected)
    exact = (lambda: f(*copied(higher(sample, dtype)))) if dtype in HIGHER else None
    agree(got, expected, tolerances(op, dtype), draws(op, sample), exact)


def multiplied(u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    k = s.shape[-1]
    return (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]


def named(sample: SampleInput, result: tuple[Tensor, Tensor]) -> Value:
    """(values, positions) as (values, values at these positions)."""
    values, positions = result
    x = sample.input.detach()
    numbers = [a for a in (*sample.args, sample.kwargs.get("dim")) if type(a) is int]
    dim = numbers[-1] if numbers else -1
    if positions.dim() != x.dim() or x.dim() == 0 or not -x.dim() <= dim < x.dim():
        return (values,)
    try:
        return (values, torch.take_along_dim(x, positions.cpu(), dim))
    except RuntimeError:  # the last number is not the dimension
        return (values,)


def draws(op: OpInfo, sample: SampleInput) -> bool:
    """Is the result random?"""
    dropout = sample.kwargs.get("dropout_p", 0)
    if op.name == "nn.functional.multi_head_attention_forward" and sample.kwargs.get("training"):
        dropout = sample.args[9]
    return op.name in RANDOM or dropout > 0


def may_hide(expected: Value) -> bool:
    return isinstance(expected, tuple) and len(expected) >= 3 and expected[1].numel() == 0


def describe(error: BaseException | None) -> str:
    return (
        "a result" if error is None else f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    )


def forward(op: OpInfo, dtype: torch.dtype, device: torch.device, most: int | None) -> Iterator[Callable[[], None]]:
    for sample in samples_of(op, dtype, False, most):
        yield lambda sample=sample: check_call(op, dtype, sample, device, lambda x, a, k: op(x, *a, **k))


def backward(op: OpInfo, dtype: torch.dtype, device: torch.device, most: int | None) -> Iterator[Callable[[], None]]:
    def gradients(x: Value, a: Value, k: Value, sample: SampleInput) -> Value:
        inputs = [t for t in tree_flatten((x, a, k))[0] if isinstance(t, Tensor) and t.requires_grad]
        result = sample.output_process_fn_grad(op(x, *a, **k))
        outputs = [t for t in tree_flatten(result)[0] if isinstance(t, Tensor) and t.requires_grad]
        if not outputs or not inputs:
            return []
        # Cotangents that no symmetry cancels, equal on both devices.
        seeds = [cotangent(t) for t in outputs]
        return torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)

    for sample in samples_of(op, dtype, True, most):
        yield lambda s=sample: check_call(op, dtype, s, device, lambda x, a, k: gradients(x, a, k, s))


def cotangent(t: Tensor) -> Tensor:
    wave = torch.arange(1, t.numel() + 1, dtype=torch.float64).mul(0.7).sin().reshape(t.shape)
    return wave.to(t.dtype).to(t.device)


def variants(op: OpInfo, dtype: torch.dtype, device: torch.device, most: int | None) -> Iterator[Callable[[], None]]:
    """In place, out= (contiguous and strided), non-contiguous and method forms."""

    def in_place(x: Value, a: Value, k: Value) -> Value:
        assert op.inplace_variant is not None
        x = x.clone()  # a sample may be a view of a leaf
        result = op.inplace_variant(x, *a, **k)
        if isinstance(x, Tensor) and isinstance(result, Tensor) and result.data_ptr() != x.data_ptr():
            raise Disagreement("an in-place call returned another tensor")
        return x

    def out(x: Value, a: Value, k: Value, strided: bool) -> Value:
        expected = op(x, *a, **k)
        flat = tree_flatten(expected)[0]
        # The CPU's own out= is wrong for strided results of some operators (narrow_copy, avg_pool3d).
        if not all(isinstance(t, Tensor) for t in flat) or flat[0].device.type == "cpu":
            return flat
        targets = [like(t, strided) for t in flat]
        op(x, *a, **k, out=targets[0] if isinstance(expected, Tensor) else tuple(targets))
        return targets

    def check(sample: SampleInput, f: Callable[..., Value]) -> Callable[[], None]:
        return lambda: check_call(op, dtype, sample, device, f, may_raise=True)

    for sample in samples_of(op, dtype, False, VARIANT_SAMPLES):
        if not any(
            isinstance(t, Tensor) and t.layout is not torch.strided
            for t in tree_flatten((sample.input, sample.args))[0]
        ):
            yield check(sample.noncontiguous(), lambda x, a, k: op(x, *a, **k))
        if op.method_variant is not None:
            yield check(sample, lambda x, a, k: op.method_variant(x, *a, **k))
        if op.supports_out:
            yield check(sample, lambda x, a, k: out(x, a, k, False))
            yield check(sample, lambda x, a, k: out(x, a, k, True))
        if op.inplace_variant is not None and not sample.broadcasts_input:
            yield check(sample, in_place)


def like(t: Tensor, strided: bool) -> Tensor:
    """An out= tensor full of something else; strided: every second element of a larger one."""
    if not strided or t.dim() == 0:
        return torch.full_like(t, 1)
    return torch.ones([*t.shape[:-1], 2 * t.shape[-1]], dtype=t.dtype, device=t.device)[..., ::2]


def errors(op: OpInfo, dtype: torch.dtype, device: torch.device, most: int | None) -> Iterator[Callable[[], None]]:
    def check(sample: SampleInput) -> None:
        _, expected = raised(lambda: op(*unpacked(copied(sample))[0], **unpacked(copied(sample))[1]))
        x, a, k = moved(sample, device)
        _, got = raised(lambda: op(x, *a, **k))
        refuse(got, expected)
        if type(got) is not type(expected) or neutral(str(got), device) != neutral(str(expected), torch.device("cpu")):
            raise Disagreement(f"{describe(got)} instead of {describe(expected)}")

    for error_input in op.error_inputs("cpu"):
        yield lambda s=error_input.sample_input: check(s)


def compiled(op: OpInfo, dtype: torch.dtype, device: torch.device, most: int | None) -> Iterator[Callable[[], None]]:
    """Results of the compiled call, and gradients where results are not compared in a way of their own."""
    grad = (
        op.supports_autograd
        and dtype in op.supported_backward_dtypes("cpu")
        and op.name not in {"linalg.eig", *POSITIONS, *FACTORS}
    )

    def both(x: Value, a: Value, k: Value, sample: SampleInput) -> Value:
        tensors = [t for t in tree_flatten((x, a, k))[0] if isinstance(t, Tensor)]
        f = lambda x, a, k: op(x, *a, **k)  # noqa: E731
        on_device = any(t.device.type != "cpu" for t in tensors) or str(k.get("device", "cpu")) != "cpu"
        result = (torch.compile(f, backend="pjrt") if on_device else f)(x, a, k)
        inputs = [t for t in tensors if t.requires_grad]
        seen = sample.output_process_fn_grad(result) if grad else result
        outputs = [t for t in tree_flatten(seen)[0] if isinstance(t, Tensor) and t.requires_grad]
        if not grad or not inputs or not outputs:
            return result
        return result, torch.autograd.grad(outputs, inputs, [cotangent(t) for t in outputs], allow_unused=True)

    def check(sample: SampleInput) -> None:
        torch._dynamo.reset()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_call(op, dtype, sample, device, lambda x, a, k: both(x, a, k, sample))
        for warning in caught:
            if "call by call on the device" in str(warning.message):
                raise CallByCall(str(warning.message).partition("device: ")[2])

    for sample in samples_of(op, dtype, grad, most):
        yield lambda s=sample: check(s)


def unpacked(call: tuple[Value, tuple[Value, ...], dict[str, Value]]) -> tuple[tuple[Value, ...], dict[str, Value]]:
    x, a, k = call
    return (x, *a), k


def neutral(text: str, device: torch.device) -> str:
    """An error's first line without what must differ: the device's name."""
    first = text.splitlines()[0] if text else ""
    return re.sub(rf"\b{device.type}(:0)?\b", "DEVICE", first)


CHECKS: dict[str, Callable[..., Iterable[Callable[[], None]]]] = {
    "forward": forward,
    "backward": backward,
    "variants": variants,
    "errors": errors,
    "compiled": compiled,
}


def run(entry: str, kind: str, dtype: torch.dtype, device: torch.device, most: int | None) -> Outcome:
    """One cell. ``most``: how many samples at most; None: all."""
    return judge(CHECKS[kind](ENTRIES[entry], dtype, device, most))


def judge(checks: Iterable[Callable[[], None]]) -> Outcome:
    """The state of a cell with these checks; the first that disagrees ends it."""
    import torch_pjrt

    def counters() -> tuple[int, int]:
        now = torch_pjrt.stats()
        return now["fallbacks"], now["decomposed"]

    before = counters()
    n = 0
    refused = call_by_call = ""
    for check in checks:
        n += 1
        try:
            check()
        except Refused as error:
            refused = refused or f"sample {n}: {error}"
        except CallByCall as error:
            call_by_call = call_by_call or str(error)
        except Disagreement as error:
            return Outcome("wrong", n, f"sample {n}: {error}")
    if refused:
        return Outcome("unsupported", n, refused)
    after = counters()
    if after[0] > before[0]:
        return Outcome("fallback", n)
    if call_by_call:
        return Outcome("eager", n, call_by_call)
    return Outcome("decomposed" if after[1] > before[1] else "row", n)
