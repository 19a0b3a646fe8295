"""Calls the rows that nothing else in ``collect.py`` reaches, and compares with the CPU.

python tests/chips/rest.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

import torch_pjrt

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def foreach() -> Iterator[Call]:
    """Every operator on lists, with each kind of argument that it takes."""
    x = [torch.rand(3, 4) + 0.5, torch.rand(5) + 0.5]
    numbers = [2.0, 3.0]
    forms: list[tuple[Any, ...]] = [
        (x,),
        (x, x),
        (x, 2.0),
        (x, numbers),
        (x, torch.tensor(2.0)),
        (x, x, x),
        (x, x, 0.5),
    ]
    for name in dir(torch):
        if not name.startswith("_foreach_"):
            continue
        f = getattr(torch, name)
        for form in forms:
            try:
                f(*tree_map_only(Tensor, Tensor.clone, form))
            except (RuntimeError, TypeError):
                continue
            yield f"{name} of {len(form)}", f, form


def others() -> Iterator[Call]:
    aten = torch.ops.aten
    image, volume, whole = torch.rand(1, 2, 6, 6), torch.rand(1, 2, 4, 4, 4), torch.arange(12).view(3, 4)
    plane = torch.rand(4, 5)
    yield "shift", lambda a, b: (a << b, a >> b), (whole, whole % 3)
    yield "_is_all_true", aten._is_all_true, (plane > 0,)
    yield "_is_any_true", aten._is_any_true, (plane > 0,)
    yield "_unsafe_index", aten._unsafe_index.Tensor, (plane, [torch.tensor([0, 2])])
    yield "bicubic", lambda t: F.interpolate(t, (4, 4), mode="bicubic", antialias=True), (image,)
    yield "exact3d", lambda t: F.interpolate(t, (3, 5, 6), mode="nearest-exact"), (volume,)
    yield "nearest3d", lambda t: F.interpolate(t, (3, 5, 6), mode="nearest"), (volume,)
    yield "all.dims", lambda t: (torch.all(t > 0.5, (0, 1)), torch.any(t > 0.5, (0, 1))), (plane,)
    yield "count_nonzero", lambda t: torch.count_nonzero(t, (0, 1)), (whole,)
    yield "fill", lambda t, v: t.clone().fill_(v), (plane, torch.tensor(3.0))
    yield "lerp", torch.lerp, (plane, plane + 1, plane)
    yield "median", lambda t: torch.median(t, 1).values, (plane,)
    yield "nll_loss2d", lambda t: F.nll_loss(t, torch.zeros(1, 6, 6, dtype=torch.int64, device=t.device)), (image,)
    yield "nonzero_static", lambda t: torch.nonzero_static(t, size=4), (whole,)
    yield "pads", lambda t: (F.pad(t, (1,) * 6, mode="reflect"), F.pad(t, (1,) * 6, mode="replicate")), (volume,)
    yield "sort", lambda t: torch.sort(t, stable=True), (plane,)
    yield "conj_physical.out", lambda t: torch.conj_physical(t, out=torch.empty_like(t)), (torch.complex(plane, plane),)
    yield "eye.out", lambda t: torch.eye(3, 4, out=torch.empty_like(t)), (torch.rand(3, 4),)
    yield "polygamma_", lambda t: t.clone().polygamma_(1), (plane + 1,)
    yield "lanczos", lambda t: aten._upsample_lanczos2d_aa(t.detach(), (4, 4), False, None, None), (image,)
    yield "unscale", unscale, ([plane, plane.flatten()], torch.tensor(0.5))
    yield "unique", lambda t: (torch.unique_consecutive(t, dim=0), aten.unique_dim_consecutive(t, 0)[0]), (whole,)
    yield "conj", lambda t: torch.complex(t, t).conj_physical().clone().conj_physical_(), (plane,)
    yield "eye", lambda t: torch.eye(3, 4, device=t.device), (plane,)
    yield "floor_divide_", lambda a, b: a.clone().floor_divide_(b), (whole, whole + 1)


def unscale(gradients: list[Tensor], factor: Tensor) -> list[Tensor]:
    """What a GradScaler does before an optimizer's step."""
    found = torch.zeros((), device=factor.device)
    mine = [g.detach().clone() for g in gradients]
    torch._amp_foreach_non_finite_check_and_unscale_(mine, found, factor)
    return [*mine, found]


def backward(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The results, and the gradient of what has one."""
    leaves = tree_map_only(Tensor, lambda t: t.detach().requires_grad_(t.is_floating_point()), args)
    out = f(*leaves)
    flat = [t for t in (out if isinstance(out, list | tuple) else [out]) if isinstance(t, Tensor) and t.requires_grad]
    if flat:
        sum(t.abs().sum() for t in flat).backward()
    return out, tree_map_only(Tensor, lambda t: t.grad, leaves)


def main() -> int:
    device = torch_pjrt.device_name()
    wrong = 0
    for calls, run in ((foreach(), lambda f, args: f(*args)), (others(), backward)):
        for name, f, args in calls:
            on_cpu = tree_map_only(Tensor, Tensor.clone, args)
            there = tree_map_only(Tensor, lambda t: t.to(device), args)
            in_place = name.split()[0].endswith("_")  # then the arguments count too
            expected, found = run(f, on_cpu), run(f, there)
            if in_place:
                expected, found = (expected, on_cpu), (found, there)
            try:
                torch.testing.assert_close(tree_map_only(Tensor, Tensor.cpu, found), expected, equal_nan=True)
            except AssertionError as error:
                print(f"{name}: {error}")
                wrong += 1
    for draw in (Tensor.random_, lambda t: t.random_(10), lambda t: t.random_(2, 5)):
        draw(torch.empty(3, 3, device=device))
    torch.randperm(7, device=device)
    torch.empty(3, 3, device=device).bernoulli_(torch.full((3, 3), 0.5, device=device))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
