"""Eager calls whose sizes change from step to step: where they are, and which sizes change.

The core asks here before it compiles a program for a call (``csrc/eager/changing.h``). Calls belong to one *place* when
they come from one line and have the same operator, dtypes, numbers of dimensions and arguments that are no sizes. When
a place had other sizes in two earlier steps (between steps, data comes from the host or goes there), those that change
get the bounds 16, 32, 64, ..., and a program by the rules of ``torch.compile`` serves them all (``_changing.py``).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_pjrt import _C, _decompose

__all__ = ["Given", "Operator", "call", "is_size", "kinds", "memory_order"]

aten = torch.ops.aten
_STEPS = 2  # in which a place had other sizes
_LARGE = 1 << 20  # elements: from here on a program that computes on padding has to be worth it
_STEPS_OF_LARGE = 8
_SETTLED = 256  # steps in a row with the same call: it has changed for the last time
_MOST_NUMBERS = 2  # that change independently; more are those of another layer or model
_MOST_PLACES = 1 << 16

_lock = threading.RLock()


class Operator(NamedTuple):
    """What is called for an operator: a function of the arguments without those that out= gives."""

    run: Callable[..., Any]
    takes: int  # so many arguments
    kinds: tuple[str, ...]  # of all arguments: number, sizes, other
    written: tuple[int, ...]


@cache
def _operator(name: str) -> Operator | None:
    if not name.startswith("aten::"):
        return None
    op = _decompose._find(name)
    arguments = op._schema.arguments
    written = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)
    lists = any("List" in str(a.type) for a in (*op._schema.returns, *(arguments[i] for i in written)))
    if torch.Tag.nondeterministic_seeded in op.tags or lists:
        return None
    sizes = set(re.findall(r"SymInt(?:\[\d*\])?\??\s+(\w+)", str(op._schema)))
    kinds = [
        "sizes" if a.name in sizes else "ScalarType" if "ScalarType" in str(a.real_type) else "" for a in arguments
    ]
    if name == "aten::copy_":
        return Operator(lambda to, source, _: source.to(to.dtype).expand(to.shape), 3, tuple(kinds), written)
    if name == "aten::arange.start_out":

        def arange(start: Any, end: Any, step: Any, out: Tensor) -> Tensor:
            return (aten.arange.default(out.shape[0], dtype=torch.int64, device=out.device) * step + start).to(
                out.dtype
            )

        return Operator(arange, 4, ("sizes", "sizes", "sizes", ""), written)
    try:
        functional, count = _decompose._functional(op)
    except _decompose.Untraceable:
        return None
    named = [a.name for a in functional._schema.arguments if a.kwarg_only]
    plain = count - len(named)

    def run(*args: Any) -> Any:
        return functional(*args[:plain], **dict(zip(named, args[plain:], strict=True)))

    return Operator(run, count, tuple(kinds), written)


class Given(NamedTuple):
    """A call's arguments."""

    place: tuple[Any, ...]  # what the calls of a place have in common
    sizes: tuple[int, ...]  # all others, in the order of the arguments
    tensors: list[Tensor]
    first: list[int]  # where their sizes begin
    numbers: list[float]


def is_size(value: Any) -> bool:
    """Whether a size may change: those of 0 and 1 mean something else."""
    return isinstance(value, int) and not isinstance(value, bool) and 2 <= value < 1 << 31


def memory_order(t: Tensor) -> tuple[tuple[int, ...], bool]:
    """The dimensions as they lie in memory, outermost first; whether they fill the storage's beginning."""
    shape, strides = t.shape, t.stride()
    same = tuple(range(len(shape)))
    if t.is_contiguous():
        return same, t.storage_offset() == 0
    if any(s == 0 and n != 1 for s, n in zip(strides, shape, strict=True)):
        return same, False
    order = tuple(sorted(same, key=lambda d: (-strides[d], shape[d] == 1)))
    step = 1
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != step:
            return order, False
        step *= shape[d]
    return order, t.storage_offset() == 0


