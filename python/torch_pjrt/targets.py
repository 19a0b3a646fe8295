"""Compile-only targets: what a model costs on a chip that is not here (docs/compile-only.md has real names of chips).

Example:
    >>> import torch, torch_pjrt
    >>> model = torch.nn.Linear(1024, 1024)
    >>> report = torch_pjrt.target("acme:x1").compile(model, torch.empty(8, 1024))
    >>> report.fits, report.memory["arguments"]
    (True, 4231168)
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch_pjrt._ahead import Compiler, CompilerError
from torch_pjrt._page import page, table
from torch_pjrt.spec import Chip, PluginSpec

__all__ = ["OperatorCost", "Report", "Target", "target"]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class OperatorCost:
    """All calls of one operator from one line.

    Attributes:
        operator: ``"aten::mm"``.
        where: the user's line, ``"model.py:12"``; ``""`` for calls of the backward.
        calls: how often.
        flops: floating-point operations of products and convolutions, by PyTorch's formulas
            (``torch.utils.flop_counter``).
        bytes: bytes of the results, as if nothing were fused.
    """

    operator: str
    where: str
    calls: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class Report:
    """What the chip's compiler made of a function.

    Attributes:
        target: name of the target.
        kind: what the compiler calls the chip.
        compiles: whether the compiler took the program.
        error: the compiler's own words when it did not.
        seconds: time of the compile.
        memory: bytes by the compiler's own count: arguments, outputs, temporaries, aliased (arguments whose memory is
            reused), code; of a refused program only arguments and outputs, by their types.
        capacity: bytes of main memory of one device; None where the compiler does not tell.
        flops: floating-point operations by the compiler's count, or by PyTorch's formulas where it does not count.
        bytes_accessed: bytes between compute units and main memory by the compiler's count; None if it does not count.
        lower_bound: seconds that one execution takes at least: the greater of flops / peak and bytes / bandwidth.
        operators: what was called, the most expensive first.
        executable: the compiled program's bytes, for loading on the chip; empty unless asked for.
    """

    target: str
    kind: str
    compiles: bool
    error: str = ""
    seconds: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    capacity: int | None = None
    flops: float = 0.0
    bytes_accessed: float | None = None
    lower_bound: float | None = None
    operators: tuple[OperatorCost, ...] = ()
    executable: bytes = field(default=b"", repr=False)

    @property
    def needed(self) -> int:
        """Bytes of main memory that one execution needs."""
        m = self.memory
        used = sum(m.get(part, 0) for part in ("arguments", "outputs", "temporaries", "code"))
        return max(used - m.get("aliased", 0), _wanted(self.error))

    @property
    def missing(self) -> int:
        """Bytes that it needs beyond the chip's memory; 0 if it fits."""
        return 0 if self.capacity is None else max(0, self.needed - (_available(self.error) or self.capacity))

    @property
    def fits(self) -> bool:
        """True if the program compiles and its memory is there."""
        return self.compiles and self.missing == 0

    def json(self) -> str:
        """Everything but the executable, and ``needed``, ``missing``, ``fits``."""
        data = asdict(self) | {"needed": self.needed, "missing": self.missing, "fits": self.fits}
        del data["executable"]
        return json.dumps(data, indent=1)

    def __str__(self) -> str:
        lines = [f"{self.target} ({self.kind}): " + (f"compiles, {self.seconds:.1f} s" if self.compiles else "refused")]
        lines += [f"  {line}" for line in self.error.splitlines()]
        lines += [f"  {name:<12} {value}" for name, value in self.facts()]
        if self.operators:
            lines.append(f"  {'calls':>6} {'flops':>10} {'bytes':>10}  operator, line")
            lines += [
                f"  {o.calls:>6} {_short(o.flops):>10} {_short(o.bytes):>10}  {o.operator}  {o.where}"
                for o in self.operators[:20]
            ]
            if len(self.operators) > 20:
                lines.append(f"  and {len(self.operators) - 20} more")
        return "\n".join(lines)

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of what the report says beside the table of operators."""
        out = [(name, _short(value) + "B") for name, value in self.memory.items()]
        if self.capacity is not None:
            rest = f", {_short(self.missing)}B ({self.missing} bytes) missing" if self.missing else ""
            out.append(("needed", f"{_short(self.needed)}B of {_short(self.capacity)}B{rest}"))
        out.append(("flops", _short(self.flops)))
        if self.bytes_accessed is not None:
            out.append(("traffic", _short(self.bytes_accessed) + "B"))
        if self.lower_bound is not None:
            out.append(("at least", f"{self.lower_bound * 1e3:.3g} ms at the chip's published peak"))
        return out

    def html(self) -> str:
        """A page to look at."""
        rows = [[o.operator, o.where, o.calls, _short(o.flops), _short(o.bytes)] for o in self.operators]
        return page(
            self.target,
            f"{self.target} ({self.kind}): {'compiles' if self.compiles else 'refused'}",
            f"<pre>{html.escape(self.error)}</pre>"
            + table([list(fact) for fact in self.facts()])
            + table(rows, ["operator", "line", "calls", "flops", "bytes"]),
        )


def _short(value: float) -> str:
    """1234567 as 1.18M: powers of 1024."""
    for unit in ("", "K", "M", "G", "T"):
        if abs(value) < 1024:
            break
        if unit != "T":
            value /= 1024
    return f"{value:.3g}{unit}"


def _size(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


def _wanted(error: str) -> int:
    """Bytes that a compiler's message about memory asks for; 0 if it is about something else."""
    found = re.search(r"\(([\d.]+)([KMGT]?)\) exceeds available", error)
    return _size(*found.groups()) if found else 0


