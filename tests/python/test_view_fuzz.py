"""Random programs of views and writes, run on the CPU and on the device in lockstep.

Hypothesis draws a program; each step becomes one line of Python that is evaluated on both devices.
After every step the whole state is compared: sizes, strides, offsets, which tensors share memory and
at what distance, the contents of every base and of the tensor that the step touched; at the end the
gradients of the leaves. A failure prints a script up to it, which runs on its own.

The programs are the same in every run. ``TORCH_PJRT_FUZZ_EXAMPLES`` sets how many there are of each
kind, ``TORCH_PJRT_FUZZ_SEED`` gives others; geometries are few on purpose, because each pair of operator
and geometry is one compile.
"""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies
from torch import Tensor

EXAMPLES = int(os.environ.get("TORCH_PJRT_FUZZ_EXAMPLES", "720"))
SEED = os.environ.get("TORCH_PJRT_FUZZ_SEED", "0")
LONGEST = 8  # steps
MOST_TENSORS = 6

# What each kind of program starts from: lines that append to `t`.
STARTS = {
    "a matrix": ["fresh(4, 6)"],
    "a cube": ["fresh(2, 3, 4)"],
    "integers": ["fresh(4, 6).to(torch.int32)"],
    "two bases": ["fresh(4, 6)", "fresh(6)"],
    "complex numbers": ["torch.view_as_complex(fresh(4, 3, 2))"],
    "with gradients": ["leaf(4, 6)", "leaf(6)"],
    "low precision": ["fresh(4, 6).to(torch.bfloat16)"],
}

# What the lines of a program use; D is the device.
PREAMBLE = """
import torch

def fresh(*shape):
    return (torch.arange(torch.Size(shape).numel()) % 25).float().view(shape).to(D)

def leaf(*shape):
    leaves.append(fresh(*shape).requires_grad_())
    return leaves[-1] * 1

# The source, or a copy where it overlaps the target: that result depends on the order.
def other(source, target):
    apart = source.untyped_storage().data_ptr() != target.untyped_storage().data_ptr()
    return source if source is target or apart else source.clone()

# The source, or the target's copy where sizes or dtype differ: PyTorch gives up `out=` that resizes.
def sized(source, target):
    return source if (source.shape, source.dtype) == (target.shape, target.dtype) else target.clone()

t, leaves = [], []
"""


@dataclass
class Draw:
    """The numbers that one step may use, and the tensor (on the CPU) that it is about."""

    x: Tensor
    i: int
    j: int

    @property
    def dim(self) -> int:
        return self.i % max(self.x.dim(), 1)

    @property
    def colons(self) -> str:
        return ":, " * self.dim

    @property
    def number(self) -> int:
        return (2, -1, 3)[self.j % 3]


