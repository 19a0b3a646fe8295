"""Random chains of operators, computed on the CPU and on the device from the same numbers.

Hypothesis draws a chain; each step becomes one line of Python about the results so far. The device computes
each step from the CPU's results and from its own: the first says which operator is wrong, the second whether
it lives with what the device gave it (layouts, views, lazy bits). A failure prints a script that runs on its own.

Shapes and dtypes are few on purpose, because each pair of operator and shapes is one compile.
``TORCH_PJRT_FUZZ_EXAMPLES`` sets how many chains there are of each dtype, ``TORCH_PJRT_FUZZ_SEED`` gives others.
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies
from torch import Tensor

EXAMPLES = int(os.environ.get("TORCH_PJRT_FUZZ_EXAMPLES", "500"))
SEED = os.environ.get("TORCH_PJRT_FUZZ_SEED", "0")

# What the lines of a program use; D is the device.
PREAMBLE = """
import torch
from torch.nn import functional as F

# A (3, 4) tensor of numbers that every dtype holds, the same in every run.
def fresh(n, dtype):
    return ((torch.arange(12) * (n * 2 + 3) % 11 - 3) / 2).view(3, 4).to(dtype).to(D)

def rows(x):
    return torch.tensor([1, 0, 1], device=x.device)
"""

FLOATS = ("float32", "bfloat16")
INTEGERS = ("int64", "bool")
Text = str

# Name -> a line about x and y, of sizes (3, 4) or of what reductions leave. All keep sizes that another step takes.
ANY: list[Text] = [
    *("x + y", "x * y", "x.eq(y)", "x != y", "torch.where(x == y, x, y)", "x.t().t()", "x.flip(0)", "x.clone()"),
    *("x[[1, 0, 2]] if x.dim() else x", "x.roll(1)", "torch.cat([x, y])[:3] if x.dim() and x.shape == y.shape else x"),
    *("torch.stack([x, x]).sum(0)", "x.masked_fill(x == y, 1)", "x.contiguous()", "x.reshape(-1).view(x.shape)"),
    *("x.sum(-1, keepdim=True) if x.dim() else x", "x.sum()", "x.cumsum(0) if x.dim() else x", "x.expand_as(x + y)"),
    *("x.index_select(0, rows(x)) if x.dim() and x.shape[0] == 3 else x", "x.any(0)", "x.all()", "x.logical_not()"),
    *("x.gather(0, rows(x)[:1, None]) if x.dim() == 2 and x.shape[0] == 3 else x", "x.unsqueeze(0).squeeze(0)"),
    *(
        "x.to(torch.float32)",
        "x.to(torch.int64)",
        "x > 1",
        "x <= y",
        "x.nonzero().sum(0)",
        "x.prod(0) if x.dim() else x",
    ),
    *("x.tril() if x.dim() == 2 else x", "x.diagonal() if x.dim() == 2 else x", "x.mT if x.dim() == 2 else x"),
    *("x.mT.mT.contiguous() if x.dim() == 2 else x", "x[..., 1:]", "x[..., ::2]", "x[..., -1] if x.dim() else x"),
    *("x.repeat(1, 1)[0]", "F.pad(x, (0, 1))[..., :-1] if x.dim() else x", "x.sort(-1).values", "x.amax()", "x.max()"),
    *("x.scatter(0, rows(x)[:1, None], 2) if x.dim() == 2 and x.shape[0] == 3 else x", "torch.full_like(x, 1)"),
    *("x.index_add(0, rows(x), x) if x.dim() == 2 and x.shape[0] == 3 else x", "x.amin(0)", "x.unique()", "x[x == y]"),
    *("x.clone().copy_(y) if x.shape == y.shape else x", "x.new_zeros(3, 4) + x if x.shape == (3, 4) else x"),
]
FLOAT: list[Text] = [
    *("x - y", "x / 2", "x.neg()", "x.abs()", "x.exp().clamp(max=9)", "x.sigmoid()", "x.tanh()", "x.relu()", "x.sin()"),
    *("x.abs().sqrt()", "x.square().clamp(max=20)", "(x.abs() + 1).log()", "(x.abs() + 1).reciprocal()", "F.silu(x)"),
    *("F.gelu(x)", "F.softplus(x)", "F.leaky_relu(x)", "F.elu(x)", "x.floor()", "x.round()", "x.trunc()", "x.sign()"),
    *("torch.maximum(x, y)", "torch.minimum(x, y)", "x.clamp(-1, 2)", "torch.fmod(x, 3)", "torch.remainder(x, 3)"),
    *("x.lerp(y, 0.5)", "torch.addcmul(x, x, y, value=0.5)", "x.mean()", "x.mean(0) if x.dim() else x", "x.norm()"),
    *("x.softmax(-1)", "x.log_softmax(-1)", "x.logsumexp(-1)", "x.var(-1, correction=0)", "x.argmax(-1)", "x.erf()"),
    *("F.layer_norm(x, x.shape[-1:]) if x.dim() else x", "x @ y.mT if x.dim() == y.dim() == 2 else x", "x.atan()"),
    *("F.mse_loss(x, y) if x.shape == y.shape else x", "x.nan_to_num(0)", "x.pow(2).clamp(max=9)", "x.cos()"),
    *(
        "x.div(3, rounding_mode='floor')",
        "x.topk(1).values if x.dim() else x",
        "x.std(0, correction=0) if x.dim() else x",
    ),
]
INTEGER: list[Text] = [
    *("x | y", "x & y", "x ^ y", "~x", "x.clamp(0, 5)", "torch.maximum(x, y)", "torch.minimum(x, y)", "x.long() // 3"),
    *("x.long() % 3", "x.long() - y.long()", "-x.long()", "x.long().abs()", "x.long() << 1", "x.long() >> 1"),
    *("x.float().mean()", "x.argmax() if x.dtype == torch.int64 else x", "x.long().sign()", "x.to(torch.uint8)"),
    *("F.one_hot(x.long().abs() % 5, 5)[..., 0]", "x.to(torch.int32)", "torch.bincount(x.long().abs().flatten())"),
]
TABLE = {**dict.fromkeys(FLOATS, ANY + FLOAT), **dict.fromkeys(INTEGERS, ANY + INTEGER)}


def line_of(number: int, kind: str, count: int) -> Text:
    """A step as evenly spread as Hypothesis's numbers are not; x is a late result more often than an early one."""
    source = random.Random(f"{SEED} {kind} {number}")
    x, y = max(source.randrange(count), source.randrange(count)), source.randrange(count)
    words = source.choice(TABLE[kind])
    return re_names(words, x, y)