def _available(error: str) -> int | None:
    found = re.search(r"exceeds available \w+ \(([\d.]+)([KMGT]?)\)", error)
    return _size(*found.groups()) if found else None


class Target:
    """A chip to compile for. Made by ``torch_pjrt.target``."""

    def __init__(self, name: str, spec: PluginSpec, chip: Chip, shape: str, timeout: float) -> None:
        assert spec.library
        self.name = name
        self.spec = spec
        self.chip = chip
        self._request = {
            "path": spec.library,
            "topology": chip.topology.format(shape=shape),
            "topology_options": dict(chip.options),
            "caps": dict(spec.capabilities),
            "compile_overrides": {} if spec.override_operations else dict(spec.compile_overrides),
        }
        self._compiler = Compiler({**spec.environment, **spec.compile_only_environment}, timeout)
        self._devices: list[dict[str, Any]] = []

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The topology's devices as its compiler describes them: kind, coordinates, bytes of memory."""
        if not self._devices:
            self._devices = self._compiler(self._request)["devices"]
        return self._devices

    @property
    def capacity(self) -> int | None:
        """Bytes of main memory of one device."""
        return self.devices[0].get("device_memory_bytes_limit") or self.chip.memory or None

    def compile(self, function: Callable[..., Any], *args: Any, serialize: bool = False, **kwargs: Any) -> Report:
        """Compiles one call of the function, a forward pass or a whole training step, for the chip.

        Nothing is executed: tensors, modules and optimizers among the arguments are replaced by copies without
        contents, so that they may be real, fake or on ``meta``, and larger than this machine's memory.

        Args:
            function: a module or a function. Whatever tensors it uses should be among the arguments.
            args: tensors, modules, optimizers, containers of these, and anything else as it is.
            serialize: return the executable's bytes too.
            kwargs: the same by name.

        Raises:
            DataDependentOutputException: the function reads a value, for example by ``.item()``.
            NotImplementedError: the function calls an operator that the device does not have.

        Example:
            >>> def step(model, optimizer, x, y):
            ...     optimizer.zero_grad()
            ...     torch.nn.functional.cross_entropy(model(x), y).backward()
            ...     optimizer.step()
            >>> print(torch_pjrt.target("acme:x1").compile(step, model, optimizer, x, y))
        """
        from torch_pjrt import _record, device_name

        recording = _record.record(function, args, kwargs, device_name())
        module = recording.lower(getattr(function, "__name__", type(function).__name__), self.spec.capabilities)
        costs: dict[tuple[str, str], OperatorCost] = {}
        for call in recording.calls:
            key = (call.operator, call.where)
            old = costs.get(key, OperatorCost(*key, 0, 0, 0))
            costs[key] = OperatorCost(*key, old.calls + 1, old.flops + call.flops, old.bytes + call.bytes)
        operators = tuple(sorted(costs.values(), key=lambda c: (-c.flops, -c.bytes, c.operator, c.where)))
        return self.compile_text(
            module["text"],
            serialize=serialize,
            types=(module["parameters"], module["results"]),
            operators=operators,
        )

    def compile_text(
        self,
        text: str,
        *,
        serialize: bool = False,
        types: tuple[list[str], list[str]] = ([], []),
        operators: tuple[OperatorCost, ...] = (),
    ) -> Report:
        """Compiles a StableHLO module. ``types`` of parameters and results: for the report of one that is refused."""
        flops = float(sum(o.flops for o in operators))
        try:
            made = self._compiler(self._request | {"text": text, "serialize": "1" if serialize else ""})
        except CompilerError as error:
            memory = {"arguments": sum(map(_bytes_of, types[0])), "outputs": sum(map(_bytes_of, types[1]))}
            try:
                kind, capacity = self.devices[0]["kind"], self.capacity
            except CompilerError:
                kind, capacity = "its compiler does not answer", None
            return Report(self.name, kind, False, str(error), 0.0, memory, capacity, flops, operators=operators)
        self._devices = made["devices"]
        cost = made.get("cost", {})
        flops = cost.get("flops") or flops
        traffic = cost.get("bytes accessed")
        per_chip = self._devices_per_chip()
        bound = max(flops / self.chip.peak_flops, (traffic or 0.0) / self.chip.bandwidth) * per_chip
        return Report(
            target=self.name,
            kind=self._devices[0]["kind"],
            compiles=True,
            seconds=made["seconds"],
            memory=made.get("memory", {}),
            capacity=self.capacity,
            flops=flops,
            bytes_accessed=traffic,
            lower_bound=bound,
            operators=operators,
            executable=made.get("bytes", b""),
        )

    def _devices_per_chip(self) -> int:
        """Some topologies list a chip's cores as devices of their own: each has its part of the peak."""
        places = {str(d.get("coords", i)) for i, d in enumerate(self._devices)}
        return max(1, len(self._devices) // max(1, len(places)))

    def close(self) -> None:
        """Ends the compiler's process; it starts again when it is needed."""
        self._compiler.close()


_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "i1": 1, "complex<f32>": 8, "complex<f64>": 16}


