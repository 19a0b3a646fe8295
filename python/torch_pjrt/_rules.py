"""What each kind of operator does with sizes that change (``torch_pjrt/bounded.py``)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from torch_pjrt._view_rules import ViewRules
from torch_pjrt.bounded import (
    Dim,
    Factor,
    Sym,
    Value,
    _all,
    _bound,
    _is_dynamic,
    _is_dynamic_call,
    _is_leaf,
    _is_uniform,
    _leaves,
    _Merged,
    _on_meta,
    expression,
    symbolic,
)

__all__ = ["Rules", "decompositions"]

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For AOTAutograd: the rest is what this module has rules for."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    more = [
        aten.native_dropout,
        aten.native_batch_norm,
        aten._native_batch_norm_legit,
        aten._native_batch_norm_legit_functional,
        aten._native_batch_norm_legit_no_training,
        aten.native_group_norm,
        aten.linalg_vector_norm,
    ]
    whole = (aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward, aten.nll_loss2d_backward)
    table = dict(core_aten_decompositions()) | dict(get_decompositions(more))
    return {op: f for op, f in table.items() if getattr(op, "overloadpacket", None) not in whole}


class Rules(ViewRules):
    """A rule for each kind of operator: what it does to dimensions, and where padding has to be masked."""

    # Calls.

    def call(self, node: torch.fx.Node, found: dict[torch.fx.Node, Any]) -> Any:
        def value(x: Any) -> Any:
            if isinstance(x, torch.fx.Node):
                if found[x] is None:
                    return symbolic(x.meta["val"])
                return found[x]
            if isinstance(x, list | tuple):
                return [value(item) for item in x]
            return x

        args = [value(a) for a in node.args]
        kwargs = {k: value(v) for k, v in node.kwargs.items()}
        if node.target is operator.getitem:
            return args[0][args[1]]
        op = node.target
        if not isinstance(op, torch._ops.OpOverload):
            self.refuse("has no rule")
        name = op._schema.name.removeprefix("aten::")
        rule: Callable[..., Any] | None = getattr(self, f"op_{name}", None)
        if rule is None and not _is_dynamic_call(node):
            return self.plain(node, args, kwargs)
        if rule is None and (torch.Tag.pointwise in op.tags or name in _POINTWISE):
            rule = self.pointwise
        if rule is None and name in _ROWWISE:
            rule = self.rowwise
        if rule is None:
            return self.refuse("has no rule for sizes that change")
        try:
            return rule(node, args, kwargs)
        except _Merged:  # merged dimensions as one prefix
            args, kwargs = torch.utils._pytree.tree_map(self.simple, (args, kwargs), is_leaf=_is_leaf)
            return rule(node, args, kwargs)

    def plain(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call in which no size changes."""
        call = torch.utils._pytree.tree_map(
            lambda x: x.tensor if isinstance(x, Value) else x, (args, kwargs), is_leaf=_is_leaf
        )
        results = node.target(*call[0], **_on_meta(call[1]))
        if isinstance(results, Tensor):
            return self.result(node, results)
        metas = node.meta["val"]
        return [Value(r, self.dims(m)) if isinstance(r, Tensor) else r for r, m in zip(results, metas, strict=True)]

    def pointwise(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        like = node.meta["val"]
        if not isinstance(like, Tensor):
            self.refuse("has no rule for sizes that change")

        def tensor(x: Any) -> Any:
            if isinstance(x, Value):
                return x.tensor
            return self.scalar(x, like.dtype) if isinstance(x, Sym) else x

        values = [x for x in _leaves((args, kwargs)) if isinstance(x, Value)]
        dims = self.join([v.dims for v in values])
        has_sym = any(isinstance(x, Sym) for x in _leaves((args, kwargs)))
        op = getattr(aten, node.target._schema.name.removeprefix("aten::")) if has_sym else node.target
        return self.result(node, op(*map(tensor, args), **{k: tensor(v) for k, v in _on_meta(kwargs).items()}), dims)

    def scalar(self, x: Sym, like: torch.dtype) -> Tensor:
        if x.kind is float:
            return self.number(x.expr, torch.float64 if like == torch.float64 else torch.float32)
        return self.number(x.expr, torch.bool if x.kind is bool else torch.int64)

    def rowwise(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Only leading dimensions change, and each row is a matter of its own."""
        x = args[0]
        name = node.target._schema.name.removeprefix("aten::")
        if name in ("cumsum", "cumprod") and len(x.dims[args[1]]) > 1:
            raise _Merged(f"{node.target}: a sum along merged dimensions")
        static = _ROWWISE[name](x, args)
        if any(_is_dynamic(x.dims[i]) for i in static):
            self.refuse(f"the size of dimension {list(static)} changes")
        if any(isinstance(v, Sym) for v in _leaves((args, kwargs))):
            self.refuse("a size that changes as a number")
        call = [a.tensor if isinstance(a, Value) else a for a in args]
        results = node.target(*call, **_on_meta(kwargs))

        def dims(like: Tensor) -> tuple[Dim, ...]:
            same = len(like.shape) == len(x.dims)
            return tuple(
                x.dims[i] if same and expression(n) == self.size(x.dims[i]) else self.dim(n)
                for i, n in enumerate(like.shape)
            )

        if isinstance(results, Tensor):
            return self.result(node, results, dims(node.meta["val"]))
        return [Value(r, dims(m)) for r, m in zip(results, node.meta["val"], strict=True)]

    def op__to_copy(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.result(node, aten._to_copy.default(args[0].tensor, dtype=node.meta["val"].dtype), args[0].dims)

    def op_clone(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.result(
            node, aten.clone.default(args[0].tensor, memory_format=torch.contiguous_format), args[0].dims
        )

    # Factories.

    def op_full(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, args[1])

    def op_scalar_tensor(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, args[0])

    def op_full_like(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, args[1])

    def op_new_full(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, args[2])

    def op_zeros(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, 0)

    op_zeros_like = op_new_zeros = op_empty = op_empty_like = op_new_empty = op_empty_strided = op_zeros

    def op_ones(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.filled(node, 1)

    op_ones_like = op_new_ones = op_ones

    def filled(self, node: torch.fx.Node, fill: Any) -> Value:
        like = node.meta["val"]
        dims = self.dims(like, uniform=True)
        bounds = [_bound(dim) for dim in dims]
        if isinstance(fill, Sym):
            number = self.scalar(fill, like.dtype) + torch.zeros([], dtype=torch.int64, device="meta")
            return self.result(node, number.to(like.dtype).expand(bounds).clone(), dims)
        return self.result(node, aten.full.default(bounds, fill, dtype=like.dtype, device="meta"), dims)

    def op_arange(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        like = node.meta["val"]
        start, step = (args[0], 1) if len(args) == 2 else (0, 1) if len(args) == 1 else (args[0], args[2])
        (dim,) = self.dims(like)
        if isinstance(start, Sym) or isinstance(step, Sym):
            tensor = aten.arange.default(_bound(dim), dtype=like.dtype, device="meta")
            step = self.scalar(step, like.dtype) if isinstance(step, Sym) else step
            start = self.scalar(start, like.dtype) if isinstance(start, Sym) else start
            return self.result(node, tensor * step + start, (dim,))
        end = start + step * _bound(dim)
        return self.result(node, aten.arange.start_step(start, end, step, dtype=like.dtype, device="meta"), (dim,))

    def random(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        like = node.meta["val"]
        dims = self.dims(like)
        made = {"dtype": like.dtype, "device": "meta"}
        bounds = [_bound(dim) for dim in dims]
        name = node.target._schema.name.removeprefix("aten::").removesuffix("_like")
        limits = args[1:]
        if any(isinstance(x, Sym) for x in limits) or name not in ("rand", "randn", "randint"):
            self.refuse("has no rule for sizes that change")
        if name == "randint":
            low, high = [0, *limits[-1:]] if len(limits) < 2 else limits
            return self.result(node, aten.randint.low(low, high, bounds, **made), dims)
        return self.result(node, getattr(aten, name).default(bounds, **made), dims)

    op_rand_like = op_randn_like = op_randint_like = random

    def op_rand(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.random(node, [None], kwargs)

    op_randn = op_rand

    # Reductions.

    def reduce(self, node: torch.fx.Node, args: list[Any], fill: Any, **more: Any) -> Value:
        x, which, keep = self.reduced(args)
        kind = {"dtype": node.meta["val"].dtype} if more.pop("typed", False) else {}
        op = node.target.overloadpacket
        tensor = op(self.masked(x, which, fill), which, keep, **kind) if which or x.dims else op(x.tensor, **kind)
        return self.result(node, tensor, self.kept(x, which, keep))

    def reduced(self, args: list[Any]) -> tuple[Value, list[int], bool]:
        x, which, keep = _all(args, 3, None, False)
        which = [which] if isinstance(which, int) else list(which or range(len(x.dims)))
        return x, [i % max(len(x.dims), 1) for i in which], bool(keep)

    def kept(self, x: Value, which: Sequence[int], keep: bool) -> tuple[Dim, ...]:
        one = (Factor(sympy.Integer(1), 1),)
        return tuple(one if i in which else dim for i, dim in enumerate(x.dims) if keep or i not in which)

    def op_sum(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.reduce(node, args, 0, typed=True)

    def op_amax(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.reduce(node, args, _least(args[0].tensor.dtype))

    def op_amin(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.reduce(node, args, _most(args[0].tensor.dtype))

    def op_any(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.reduce(node, args, 0)

    def op_all(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.reduce(node, args, 1)

    def op_prod(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, which, keep = self.reduced(args)
        full = self.masked(x, which, 1)
        made = {"dtype": node.meta["val"].dtype}
        if len(args) == 1:
            return self.result(node, aten.prod.default(full, **made), ())
        return self.result(node, aten.prod.dim_int(full, which[0], keep, **made), self.kept(x, which, keep))

    def op_max(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme(node, args, kwargs, aten.amax.default, _least)

    def op_min(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme(node, args, kwargs, aten.amin.default, _most)

    def extreme(
        self,
        node: torch.fx.Node,
        args: list[Any],
        kwargs: dict[str, Any],
        op: Any,
        fill: Callable[[torch.dtype], Any],
    ) -> Any:
        if len(args) > 1 and isinstance(args[1], Value):
            return self.pointwise(node, args, kwargs)
        x, which, keep = self.reduced(args)
        full = self.masked(x, which, fill(x.tensor.dtype))
        if isinstance(node.meta["val"], Tensor):
            return self.result(node, op(full, which), ())
        if any(len(x.dims[i]) > 1 and _is_dynamic(x.dims[i]) for i in which):
            raise _Merged(f"{self.user}: positions in merged dimensions")
        dims = self.kept(x, which, keep)
        return [Value(r, dims) for r in node.target(full, args[1], keep)]

    def op_argmax(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.position_of(node, args, _least(args[0].tensor.dtype))

    def op_argmin(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.position_of(node, args, _most(args[0].tensor.dtype))

    def position_of(self, node: torch.fx.Node, args: list[Any], fill: Any) -> Value:
        x, which, keep = self.reduced(args)
        moving = [i for i in which if _is_dynamic(x.dims[i])]
        if any(len(x.dims[i]) > 1 for i in moving) or (moving and len(which) > 1):
            raise _Merged(f"{self.user}: positions in merged dimensions")
        return self.result(node, node.target(self.masked(x, which, fill), *args[1:]), self.kept(x, which, keep))

    def count(self, x: Value, which: Sequence[int], minus: float = 0) -> Tensor | float:
        """How many elements a reduction has."""
        size = math.prod((self.size(x.dims[i]) for i in which), start=sympy.Integer(1))
        if size.is_number:
            return max(float(size) - minus, 0)
        dtype = torch.float64 if x.tensor.dtype in (torch.float64, torch.complex128) else torch.float32
        return torch.clamp(self.number(size, dtype) - minus, min=0)

    def op_mean(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, which, keep = self.reduced(args)
        total = self.total(Value(x.tensor.to(node.meta["val"].dtype), x.dims), which)
        return self.result(node, self.shaped(total / self.count(x, which), x, which, keep), self.kept(x, which, keep))

    def total(self, x: Value, which: Sequence[int]) -> Tensor:
        """The sum in float32 or wider, with the reduced dimensions."""
        tensor = self.masked(x, which, 0)
        wide = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
        return aten.sum.dim_IntList(tensor, list(which), True, dtype=wide)

    def shaped(self, tensor: Tensor, x: Value, which: Sequence[int], keep: bool) -> Tensor:
        return aten.view.default(tensor, [_bound(dim) for dim in self.kept(x, which, keep)])

    def moments(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> tuple[Value, Value]:
        correction, keep = kwargs.get("correction", 1), kwargs.get("keepdim", False)
        if isinstance(correction, Sym):
            self.refuse("a size that changes as a number")
        x, which, _ = self.reduced(args[:2])
        mean = self.total(x, which) / self.count(x, which)
        apart = (x.tensor - mean).square()
        var = self.total(Value(apart, x.dims), which) / self.count(x, which, 1 if correction is None else correction)
        dims = self.kept(x, which, keep)
        return tuple(Value(self.shaped(r.to(x.tensor.dtype), x, which, keep), dims) for r in (var, mean))  # type: ignore[return-value]

    def op_var(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.moments(node, args, kwargs)[0]

    def op_var_mean(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> tuple[Value, Value]:
        return self.moments(node, args, kwargs)

    def softmax(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x = args[0]
        tensor = self.masked(x, [args[1]], -math.inf)
        return self.result(node, node.target(tensor, *args[1:]), x.dims)

    op__softmax = op__log_softmax = softmax

    # Products.

    def zeroed(self, x: Value, dim: int) -> Tensor:
        return self.masked(x, [dim], 0)

    def product(self, node: torch.fx.Node, a: Value, b: Value, run: Callable[[Tensor, Tensor], Tensor]) -> Value:
        batch = self.join([a.dims[:-2], b.dims[:-2]])
        self.join([a.dims[-1:], b.dims[-2:-1]])
        tensor = run(self.zeroed(a, -1), self.zeroed(b, -2))
        return self.result(node, tensor, (*batch, a.dims[-2], b.dims[-1]))

    def op_mm(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.product(node, args[0], args[1], aten.mm.default)

    def op_bmm(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.product(node, args[0], args[1], aten.bmm.default)

    def op_addmm(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        bias, a, b = args
        out = self.product(node, a, b, lambda x, y: aten.addmm.default(bias.tensor, x, y, **kwargs))
        self.join([bias.dims, out.dims])
        return out

    op_baddbmm = op_addmm

    def convolved(self, x: Value, weight: Value, others: Sequence[Value], groups: Any) -> tuple[Tensor, ...]:
        """The operands with zeros as padding: channels are summed over as a product's middle is."""
        spatial = range(2, len(x.dims))
        if any(len(v.dims[i]) > 1 for v in (x, *others) for i in spatial):
            raise _Merged(f"{self.user}: merged dimensions")
        if any(_is_dynamic(weight.dims[i]) for i in spatial):
            self.refuse("the kernel's size changes")
        if groups != 1 and any(_is_dynamic(dim) for dim in (x.dims[1], *weight.dims[:2])):
            self.refuse("the number of channels in a group changes")
        return tuple(self.masked(v, range(len(v.dims)), 0) for v in (x, weight, *others))

    def op_convolution(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, weight, bias = args[:3]
        tensor, kernel = self.convolved(x, weight, (), args[8])
        out = aten.convolution.default(tensor, kernel, bias and bias.tensor, *args[3:])
        return self.result(node, out, (x.dims[0], *self.dims(node.meta["val"])[1:]))

    def op_convolution_backward(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        grad, x, weight = args[:3]
        self.join([grad.dims[:1], x.dims[:1]])
        tensor, kernel, above = self.convolved(x, weight, (grad,), args[9])
        results = aten.convolution_backward.default(above, tensor, kernel, *args[3:])
        dims = [x.dims, weight.dims, grad.dims[1:2]]
        return [Value(r, d) if isinstance(r, Tensor) else None for r, d in zip(results, dims, strict=True)]

    # In order.

    def sorted(self, x: Value, dim: int, descending: bool) -> list[Value]:
        """Padding comes last, after what is equal to it: the sort is stable."""
        if len(x.dims[dim]) > 1:
            raise _Merged(f"{self.user}: merged dimensions in order")
        dtype = x.tensor.dtype
        last = _least(dtype) if descending else math.nan if dtype.is_floating_point else _most(dtype)
        made = aten.sort.stable(self.masked(x, [dim], last), stable=True, dim=dim, descending=descending)
        return [Value(t, x.dims) for t in made]

    def op_sort(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> list[Value]:
        x, dim, descending = _all(args, 3, -1, False)
        return self.sorted(x, kwargs.get("dim", dim), kwargs.get("descending", descending))

    def op_topk(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> list[Value]:
        x, k, dim, largest, _ = _all(args, 5, -1, True, True)
        if isinstance(k, Sym):
            self.refuse("a size that changes as a number")
        dim %= len(x.dims)
        made = self.sorted(x, dim, largest)
        dims = (*x.dims[:dim], self.dim(k), *x.dims[dim + 1 :])
        return [Value(aten.slice.Tensor(v.tensor, dim, 0, k), dims) for v in made]

    # Losses.

    def targets(self, x: Value, target: Value, ignore: int) -> tuple[Tensor, Tensor]:
        """Padding is what the loss ignores."""
        classes = 1 if len(x.dims) > 1 else 0
        if _is_dynamic(x.dims[classes]):
            self.refuse("the number of classes changes")
        self.join([x.dims[:classes] + x.dims[classes + 1 :], target.dims])
        others = [i for i in range(len(x.dims)) if i != classes]
        return self.masked(x, others, 0), self.masked(target, range(len(target.dims)), ignore)

    def op_nll_loss_forward(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> list[Value]:
        x, target, weight, reduction, ignore = args
        made = node.target(*self.targets(x, target, ignore), weight and weight.tensor, reduction, ignore)
        return [Value(made[0], () if reduction else target.dims), Value(made[1], ())]

    op_nll_loss2d_forward = op_nll_loss_forward

    def op_nll_loss_backward(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        grad, x, target, weight, reduction, ignore, total = args
        full = self.masked(grad, range(len(grad.dims)), 0)
        given = self.targets(x, target, ignore)
        made = node.target(full, *given, weight and weight.tensor, reduction, ignore, total.tensor)
        return self.result(node, made, x.dims)

    op_nll_loss2d_backward = op_nll_loss_backward

    # By position.

    def op_embedding(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        table, which = args[:2]
        if _is_dynamic(table.dims[0]):
            self.refuse("the size of the table changes")
        return self.result(node, aten.embedding.default(table.tensor, which.tensor), (*which.dims, *table.dims[1:]))

    def bag_starts(self, which: Value, offsets: Value) -> Tensor:
        """Where bags begin; one more begins behind the last real position, and takes the padding."""
        length, like = which.dims[0], offsets.tensor
        count = aten.full.default([], _bound(length), dtype=like.dtype, device="meta")
        if _is_dynamic(length):
            count = self.number(self.size(length), like.dtype)
        if _is_dynamic(offsets.dims[0]):
            like = aten.where.self(self.mask(offsets.dims[0]), like, count)
        return aten.cat.default([like, aten.view.default(count, [1])])

    def of_bags(self, x: Value, starts: Tensor) -> Tensor:
        """What there is of each bag, and 0 of those that take padding."""
        more = x.tensor.new_zeros((starts.shape[0] - x.tensor.shape[0], *x.tensor.shape[1:]))
        return aten.cat.default([self.masked(x, range(len(x.dims)), 0), more])

    def op__embedding_bag(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> list[Value]:
        table, which, offsets, *rest = _all(args, 9, False, 0, False, None, False, -1)
        scale, mode, sparse, weights, _, padding = rest
        if _is_dynamic(table.dims[0]):
            self.refuse("the size of the table changes")
        starts = self.bag_starts(which, offsets)
        given = self.masked(which, [0], 0)
        weights = weights and weights.tensor
        made = node.target(table.tensor, given, starts, scale, mode, sparse, weights, False, padding)
        dims = [self.dims(like) for like in node.meta["val"]]
        return [Value(aten.slice.Tensor(t, 0, 0, _bound(d[0])), d) for t, d in zip(made, dims, strict=True)]

    op__embedding_bag_forward_only = op__embedding_bag

    def op__embedding_bag_backward(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        grad, which, offsets, bags, sizes, largest, count, scale, mode, sparse, weights, padding = _all(args, 12, -1)
        if isinstance(count, Sym) or (scale and _is_dynamic(which.dims[0])):
            self.refuse("the size of the table changes, or positions are counted")
        starts = self.bag_starts(which, offsets)
        made = node.target(
            self.of_bags(grad, starts),
            self.masked(which, [0], 0),
            starts,
            bags.tensor,
            self.of_bags(sizes, starts),
            self.of_bags(largest, starts) if mode == 2 else largest.tensor,
            count,
            scale,
            mode,
            sparse,
            weights and weights.tensor,
            padding,
        )
        return self.result(node, made, (self.dim(count), *grad.dims[1:]))

    def op__embedding_bag_per_sample_weights_backward(
        self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]
    ) -> Value:
        grad, table, which, offsets, bags, mode, padding = _all(args, 7, -1)
        if _is_dynamic(table.dims[0]):
            self.refuse("the size of the table changes")
        starts, given = self.bag_starts(which, offsets), self.masked(which, [0], 0)
        rows = self.masked(table, [1], 0)
        made = node.target(self.of_bags(grad, starts), rows, given, starts, bags.tensor, mode, padding)
        return self.result(node, made, which.dims)

    def op_index_select(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, which = args
        dim %= len(x.dims)
        if len(x.dims[dim]) > 1 and _is_dynamic(x.dims[dim]):
            raise _Merged(f"{self.user}: positions in merged dimensions")
        tensor = aten.index_select.default(x.tensor, dim, which.tensor)
        return self.result(node, tensor, (*x.dims[:dim], *which.dims, *x.dims[dim + 1 :]))

    def op_gather(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, which = args[:3]
        self.along(x, which, dim)
        return self.result(node, aten.gather.default(x.tensor, dim, which.tensor), which.dims)

    def along(self, x: Value, which: Value, dim: int) -> Dim:
        """The other dimensions agree; the one along which positions count."""
        dim %= len(x.dims)
        if len(x.dims[dim]) > 1 and _is_dynamic(x.dims[dim]):
            raise _Merged(f"{self.user}: positions in merged dimensions")
        for i, (a, b) in enumerate(zip(x.dims, which.dims, strict=True)):
            if i != dim and (_is_dynamic(a) or _is_dynamic(b)):
                self.join([(a,), (b,)])
        return x.dims[dim]

    def written(self, node: torch.fx.Node, x: Value, which: Value, dim: int, tensor: Tensor) -> Value:
        dim %= len(x.dims)
        dims = [b if _is_uniform(a) and _bound(a) == _bound(b) else a for a, b in zip(x.dims, which.dims, strict=True)]
        return self.result(node, tensor, (*dims[:dim], x.dims[dim], *dims[dim + 1 :]))

    def op_scatter(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, which, source = args[:4]
        to = self.along(x, which, dim)
        if any(isinstance(a, Sym) for a in args) or kwargs:
            self.refuse("has no rule for sizes that change")
        nowhere = self.masked(which, [dim], _bound(to))  # out of range: left out
        call = source.tensor if isinstance(source, Value) else source
        return self.written(node, x, which, dim, node.target(x.tensor, dim, nowhere, call))

    def op_scatter_add(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, which, source = args
        self.along(x, which, dim)
        add = self.masked(Value(source.tensor, which.dims), [dim], 0)
        return self.written(node, x, which, dim, node.target(x.tensor, dim, self.masked(which, [dim], 0), add))

    def indices(self, x: Value, given: list[Any]) -> tuple[list[Tensor | None], tuple[Dim, ...], int]:
        """Positions without those that count from the end, their dimensions, and where those go."""
        at = [i for i, which in enumerate(given) if which is not None]
        if any(given[i].tensor.dtype in (torch.bool, torch.uint8) for i in at):
            self.refuse("a mask as a position")
        where: list[Tensor | None] = [None if w is None else w.tensor for w in given]
        for i in at:
            if not _is_dynamic(x.dims[i]):
                continue
            if len(x.dims[i]) > 1:
                raise _Merged(f"{self.user}: positions in merged dimensions")
            which = given[i].tensor
            where[i] = torch.where(which < 0, which + self.number(self.size(x.dims[i])), which)
        first = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
        return where, self.join([given[i].dims for i in at]), first

    def op_index(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, given = args
        where, dims, first = self.indices(x, given)
        rest = [dim for i, dim in enumerate(x.dims) if i >= len(given) or given[i] is None]
        tensor = aten.index.Tensor(x.tensor, where)
        return self.result(node, tensor, (*rest[:first], *dims, *rest[first:]))

    op__unsafe_index = op_index

    def op_index_put(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, given, source, accumulate = _all(args, 4, False)
        where, dims, first = self.indices(x, given)
        rest = [dim for i, dim in enumerate(x.dims) if i >= len(given) or given[i] is None]
        to = (*rest[:first], *dims, *rest[first:])
        self.join([source.dims, to])
        padded = [i for i, dim in enumerate(dims) if _is_dynamic(dim)]
        if padded:  # a write of padding goes out of range, and is left out
            k = next(i for i, w in enumerate(where) if w is not None)
            which = where[k]
            assert which is not None
            which = aten.expand.default(which, [_bound(dim) for dim in dims])
            where[k] = self.masked(Value(which, dims), padded, _bound(x.dims[k]))
        if any(_is_dynamic(dim) for dim in dims) and accumulate:
            full = Value(aten.expand.default(source.tensor, [_bound(dim) for dim in to]), to)
            source = Value(self.masked(full, range(len(to)), 0), to)
        return self.result(node, node.target(x.tensor, where, source.tensor, accumulate), x.dims)

    op__unsafe_index_put = op_index_put


def _last(x: Value, args: list[Any]) -> list[int]:
    return list(range(len(x.dims) - len(args[1]), len(x.dims)))


# Operators that are element by element and do not say so.
_POINTWISE = {
    "alias",
    "detach",
    "lift_fresh_copy",
    "clamp",
    "where",
    "masked_fill",
    "bernoulli",
    "_conj",
    "real",
    "imag",
}

# Operators of which each row is a matter of its own: which dimensions have to stay.
_ROWWISE: dict[str, Callable[[Value, list[Any]], Sequence[int]]] = {
    "native_layer_norm": _last,
    "cumsum": lambda x, args: [],
    "cumprod": lambda x, args: [],
    "avg_pool2d": lambda x, args: range(1, len(x.dims)),
    "max_pool2d_with_indices": lambda x, args: range(1, len(x.dims)),
    "_adaptive_avg_pool2d": lambda x, args: range(1, len(x.dims)),
}


def _least(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _most(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return True
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max