def re_names(words: Text, x: int, y: int) -> Text:
    out = []
    for i, c in enumerate(words):
        alone = not (words[i - 1 : i] or " ").isidentifier() and not (words[i + 1 : i + 2] or " ").isidentifier()
        out.append(f"t[{x}]" if c == "x" and alone else f"t[{y}]" if c == "y" and alone else c)
    return "".join(out)


def run(line: Text, names: dict[str, Any], tensors: list[Tensor]) -> Tensor | Exception:
    try:
        return eval(line, {**names, "t": tensors})
    except Exception as error:
        return error


def close(mine: Tensor, theirs: Tensor, loose: float) -> bool:
    """Whether the device's result is the CPU's, up to rounding; ``loose`` times that for a chain."""
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return False
    if not theirs.is_floating_point():
        return mine.cpu().equal(theirs)
    rtol, atol = (1e-5, 1e-5) if theirs.dtype == torch.float32 else (2e-2, 2e-2)
    return torch.allclose(mine.cpu(), theirs, rtol=rtol * loose, atol=atol * loose, equal_nan=True)


def run_program(kind: str, numbers: list[int], device: torch.device) -> None:
    names: dict[str, dict[str, Any]] = {}
    for where in ("cpu", str(device)):
        names[where] = {"D": where}
        exec(PREAMBLE, names[where])
    start = [f"fresh({n}, torch.{kind})" for n in range(2)]
    cpu, ours = ([run(line, names[where], []) for line in start] for where in ("cpu", str(device)))
    script = [f'D = "{device}"', PREAMBLE.strip(), f"t = [{', '.join(start)}]"]
    exact = kind not in FLOATS  # else small differences may be a step's whole result: a comparison, a floor
    for number in numbers:
        line = line_of(number, kind, len(cpu))
        script.append(f"t.append({line})")

        def check(truth: bool, what: str, *details: object) -> None:
            assert truth, "\n".join([f"{what} (seed {SEED}) after", "", *script, "", *map(repr, details)])

        expected = run(line, names["cpu"], cpu)
        alone = run(line, names[str(device)], [x.to(device) for x in cpu])
        chained = run(line, names[str(device)], ours)
        if isinstance(expected, Exception):
            script.pop()
            refused = isinstance(expected, NotImplementedError) or "not support" in str(expected)
            check(refused or isinstance(alone, Exception), "No error", line, expected, alone)
            continue
        for found, what in ((alone, "A wrong operator"), (chained, "A wrong chain")):
            check(isinstance(found, Tensor), what, found)
            check(found.dtype == expected.dtype and found.shape == expected.shape, what, expected, found)
        check(close(alone, expected, 1), "A wrong operator", expected, alone)
        if exact:
            check(close(chained, expected, 1), "A wrong chain", expected, chained)
        elif not close(chained, expected, 10):
            chained = alone  # rounding decided: go on from equal numbers
        cpu.append(expected)
        ours.append(chained)


@pytest.mark.usefixtures("exact_sizes")
@pytest.mark.parametrize("kind", TABLE)
@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(numbers=strategies.lists(strategies.integers(0, 1 << 40), min_size=3, max_size=8, unique=True))
def test_a_random_chain_gives_what_it_gives_on_the_cpu(kind: str, numbers: list[int], device: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_program(kind, numbers, device)