def _bytes_of(kind: str) -> int:
    """Of ``"f32[2,3]"``."""
    name, _, dims = kind.partition("[")
    size = _BYTES.get(name) or int(re.sub(r"\D", "", name)) // 8
    for dim in dims.rstrip("]").split(","):
        size *= int(dim or 1)
    return size


def target(name: str, *, timeout: float = 1800.0) -> Target:
    """A chip to compile for, by ``"plugin:chip"`` or ``"plugin:chip:shape"``.

    Args:
        name: for example ``"acme:x1:2x2"``; without a shape the chip's smallest one. ``python -m torch_pjrt doctor``
            lists the chips of each plugin.
        timeout: seconds after which a compile is given up.

    Raises:
        ValueError: no such plugin or chip; the message lists those that there are.
        RuntimeError: the plugin is not installed; the message says what to install.
    """
    from torch_pjrt import _discovery

    plugin, _, rest = name.partition(":")
    chip_name, _, shape = rest.partition(":")
    specs = {k: s for k, s in _discovery.specs().items() if isinstance(s, PluginSpec) and s.chips}
    if plugin not in specs:
        raise ValueError(f"no plugin '{plugin}' compiles for chips that are not here (there are: {', '.join(specs)})")
    spec = specs[plugin]
    if chip_name not in spec.chips:
        raise ValueError(f"plugin '{plugin}' knows no chip '{chip_name}' (it knows: {', '.join(spec.chips)})")
    if not spec.library:
        raise RuntimeError(f"target '{name}': {spec.missing}")
    chip = spec.chips[chip_name]
    return Target(name, spec, chip, shape or chip.shape, timeout)
