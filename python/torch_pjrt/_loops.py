"""Higher-order operators as the two that have a program: ``cond`` and ``while_loop``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_pjrt import _decompose

__all__ = ["Interpreter", "refuse"]


def refuse(graph: torch.fx.Graph) -> None:
    """Raises where sizes that change would meet a higher-order operator, which has no rules for them."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise _decompose.Untraceable(f"{node.target.name()} of sizes that change")


class Interpreter(torch.fx.Interpreter):
    """Runs a graph of AOTAutograd to trace it: ``scan`` and ``map`` are loops, and subgraphs are run in place."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        higher = torch.ops.higher_order
        if target is higher.cond:
            condition, when_true, when_false, operands = args
            if not isinstance(condition, Tensor):
                return Interpreter(when_true if condition else when_false).run(*operands)
            return _decompose.region(
                "cond", [Interpreter(when_true).run, Interpreter(when_false).run], operands, condition
            )
        if target is higher.while_loop:
            condition, body, carried, others = args
            if not all(isinstance(x, Tensor) for x in carried):
                raise _decompose.Untraceable("while_loop with a number that it counts")
            return _decompose.region(
                "while_loop", [Interpreter(condition).run, Interpreter(body).run], [*carried, *others]
            )
        if target is higher.scan:
            combine, carried, xs, others = args
            return _scan(combine, list(carried), list(xs), list(others))
        if target is higher.map_impl:
            part, xs, others = args
            return _scan(part, [], list(xs), list(others))
        if target is higher.invoke_subgraph:
            part, _, *operands = args
            return Interpreter(part).run(*operands)
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise _decompose.Untraceable(f"{target.name()} has no program")
        return super().call_function(target, args, kwargs)


def _scan(
    part: torch.fx.GraphModule, carried: Sequence[Tensor], xs: Sequence[Tensor], others: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """``part(*carried, *one of each xs, *others)`` gives the next of ``carried`` and one of each result."""
    aten = torch.ops.aten
    length = xs[0].shape[0]
    output = next(node for node in part.graph.nodes if node.op == "output")
    made = [node.meta["val"] for node in output.args[0][len(carried) :]]
    device = xs[0].device
    results = [torch.zeros((length, *one.shape), dtype=one.dtype, device=device) for one in made]
    if length == 0:
        return (*carried, *results)

    def split(values: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        number, rest = values[0], values[1:]
        ends = len(carried), len(carried) + len(results)
        return number, rest[: ends[0]], rest[ends[0] : ends[1]], rest[ends[1] :]

    def body(*values: Tensor) -> tuple[Tensor, ...]:
        number, before, so_far, given = split(values)
        at = aten.view.default(number, [1])
        ones = [aten.squeeze.dim(aten.index_select.default(x, 0, at), 0) for x in given[: len(xs)]]
        now = Interpreter(part).run(*before, *ones, *given[len(xs) :])
        after = now[: len(carried)]
        more = [
            aten.index_copy.default(all_, 0, at, aten.unsqueeze.default(one, 0))
            for all_, one in zip(so_far, now[len(carried) :], strict=True)
        ]
        return (aten.add.Tensor(number, 1), *after, *more)

    start = torch.zeros((), dtype=torch.int64, device=device)
    parts = [lambda *values: aten.lt.Scalar(values[0], length), body]
    end = _decompose.region("while_loop", parts, [start, *carried, *results, *xs, *others])
    return tuple(end[1:])