# Each gives the text that follows the name of a tensor; "" when it does not apply.
VIEWS: dict[str, Callable[[Draw], str]] = {
    "slice": lambda d: f"[{d.colons}{d.j % 2}::{1 + d.j // 2}]" if d.x.dim() else "",
    "front": lambda d: f"[{d.colons}:{2 + d.j % 2}]" if d.x.dim() else "",
    "select": lambda d: f".select({d.dim}, {(1, -1)[d.j % 2]})" if d.x.dim() and d.x.shape[d.dim] > 1 else "",
    "narrow": lambda d: f".narrow({d.dim}, 1, 2)" if d.x.dim() and d.x.shape[d.dim] > 2 else "",
    "chunk": lambda d: f".chunk(2, {d.dim})[-1]" if d.x.dim() else "",
    "split": lambda d: f".split(2, {d.dim})[0]" if d.x.dim() else "",
    "transpose": lambda d: f".transpose({d.dim}, -1)" if d.x.dim() > 1 else "",
    "permute": lambda d: f".permute({', '.join(map(str, reversed(range(d.x.dim()))))})" if d.x.dim() > 1 else "",
    "unsqueeze": lambda d: f".unsqueeze({(0, -1)[d.j % 2]})" if d.x.dim() < 4 else "",
    "squeeze": lambda d: ".squeeze()" if 1 in d.x.shape else "",
    "view": lambda d: ".view(-1)",  # raises for some strides, on both devices
    "view as two": lambda d: f".view({d.x.numel() // 2}, 2)" if d.x.numel() % 2 == 0 else "",
    "reshape": lambda d: ".reshape(2, -1)" if d.x.numel() % 2 == 0 else "",  # a view or a copy
    "flatten": lambda d: ".flatten()",
    "expand": lambda d: ".unsqueeze(0).expand(2, " + "-1, " * d.x.dim() + ")" if d.x.dim() < 3 else "",
    "diagonal": lambda d: f".diagonal({d.j % 2})" if d.x.dim() == 2 else "",
    "unfold": lambda d: f".unfold({d.dim}, 2, {1 + d.j % 2})" if 0 < d.x.dim() < 3 and d.x.shape[d.dim] > 2 else "",
    "as_strided": lambda d: f".as_strided{(((2, 3), (6, 2), 1), ((3,), (5,), 2), ((2, 2), (1, 2)))[d.j % 3]}",
    "detach": lambda d: ".detach()",
    "data": lambda d: ".data",
    "dtype": lambda d: f".view(torch.{dtype_of(d)})",
    "unflatten": lambda d: f".unflatten({d.dim}, (2, -1))" if d.x.dim() and d.x.shape[d.dim] % 2 == 0 else "",
    "movedim": lambda d: f".movedim({d.dim}, 0)" if d.x.dim() > 1 else "",
    "squeeze of one": lambda d: f".squeeze({d.dim})" if d.x.dim() else "",
    "swap the last": lambda d: ".mT" if d.x.dim() > 1 else "",
    "unbind": lambda d: f".unbind({d.dim})[-1]" if d.x.dim() and d.x.shape[d.dim] else "",
    "tensor_split": lambda d: f".tensor_split(3, {d.dim})[{d.j % 2}]" if d.x.dim() else "",
    "view_as": lambda d: ".view_as({name})",
    "conj": lambda d: ".conj()",
    "real": lambda d: (".real", ".imag")[d.j % 2] if d.x.is_complex() else "",
}
WHOLE_VIEWS: dict[str, Callable[[Draw], str]] = {
    "neg view": lambda d: "torch._neg_view({name})",
    "as real": lambda d: "torch.view_as_real({name})" if d.x.is_complex() else "",
    "as complex": lambda d: "torch.view_as_complex({name})" if d.x.dim() and d.x.shape[-1] == 2 else "",
    "adjoint": lambda d: "{name}.mH" if d.x.dim() > 1 else "",
    "conj, physically": lambda d: "{name}.resolve_conj()",
}
# What gives a tensor another storage or geometry.
REBINDINGS: dict[str, Callable[[Draw], str]] = {
    "data": lambda d: "{name}.data = {name}.data[1:]" if d.x.dim() and d.x.shape[0] > 2 else "",
    "data of another": lambda d: f"{{name}}.data = t[{d.j}].data" if d.j else "",
    "data of a result": lambda d: "{name}.data = {name}.detach().flatten() + 1",
    "set_": lambda d: f"{{name}}.set_(t[{d.j}].detach())",
    "set_ with a geometry": lambda d: (
        "{name}.set_({name}.untyped_storage(), 1, (2, 3), (3, 1))" if enough(d.x, 1) else ""
    ),
    "resize_": lambda d: "{name}.resize_(2, 3)" if enough(d.x) else "",
    "resize_ to a row": lambda d: "{name}.resize_(6)" if enough(d.x) else "",
}
WRITES: dict[str, Callable[[Draw], str]] = {
    "add_": lambda d: f".add_({d.number})",
    "mul_": lambda d: f".mul_({d.number})",
    "fill_": lambda d: f".fill_({d.number})",
    "zero_": lambda d: ".zero_()",
    "clamp_": lambda d: ".clamp_(0, 9)",
    "copy_": lambda d: f".copy_(fresh{tuple(d.x.shape)})",
    "copy_ of a row": lambda d: f".copy_(fresh({d.x.shape[-1]}))" if d.x.dim() else "",
    "copy_ of another": lambda d: f".copy_(other(t[{d.j}], {{name}}))",
    "add_ of another": lambda d: f".add_(other(t[{d.j}], {{name}}))",
    "assign a slice": lambda d: f"[{d.colons}1:] = {d.number}" if d.x.dim() else "",
    "assign steps": lambda d: f"[::2] = fresh{((d.x.shape[0] + 1) // 2, *d.x.shape[1:])}" if d.x.dim() else "",
    "assign an index": lambda d: f"[{d.colons}{(0, -1)[d.j % 2]}] = {d.number}" if d.x.dim() else "",
    "assign a list": lambda d: f"[[0, -1]] = {d.number}" if d.x.dim() else "",
    "assign another": lambda d: f"[...] = other(t[{d.j}], {{name}})",
    "masked": lambda d: f"[{{name}} > 3] = {d.number}",
    "flip the signs": lambda d: ".view(torch.int32).bitwise_xor_(-(1 << 31))" if d.x.is_floating_point() else "",
}
OUTS: dict[str, Callable[[Draw], str]] = {
    "add out=": lambda d: "torch.add(fresh{shape}, 1, out={name})",
    "mul out= of itself": lambda d: "torch.mul({name}, 2, out={name})",
    # The sign of the CPU's complex zeros depends on where the vector unit ends.
    "neg out=": lambda d: (
        "" if d.x.is_complex() else f"torch.neg(sized(other(t[{d.j}], {{name}}), {{name}}), out={{name}})"
    ),
    "sum out=": lambda d: "torch.sum(torch.stack([fresh{shape}] * 3), 0, out={name})",
}
READS: dict[str, Callable[[Draw], str]] = {
    "plus": lambda d: "{name} + 1",
    "times itself": lambda d: "{name} * {name}",
    "contiguous": lambda d: "{name}.contiguous()",
    "sum": lambda d: "{name}.sum(-1)" if d.x.dim() else "",
    "flip": lambda d: "{name}.flip(0)" if d.x.dim() else "",
    "clone": lambda d: "{name}.clone()",
    "gather": lambda d: "{name}[[-1, 0]]" if d.x.dim() else "",
}