class _Description:
    """What is collected of a call's arguments. No closure: one that calls itself would keep tensors until the next
    garbage collection."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.tensors: list[Tensor] = []
        self.first: list[int] = []
        self.numbers: list[float] = []

    def size(self, n: int) -> Any:
        if not is_size(n):
            return n
        self.sizes.append(n)
        return "size"

    def add(self, v: Any, kind: str) -> Any:
        """What calls of a place have in common of an argument."""
        if isinstance(v, Tensor):
            is_empty = v.numel() == 0 and any(map(is_size, v.shape))
            if v.device.type == "cpu" or is_empty or v.is_conj() or v.is_neg():
                raise _decompose.Untraceable("numbers of the CPU, or no elements in sizes that may change")
            self.tensors.append(v)
            self.first.append(len(self.sizes))
            return ("tensor", v.dtype, v.device.index, tuple(map(self.size, v.shape)), *memory_order(v))
        if isinstance(v, list | tuple):
            return ("list", *(self.add(item, kind) for item in v))
        if kind == "sizes" and is_size(v):
            return self.size(v)
        if kind == "number" and not isinstance(v, bool):
            self.numbers.append(v)
            return ("number", type(v))
        return (type(v), v)


def _describe(name: str, operator: Operator, args: Sequence[Any]) -> Given | None:
    """None: no call that a bounded program can serve."""
    found = _Description()
    try:
        place = (name, *map(found.add, args, kinds(name, operator, args)))
        hash(place)
    except (_decompose.Untraceable, TypeError):  # or an argument that is no key
        return None
    return Given(place, tuple(found.sizes), found.tensors, found.first, found.numbers) if found.sizes else None


def kinds(name: str, operator: Operator, args: Sequence[Any]) -> list[str]:
    """What the arguments are: a number in place of a tensor, sizes, a ScalarType, or something else."""
    return [
        "number" if type(v) in (int, float) and takes_tensor(name, i) else kind
        for i, (v, kind) in enumerate(zip(args, operator.kinds, strict=True))
    ]


@cache
def takes_tensor(name: str, argument: int) -> bool:
    return str(_decompose._find(name)._schema.arguments[argument].type) in ("Tensor", "Optional[Tensor]")


class _Place:
    """Calls of one line that differ in their sizes."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[int, ...], int]] = []
        self.entries: list[Any] = []  # of _changing.Entry
        self.step = self.step_before = -1
        self.rows: dict[Any, tuple[int, int]] = {}  # of equal calls: their last step, and how many in a row it ends

    def is_settled(self, given: Given, step: int) -> bool:
        """Whether a call like this, with the same memory, came in each of many steps: its own program is faster."""
        if step != self.step:
            self.step_before, self.step = self.step, step
        key = given.sizes, *((t.stride(), t.storage_offset(), t.untyped_storage().nbytes()) for t in given.tensors)
        last, row = self.rows.get(key, (-1, 0))
        if last != step:
            row = row + 1 if last == self.step_before else 1
            if len(self.rows) >= 64:
                self.rows.clear()
            self.rows[key] = step, row
        return row >= _SETTLED

    def changing(self, given: Given, step: int) -> Iterator[dict[int, int]]:
        """Which sizes may be those that change from step to step: a number for each; equal ones have one."""
        earlier = [(sizes, when) for sizes, when in self.seen if when != step]
        diffs = [frozenset(i for i, n in enumerate(sizes) if n != given.sizes[i]) for sizes, _ in earlier]
        large = sum(t.numel() for t in given.tensors) >= _LARGE
        for which in sorted(set(diffs), key=lambda d: (len(d), sorted(d))):
            alike = [call for call, other in zip(earlier, diffs, strict=True) if other <= which]
            if len({when for _, when in alike}) < (_STEPS_OF_LARGE if large else _STEPS):
                continue
            history = [given.sizes, *(sizes for sizes, _ in alike)]
            numbers: dict[tuple[int, ...], int] = {}
            found = {i: numbers.setdefault(tuple(h[i] for h in history), len(numbers)) for i in sorted(which)}
            if len(numbers) <= _MOST_NUMBERS:
                yield found
        self.seen.append((given.sizes, step))
        del self.seen[:-64]


_places: dict[tuple[Any, ...], _Place] = {}
_entries: dict[tuple[Any, ...], Any] = {}  # by what calls have in common and which sizes change; or why there is none


def call(name: str, args: tuple[Any, ...], step: int) -> tuple[Any, ...] | str | None:
    """The call's results; None where it is to be compiled, or why it has to be compiled for each size."""
    if name == "aten::cat":
        args = _without_nothing(args[0]), *args[1:]
    operator = _operator(name)
    given = _describe(name, operator, args) if operator is not None else None
    if operator is None or given is None:
        return None
    with _lock:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
            _entries.clear()
        place = _places.setdefault((given.place, _C.user_line()), _Place())
        why: str | None = None
        entry = next((e for e in place.entries if not e.refused and e.serves(given.sizes)), None)
        if entry is not None:
            if place.is_settled(given, step):
                return f"; its sizes were the same in {_SETTLED} steps"
            results = _run(entry, given)
            if not isinstance(results, str):
                return results
            why = results
        for changing in place.changing(given, step):
            from torch_pjrt import _changing

            key = (given.place, tuple((i, changing[i]) if i in changing else n for i, n in enumerate(given.sizes)))
            entry = _entries.get(key)
            if entry is None or not (isinstance(entry, str) or entry.serves(given.sizes)):
                try:
                    entry = _entries[key] = _changing.Entry(operator, args, given, changing)
                except Exception as error:  # a rule's own mistake is no reason to stop: these sizes' program is right
                    entry = _entries[key] = _refusal(error)
            results = entry if isinstance(entry, str) else _run(entry, given)
            if not isinstance(results, str):
                place.entries.append(entry)
                return results
            why = results
    return why


def _without_nothing(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """What ``cat`` joins, without the ``torch.tensor([])`` that it ignores: growing caches begin with one."""
    some = [t for t in tensors if t.shape != (0,)]
    return some if some and all(t.dtype == some[0].dtype for t in tensors) else tensors


def _refusal(error: Exception) -> str:
    return f"; each size compiles anew: {error}"


def _run(entry: Any, given: Given) -> tuple[Any, ...] | str:
    """..., or why it cannot."""
    if not entry.refused:
        try:
            run = entry.prepared(given)
        except Exception as error:  # as above
            entry.refused = _refusal(error)
            return str(entry.refused)
        try:
            return run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a mistake, or something that the chip lacks
            if "torch_pjrt.no_compile()" in str(error):
                raise
            entry.refused = _refusal(error)
    return str(entry.refused)
