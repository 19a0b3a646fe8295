"""What views, and what puts tensors together or moves their parts, do with sizes that change."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import Tensor

from torch_pjrt.bounded import (
    Bounded,
    Dim,
    Expr,
    Factor,
    Sym,
    Value,
    _all,
    _bound,
    _contiguous,
    _divides,
    _is_dynamic,
    _is_one,
    _merge,
    _Merged,
    _plain,
    expression,
)

__all__ = ["ViewRules"]

aten = torch.ops.aten


class ViewRules(Bounded):
    """A rule for each kind of view, for slices, joins and pads."""

    def op_permute(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, order = args
        return self.result(node, aten.permute.default(x.tensor, order), tuple(x.dims[i] for i in order))

    def op_transpose(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, a, b = args
        dims = list(x.dims)
        dims[a], dims[b] = dims[b], dims[a]
        return self.result(node, aten.transpose.int(x.tensor, a, b), tuple(dims))

    def op_t(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        return self.result(node, aten.t.default(args[0].tensor), args[0].dims[::-1])

    def op_unsqueeze(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, where = args
        where %= len(x.dims) + 1
        one = (Factor(sympy.Integer(1), 1),)
        return self.result(node, aten.unsqueeze.default(x.tensor, where), (*x.dims[:where], one, *x.dims[where:]))

    def op_squeeze(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x = args[0]
        which = range(len(x.dims)) if len(args) == 1 else args[1] if isinstance(args[1], list) else [args[1]]
        gone = {i % len(x.dims) for i in which if _is_one(x.dims[i])}
        dims = tuple(dim for i, dim in enumerate(x.dims) if i not in gone)
        return self.result(node, aten.view.default(_contiguous(x), [_bound(dim) for dim in dims]), dims)

    def op_expand(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, like = args[0], node.meta["val"]
        new = len(like.shape) - len(x.dims)
        dims = [
            self.dim(n, uniform=True)
            if i < new or (_is_one(x.dims[i - new]) and expression(n) != 1)
            else x.dims[i - new]
            for i, n in enumerate(like.shape)
        ]
        return self.result(node, aten.expand.default(x.tensor, [_bound(dim) for dim in dims]), tuple(dims))

    def op_view(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, like = args[0], node.meta["val"]
        if node.target is aten.view.dtype:
            self.refuse("has no rule for sizes that change")
        dims = self.regrouped(x, like)
        if dims is not None:
            return self.result(node, aten.view.default(_contiguous(x), [_bound(dim) for dim in dims]), dims)
        return self.relaid(x, self.dims(like))

    def regrouped(self, x: Value, like: Tensor) -> tuple[Dim, ...] | None:
        """The dimensions of a view that only takes factors together or apart; None for others."""
        factors = [f for dim in x.dims for f in dim if f.size != 1]
        dims: list[Dim] = []
        for n in like.shape:
            rest = expression(n)
            dim: list[Factor] = []
            while rest != 1:
                if not factors:
                    return None
                f = factors.pop(0)
                if _divides(f.size, rest):
                    dim.append(f)
                    rest = sympy.cancel(rest / f.size)
                elif _divides(rest, f.size) and (f.uniform or not _is_dynamic((f,))):
                    size = sympy.cancel(f.size / rest)
                    factors.insert(0, Factor(size, self.bound(size), f.uniform))
                    dim.append(Factor(rest, self.bound(rest), f.uniform))
                    rest = sympy.Integer(1)
                else:
                    return None
            dims.append(_merge(dim))
        return tuple(dims)

    op__unsafe_view = op_view
    op_reshape = op_view

    def op_repeat(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, times = args
        shape = [(Factor(sympy.Integer(1), 1),)] * (len(times) - len(x.dims)) + list(x.dims)
        split: list[int] = []
        wide: list[int] = []
        dims: list[Dim] = []
        for n, dim in zip(times, shape, strict=True):
            size = n.expr if isinstance(n, Sym) else sympy.Integer(n)
            factor = Factor(size, self.bound(size), uniform=_is_one(dim))
            split += [1, _bound(dim)]
            wide += [factor.bound, _bound(dim)]
            dims.append(_merge([f for f in (factor, *dim) if f.size != 1]))
        tensor = aten.expand.default(x.tensor.reshape(split), wide).reshape([_bound(dim) for dim in dims])
        return self.result(node, tensor, tuple(dims))

    def op_slice(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, start, _, step = _all(args, 5, 0, None, None, 1)
        dim %= len(x.dims)
        start = 0 if start is None else start
        out = self.dim(node.meta["val"].shape[dim])
        dims = (*x.dims[:dim], out, *x.dims[dim + 1 :])
        if not isinstance(start, Sym) and (start >= 0 or not _is_dynamic(x.dims[dim])):
            if not _is_dynamic(x.dims[dim]) and not _is_dynamic(out):
                return self.result(node, node.target(x.tensor, dim, start, *args[3:]), dims)
            if start == 0 and step == 1 and _plain(out) == _plain(x.dims[dim]):
                return Value(x.tensor, dims)
        if len(x.dims[dim]) > 1:
            raise _Merged(f"{self.user}: a part of merged dimensions")
        where = self.iota(_bound(out)) * step
        return self.result(node, self.take(x, dim, where + self.position(start, x.dims[dim])), dims)

    def position(self, at: Any, dim: Dim) -> Any:
        """A position, which counts from the end when it is negative."""
        if isinstance(at, Sym):
            if at.expr.is_nonnegative is False:
                return self.number(self.size(dim) + at.expr)
            return self.number(at.expr)
        if at < 0:
            return self.number(self.size(dim) + at)
        return at

    def take(self, x: Value, dim: int, where: Tensor) -> Tensor:
        return aten.index_select.default(x.tensor, dim, torch.clamp(where, min=0, max=_bound(x.dims[dim]) - 1))

    def op_select(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, dim, at = args
        dim %= len(x.dims)
        dims = (*x.dims[:dim], *x.dims[dim + 1 :])
        if not isinstance(at, Sym) and (at >= 0 or not _is_dynamic(x.dims[dim])):
            return self.result(node, aten.select.int(x.tensor, dim, at), dims)
        if len(x.dims[dim]) > 1:
            raise _Merged(f"{self.user}: a part of merged dimensions")
        where = aten.view.default(self.position(at, x.dims[dim]) + self.iota(1), [1])
        return self.result(node, aten.squeeze.dim(self.take(x, dim, where), dim), dims)

    def op_slice_scatter(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, source, dim, start, _, step = _all(args, 6, 0, None, None, 1)
        dim %= len(x.dims)
        where = self.iota(_bound(x.dims[dim])) - self.position(start or 0, x.dims[dim])
        inside = (where >= 0) & (where < self.number(self.size(source.dims[dim]) * step))
        if step != 1:
            inside = inside & (torch.remainder(where, step) == 0)
            where = torch.div(where, step, rounding_mode="floor")
        return self.put(node, x, source, dim, where, inside)

    def op_select_scatter(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, source, dim, at = args
        dim %= len(x.dims)
        one = (Factor(sympy.Integer(1), 1),)
        row = Value(aten.unsqueeze.default(source.tensor, dim), (*source.dims[:dim], one, *source.dims[dim:]))
        where = self.iota(_bound(x.dims[dim]))
        return self.put(node, x, row, dim, where * 0, where == self.position(at, x.dims[dim]))

    def put(self, node: torch.fx.Node, x: Value, source: Value, dim: int, where: Tensor, inside: Tensor) -> Value:
        dims = self.join([x.dims[:dim] + x.dims[dim + 1 :], source.dims[:dim] + source.dims[dim + 1 :]])
        inside = aten.view.default(inside, [-1 if i == dim else 1 for i in range(len(x.dims))])
        new = aten.where.self(inside, self.take(source, dim, where), x.tensor)
        return self.result(node, new, (*dims[:dim], x.dims[dim], *dims[dim:]))

    def op_constant_pad_nd(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x, pads, fill = _all(args, 3, 0)
        if isinstance(fill, Sym):
            self.refuse("a size that changes as a number")
        for i in range(len(pads) // 2):
            dim = len(x.dims) - 1 - i
            before, after = (expression(p.expr if isinstance(p, Sym) else p) for p in pads[2 * i : 2 * i + 2])
            if before == 0 and after == 0:
                continue
            if len(x.dims[dim]) > 1:
                raise _Merged(f"{self.user}: a part of merged dimensions")
            out = self.dim(node.meta["val"].shape[dim])
            where = self.iota(_bound(out)) - (int(before) if before.is_number else self.number(before))
            inside = (where >= 0) & (where < self.number(self.size(x.dims[dim])))
            inside = aten.view.default(inside, [-1 if j == dim else 1 for j in range(len(x.dims))])
            empty = aten.full.default([], fill, dtype=x.tensor.dtype, device="meta")
            x = Value(
                aten.where.self(inside, self.take(x, dim, where), empty), (*x.dims[:dim], out, *x.dims[dim + 1 :])
            )
        return self.result(node, x.tensor, x.dims)

    def op_cat(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        parts, dim = _all(args, 2, 0)
        parts = [p for p in parts if len(p.dims) == len(node.meta["val"].shape)]  # empty 1-d ones are left out
        dim %= len(parts[0].dims)
        others = self.join([p.dims[:dim] + p.dims[dim + 1 :] for p in parts])
        out = self.dim(node.meta["val"].shape[dim])
        dims = (*others[:dim], out, *others[dim:])
        dtype = node.meta["val"].dtype
        joined = aten.cat.default([p.tensor.to(dtype) for p in parts], dim)
        if any(_is_dynamic(p.dims[dim]) for p in parts[:-1]):
            if any(len(p.dims[dim]) > 1 for p in parts):
                raise _Merged(f"{self.user}: a part of merged dimensions")
            left, where, first = self.iota(_bound(out)), None, 0
            begin: Expr = sympy.Integer(0)
            for p in parts:  # where each position comes from
                at = left - (int(begin) if begin.is_number else self.number(begin)) + first
                real = left >= (int(begin) if begin.is_number else self.number(begin))
                where = at if where is None else torch.where(real, at, where)
                begin, first = begin + self.size(p.dims[dim]), first + _bound(p.dims[dim])
            assert where is not None
            joined = aten.index_select.default(joined, dim, torch.clamp(where, min=0, max=first - 1))
        return self.result(node, joined, dims)

    def op_split_with_sizes(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> list[Value]:
        x, sizes, dim = _all(args, 3, 0)
        dim %= len(x.dims)
        if _is_dynamic(x.dims[dim]) or any(isinstance(n, Sym) for n in sizes):
            self.refuse("the size of what is split changes")
        parts = aten.split_with_sizes.default(x.tensor, sizes, dim)
        return [Value(p, (*x.dims[:dim], self.dim(n), *x.dims[dim + 1 :])) for p, n in zip(parts, sizes, strict=True)]

    def op_flip(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
        x = args[0]
        tensor = x.tensor
        for i in args[1]:
            if len(x.dims[i]) > 1 and _is_dynamic(x.dims[i]):
                raise _Merged(f"{self.user}: merged dimensions")
            last = self.number(self.size(x.dims[i]) - 1) if _is_dynamic(x.dims[i]) else _bound(x.dims[i]) - 1
            tensor = self.take(Value(tensor, x.dims), i % len(x.dims), last - self.iota(_bound(x.dims[i])))
        return self.result(node, tensor, x.dims)