def dtype_of(d: Draw) -> str:
    """Another dtype that has the same bytes."""
    if d.x.is_complex():
        return "float32"
    if d.x.dtype == torch.bfloat16:
        return "int16"
    return "int32" if d.x.is_floating_point() else ("int16", "uint8")[d.j % 2]


def enough(x: Tensor, offset: int | None = None) -> bool:
    """Whether six elements fit behind the offset, the tensor's own at first: what a storage grows by is not defined."""
    first = x.storage_offset() if offset is None else offset
    return (first + 6) * x.itemsize <= x.untyped_storage().nbytes()


def places(x: Tensor) -> Tensor:
    """The element of the storage under each element of ``x``."""
    offsets = torch.tensor(x.storage_offset())
    for size, stride in zip(x.shape, x.stride(), strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(size) * stride
    return offsets.flatten()


def writable(x: Tensor) -> bool:
    """Whether each element has a place of its own; what else is written depends on the order.

    A stride of 0 is allowed, because every such write is refused.
    """
    stretched = any(stride == 0 and size > 1 for size, stride in zip(x.shape, x.stride(), strict=True))
    found = places(x)
    return stretched or found.unique().numel() == found.numel()


class Machine:
    """One of the two devices: its tensors, and the names that a line may use."""

    def __init__(self, device: torch.device) -> None:
        self.names: dict[str, Any] = {"D": str(device)}
        exec(PREAMBLE, self.names)
        self.tensors: list[Tensor] = self.names["t"]

    def run(self, line: str) -> Tensor | Exception | None:
        """The value of an expression, nothing for a statement, or what was raised."""
        try:
            if re.search(r"(\]|\.data) = ", line):
                exec(line, self.names)
                return None
            return eval(line, self.names)
        except Exception as error:
            return error


@torch.no_grad()  # autograd may refuse to look at a view whose base was written
def here(x: Tensor) -> Tensor:
    return x.to("cpu", copy=True)


def equal(mine: Tensor, theirs: Tensor) -> bool:
    return mine.dtype == theirs.dtype and torch.allclose(here(mine), here(theirs), rtol=0, atol=0, equal_nan=True)


def geometry(x: Tensor) -> tuple[object, ...]:
    return (x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x.untyped_storage().nbytes())


def sharing(tensors: list[Tensor]) -> list[list[int | None]]:
    """For each pair the distance in bytes between their first elements, if they share memory."""
    return [
        [
            a.data_ptr() - b.data_ptr() if a.untyped_storage()._cdata == b.untyped_storage()._cdata else None
            for b in tensors
            if b.numel() > 0
        ]
        for a in tensors
        if a.numel() > 0
    ]


Step = tuple[tuple[dict[str, Callable[[Draw], str]], str], int, int, int]


def step_of(number: int, kind: str) -> Step:
    """A step as evenly spread as the numbers are not: Hypothesis likes to repeat itself.

    A failing program still shrinks, because Hypothesis drops numbers that are not needed.
    """
    source = random.Random(f"{kind} {number}" + (f" {SEED}" if SEED != "0" else ""))
    group = source.choice((*[VIEWS] * 6, *[WRITES] * 6, WHOLE_VIEWS, REBINDINGS, *[OUTS] * 2, *[READS] * 2))
    name = source.choice(list(group))
    return (group, name), source.randrange(MOST_TENSORS), source.randrange(3), source.randrange(4)


def line_of(step: Step, tensors: list[Tensor]) -> tuple[str, int]:
    """The step as a line about one of the tensors, and that one's number; "" when it does not apply."""
    (group, kind), which, i, j = step
    which %= len(tensors)
    x = tensors[which]
    draw = Draw(x, i, j)
    if "t[" in (text := group[kind](draw)):
        text = group[kind](Draw(x, i, j % len(tensors)))
    if not text or (group in (WRITES, OUTS) and not writable(x)):
        return "", which
    if group is OUTS and 0 in x.stride():
        return "", which  # a reduction's out= is not checked by the CPU: it leaves whatever came last
    integer = not (x.is_floating_point() or x.is_complex())
    if group in (WRITES, OUTS) and (tensors[0].is_floating_point() or tensors[0].is_complex()) and integer:
        return "", which  # small integers are denormal floats, which XLA's CPU plugin flushes to zero
    if group in (VIEWS, WRITES):
        text = "{name}" + text
    if any(t.requires_grad for t in tensors) and (group is REBINDINGS or ".data" in text):
        return "", which  # what autograd knows of such tensors is not defined
    return text.replace("{name}", f"t[{which}]").replace("{shape}", str(tuple(x.shape))), which


def run_program(start: list[str], steps: list[Step], device: torch.device) -> None:
    cpu, other = Machine(torch.device("cpu")), Machine(device)
    transcript = [f"t.append({line})" for line in start]

    def check(truth: bool, what: str, *details: object) -> None:
        script = [f'D = "{device}"', PREAMBLE.strip(), *transcript]
        assert truth, "\n".join([f"{what} (seed {SEED}) after", "", *script, "", *map(str, details)])

    for line in start:
        for machine in (cpu, other):
            machine.tensors.append(machine.run(line))
    bases = len(start)

    for step in steps:
        line, which = line_of(step, cpu.tensors)
        if not line:
            continue
        transcript.append(line)
        is_view = step[0][0] in (VIEWS, WHOLE_VIEWS)
        results = [machine.run(line) for machine in (cpu, other)]
        expected, actual = results
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            check(type(expected) is type(actual), "Different errors", repr(expected), repr(actual))
        elif isinstance(expected, Tensor):
            assert isinstance(actual, Tensor)
            check(equal(actual, expected), "Different values", here(expected), here(actual))
            # PyTorch's own meta kernels do not agree on the stride of a size of 1.
            theirs, mine = ([s for n, s in zip(x.shape, x.stride(), strict=True) if n != 1] for x in (expected, actual))
            check(mine == theirs, "Different strides", theirs, mine)
            if is_view and len(cpu.tensors) < MOST_TENSORS:
                transcript[-1] = f"t.append({line})"
                for machine, result in zip((cpu, other), results, strict=True):
                    machine.tensors.append(result)
                which = len(cpu.tensors) - 1
        theirs, mine = [geometry(x) for x in cpu.tensors], [geometry(x) for x in other.tensors]
        check(mine == theirs, "Different geometry", theirs, mine)
        theirs, mine = sharing(cpu.tensors), sharing(other.tensors)
        check(mine == theirs, "Different sharing", theirs, mine)
        for number in {*range(bases), which}:
            expected, actual = cpu.tensors[number], other.tensors[number]
            check(equal(actual, expected), f"Different values of t[{number}]", here(expected), here(actual))
    expected, actual = gradients(cpu), gradients(other)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        check(type(expected) is type(actual), "Different errors of backward", repr(expected), repr(actual))
    else:
        same = all(a is e is None or (a is not None and equal(a, e)) for a, e in zip(actual, expected, strict=True))
        check(same, "Different gradients", expected, actual)


def gradients(machine: Machine) -> list[Tensor | None] | Exception:
    """Those of the leaves, from all tensors that have some, weighted by small whole numbers."""
    roots = [t for t in machine.tensors if t.requires_grad]
    if not roots:
        return []
    try:
        weights = [(torch.arange(t.numel()) % 3 + 1).view(t.shape).to(t) for t in roots]
        return list(torch.autograd.grad(roots, machine.names["leaves"], weights, allow_unused=True))
    except Exception as error:
        return error


@pytest.fixture(autouse=True)
def sizes(kind: str, request: pytest.FixtureRequest) -> None:
    """Two kinds also meet the programs for changing sizes; the others are faster without."""
    if kind not in ("a matrix", "with gradients"):
        request.getfixturevalue("exact_sizes")


@pytest.mark.parametrize("kind", STARTS)
@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(numbers=strategies.lists(strategies.integers(0, 1 << 40), min_size=5, max_size=LONGEST, unique=True))
def test_a_random_program_ends_as_on_the_cpu(kind: str, numbers: list[int], device: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_program(STARTS[kind], [step_of(number, kind) for number in numbers], device)
