"""Positions that a compiled function takes from its arguments: no program can raise, so they are looked at before.

As in eager (``csrc/eager/bounds``), and under the same condition: the values are ready, in memory that the host sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_pjrt import _decompose

__all__ = ["Positions", "find", "suspicious"]


class Positions(NamedTuple):
    """An argument with positions, which are in ``[low, high)``, or ``also``."""

    argument: int
    low: int
    high: int
    also: int | None


def find(graph: torch.fx.Graph) -> tuple[Positions, ...]:
    """Of a graph of AOTAutograd: index arguments of operators that are arguments of the graph, or views of them."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    found: dict[Positions, None] = {}
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for index, low, high, also in _taken(node):
            at = _origin(index)
            if at in placeholders and isinstance(high, int):
                found[Positions(placeholders.index(at), low, high, also)] = None
    return tuple(found)


def suspicious(positions: Sequence[Positions], args: Sequence[Any]) -> bool:
    """Whether some position is certainly out of range: the graph's calls, one by one, then raise PyTorch's error."""
    return any(torch.ops.tpj.has_outside.default(args[p.argument], p.low, p.high, p.also) for p in positions)


def _taken(node: torch.fx.Node) -> list[tuple[Any, int, Any, int | None]]:
    """The index tensors of a call and their ranges."""
    name, args = node.target._schema.name.removeprefix("aten::"), node.args
    if not args or not isinstance(args[0], torch.fx.Node) or not isinstance(args[0].meta.get("val"), Tensor):
        return []
    shape = args[0].meta["val"].shape
    if name == "embedding":
        return [(args[1], 0, shape[0], None)]
    if name in ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add"):
        return [(args[2], 0, shape[args[1]] if len(shape) else 1, None)]
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        return [(args[1], 0, shape[0 if len(shape) == 1 else 1], args[4])]
    if name in ("index", "index_put", "_unsafe_index"):
        return [(x, -shape[i], shape[i], None) for i, x in enumerate(args[1]) if x is not None and _is_integer(x)]
    return []


def _is_integer(node: torch.fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.int64, torch.int32)


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """Where a node's values come from unchanged."""
    same = ("clone", "detach", "alias", "lift_fresh_copy")
    while True:
        node, way = _decompose.base_of(node)
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.name.removeprefix("aten::") in same:
            node = node.args[0]
        elif not way:
            return node
