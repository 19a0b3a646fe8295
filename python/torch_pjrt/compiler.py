"""The backend ``pjrt`` of ``torch.compile``: each graph that PyTorch captures is one program of the device.

Example:
    >>> import torch
    >>> @torch.compile(backend="pjrt")
    ... def f(x):
    ...     return (x.sin() + 1).sum()
    >>> f(torch.zeros(3, device="pjrt")).item()
    3.0
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_pjrt import _artifacts, _decompose, _loops, _positions, _rules, _sizes

__all__ = ["backend"]


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="pjrt")`` calls with a graph.

    Forward and backward are a program each, split by PyTorch's min-cut partitioner; inputs that are written in place
    are written by the program. A graph with an operator that the device has no program for runs call by call, with one
    warning. Sizes that change are one program up to a bound (``torch_pjrt/bounded.py``).

    PyTorch's modes are taken and change nothing: a graph is one program, and the plugin's compiler has no search.

    Raises:
        RuntimeError: a mode that PyTorch does not have, or any of ``options=``: there are none.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor import list_mode_options

    list_mode_options(options.pop("mode", None))  # raises for a word that is none
    for name in options.pop("options", None) or options:
        raise RuntimeError(f"Unexpected optimization option {name}, known options are []")
    dynamic = _sizes.is_dynamic(example_inputs)
    most: dict[Any, int] = _sizes.limits() if dynamic else {}
    padded: dict[str, _sizes.Layout] = {}

    def compiler(kind: str) -> Callable[..., Any]:
        def compile(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
            changing = _sizes.is_dynamic(example_inputs)
            checks = _take_checks(gm)
            return _boxed(_Function(gm, _sizes.Sizes(kind, most, padded, gm.graph) if changing else None, checks))

        return compile

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=_rules.decompositions() if dynamic else None,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(gm, example_inputs)


@dataclass(frozen=True)
class _Program:
    """A graph for arguments of certain sizes, in the core.

    Values are counted through: the arguments, what the host computes, the constants, sizes, what the program computes.
    """

    number: int  # of torch.ops.tpj.run_traced
    host: torch.fx.GraphModule | None  # what happens on the CPU, before: from all arguments
    constants: tuple[Any, ...]
    takes: tuple[int, ...]  # which values
    uploads: tuple[int, ...]  # which of these are tensors on the CPU, no numbers
    results: tuple[int, ...]  # which values
    views: tuple[tuple[int, tuple[_decompose.View, ...]], ...]  # of which result, and the way to it
    device: torch.device


def _boxed(function: _Function) -> Callable[[list[Any]], Sequence[Any]]:
    def call(args: list[Any]) -> Sequence[Any]:
        return function(args)

    call._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd's word for a function of one list
    return call


def _take_checks(gm: torch.fx.GraphModule) -> list[tuple[str, bool]]:
    """What ``torch.linalg`` checks (is the matrix singular?) becomes one more result each, to be looked at afterwards.

    Returns what ``torch._linalg_check_errors`` takes: the function's name, and whether it is a single matrix.
    """
    checks: list[tuple[str, bool]] = []
    found: list[torch.fx.Node] = []
    for node in list(gm.graph.nodes):
        if node.target is not torch.ops.higher_order.with_effects:
            continue
        token, op, *given = node.args
        if op is not torch.ops.aten._linalg_check_errors.default:
            continue
        found.append(given[0])
        checks.append((given[1], node.kwargs["is_matrix"]))
        for item in list(node.users):  # the token, and no results
            if item.args[1] == 0:
                item.replace_all_uses_with(token)
            gm.graph.erase_node(item)
        gm.graph.erase_node(node)
    if checks:
        output = next(node for node in gm.graph.nodes if node.op == "output")
        output.args = ((*output.args[0], *found),)
        gm.recompile()
    return checks


class _Function:
    """One graph of AOTAutograd, called with a list of arguments, which is emptied."""

    def __init__(
        self, gm: torch.fx.GraphModule, sizes: _sizes.Sizes | None, checks: Sequence[tuple[str, bool]] = ()
    ) -> None:
        self.gm = gm
        self.checks = checks
        self.sizes = sizes
        self.positions = _positions.find(gm.graph)
        self.programs: dict[Any, tuple[_Program, _sizes.AtBounds | None]] = {}
        self.calls: dict[Any, tuple[_Program, _sizes.Call] | None] = {}  # by sizes; None: call by call

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        key = () if self.sizes is None else self.sizes.values(args)
        call = self.calls.get(key)
        if call is None or _positions.suspicious(self.positions, args):
            results = self._first(key, args)
        else:
            results = _run(*call, args)
        if not self.checks:
            return results
        count = len(results) - len(self.checks)
        for info, (name, is_matrix) in zip(results[count:], self.checks, strict=True):
            torch._linalg_check_errors(info, name, is_matrix=is_matrix)
        return results[:count]

    def _first(self, key: tuple[Any, ...], args: list[Any]) -> Sequence[Any]:
        flat = list(args)
        args.clear()
        if key not in self.calls and not _positions.suspicious(self.positions, flat):
            numbers = [(x, x.clone()) for x in flat if isinstance(x, Tensor) and x.device.type == "cpu"]
            try:
                call = self._bounded(key, flat)
                if call is None:
                    shapes = () if self.sizes is None else self.sizes.exact(key)
                    exact = _shaped(list(flat), shapes)
                    call = self._program(key, exact, None)[0], _sizes.Call(shapes=shapes)
                results = _run(*call, list(flat))
                self.calls[key] = call
                return results
            except (NotImplementedError, _decompose.Untraceable) as error:
                warnings.warn(f"torch.compile: a graph runs call by call on the device: {error}", stacklevel=2)
                self.calls[key] = None
                if self.sizes is not None:
                    self.sizes.give_up()
                for number, before in numbers:  # which the host's part may have counted up
                    number.copy_(before)
        return self.gm(*_shaped(flat, () if self.sizes is None else self.sizes.exact(key)))

    def _bounded(self, values: tuple[Any, ...], args: list[Any]) -> tuple[_Program, _sizes.Call] | None:
        """The call of a program for all sizes up to a bound; None where there has to be one for these sizes alone."""
        if self.sizes is None or not self.sizes.has_rules:
            return None
        at = _sizes.AtBounds(self.sizes, values)
        try:
            program, made = self._program(("at", *at.bounds.values()), args, at)
        except Exception as error:  # a rule's own mistake is no reason to stop: the program of one size is right
            self.sizes.give_up()
            warnings.warn(f"torch.compile: each size compiles {_first_name(self.gm)} anew: {error}", stacklevel=2)
            return None
        assert made is not None
        return (program, made.call(values)) if made.fits(values) else None

    def _program(
        self, key: tuple[Any, ...], args: list[Any], at: _sizes.AtBounds | None
    ) -> tuple[_Program, _sizes.AtBounds | None]:
        if key not in self.programs:
            self.programs[key] = _trace(self.gm, args, at), at
            number = self.programs[key][0].number
            weakref.finalize(self, _drop, number)
            _artifacts.record(number)
        return self.programs[key]


def _shaped(values: list[Any], shapes: Sequence[tuple[int, tuple[int, ...]]]) -> list[Any]:
    for i, shape in shapes:
        values[i] = values[i].reshape(shape)
    return values


def _drop(number: int) -> None:
    from torch_pjrt import _C

    _C.drop_traced(number)


def _run(program: _Program, call: _sizes.Call, args: list[Any]) -> Sequence[Any]:
    values = list(args)
    given = list(args) if call.aliases else []
    args.clear()
    _shaped(values, call.shapes)
    for i, is_compact, bound in call.inputs:
        values[i] = _sizes.prepare(values[i], is_compact, bound)
    if program.host is not None:
        values.extend(program.host(*values))
    values.extend(program.constants)
    values.extend(call.numbers)
    tensors = [values[i] for i in program.takes]
    for i in program.uploads:
        tensors[i] = tensors[i].to(program.device)
    values.extend(torch.ops.tpj.run_traced.default(program.number, tensors))
    results = [values[i] for i in program.results]
    for i, views in program.views:
        results[i] = _decompose.view(results[i], views)
    for i, size, strides in call.outputs:
        results[i] = torch.ops.tpj.shown(results[i], size, strides)
    for i, of_argument, which, views in call.aliases:
        results[i] = _decompose.view(given[which] if of_argument else results[which], views)
    for i, number in call.sizes:
        results[i] = number
    return results


def _trace(
    gm: torch.fx.GraphModule, args: Sequence[Any], at: _sizes.AtBounds | None, name: str | None = None
) -> _Program:
    """The graph with these sizes, or at the bounds, in operators that have rows; nothing is computed on the device."""
    from torch_pjrt import _C

    program, traced = _plain(gm, args, at, name)
    return replace(program, number=_C.add_traced(*traced))


def _plain(
    gm: torch.fx.GraphModule, args: Sequence[Any], at: _sizes.AtBounds | None, name: str | None
) -> tuple[_Program, tuple[str, int, tuple[Any, ...]]]:
    """The same without its number, and what has to be added to the core for it: name, number of inputs, graph."""
    split = _split(gm)
    like = [_like(x) for x in (*args, *split.examples)]
    run: Callable[..., Any] = _loops.Interpreter(split.device).run
    if at is not None:
        _loops.refuse(gm.graph)
        count = len(like)
        like = at.likes(split.device.graph, like)
        like += [torch.zeros((), dtype=dtype, device="cpu") for _, dtype in at.wanted]

        def run(*flat: Any) -> Any:
            return at.run(split.device.graph, flat[:count], flat[count:])

    with torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        traced = _decompose.traced(run, *like, decompositions=_decompose._random())
    graph = traced.graph
    graph.eliminate_dead_code()
    constants: list[Any] = list(split.constants)

    def place(kind: str, which: int) -> int:
        """The number of a value."""
        before = {"argument": 0, "host": len(args), "constant": len(args) + split.from_host}
        before["number"] = before["constant"] + len(constants)
        return before.get(kind, before["number"] + numbers) + which

    numbers = 0 if at is None else len(at.wanted)
    changing = set() if at is None else {output[0] for output in at.outputs}
    found = [("argument", i) for i in range(len(args))] + split.takes + [("number", i) for i in range(numbers)]
    nodes = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = {
        node: (kind, which)
        for node, (kind, which) in zip(nodes, found, strict=True)
        if node.users and (kind != "argument" or isinstance(args[which], Tensor))
    }
    for node in graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(traced, str(node.target)), Tensor):  # made by a decomposition
            inputs[node] = ("constant", len(constants))
            constants.append(getattr(traced, str(node.target)))
    output = next(n for n in graph.nodes if n.op == "output")
    computed: dict[torch.fx.Node, int] = {}
    results: list[tuple[str, int]] = []
    views: list[tuple[int, tuple[_decompose.View, ...]]] = []
    for original, value in zip(split.outputs, output.args[0], strict=True):
        if original is not None:
            results.append(original)
        elif isinstance(value, torch.fx.Node):
            base, way = _decompose.base_of(value) if len(results) not in changing else (value, ())
            if way:
                views.append((len(results), way))
            results.append(inputs.get(base) or ("result", computed.setdefault(base, len(computed))))
        else:
            results.append(("constant", len(constants)))
            constants.append(value)
    output.args = (tuple(computed),)
    graph.eliminate_dead_code()
    plain = _decompose._nodes(graph, list(inputs), _where)
    on_host = {place("argument", i) for i, x in enumerate(args) if _is_on_host(x)}
    on_host |= {place("host", i) for i in range(split.from_host)} - {
        place(*take) for take, x in zip(split.takes, split.examples, strict=True) if x.dim() == 0
    }
    takes = tuple(place(*value) for value in inputs.values())
    program = _Program(
        number=0,
        host=split.host,
        constants=tuple(x.to(split.where) if _is_on_host(x) else x for x in constants),
        takes=takes,
        uploads=tuple(i for i, value in enumerate(takes) if value in on_host),
        results=tuple(place(*value) for value in results),
        views=tuple(views),
        device=split.where,
    )
    return program, (name or f"compiled {_first_name(gm)}", len(inputs), plain)


def _is_on_host(value: Any) -> bool:
    """A tensor on the CPU that is no number."""
    return isinstance(value, Tensor) and value.device.type == "cpu" and value.dim() > 0


def _like(value: Any) -> Any:
    """An argument without contents; numbers on the CPU stay there."""
    if not isinstance(value, Tensor):
        return value
    device = "cpu" if value.device.type == "cpu" and value.dim() == 0 else "meta"
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)


class _Split(NamedTuple):
    """A graph in what happens on the CPU (numbers: step counts, learning rates) and what happens on the device."""

    host: torch.fx.GraphModule | None
    from_host: int  # how many values the host gives
    device: torch.fx.GraphModule  # takes the arguments, and then:
    takes: list[tuple[str, int]]  # ("host", which), ("constant", which)
    constants: list[Tensor]
    examples: list[Tensor]  # of what it takes
    outputs: list[tuple[str, int] | None]  # those that the device does not make
    where: torch.device


def _split(gm: torch.fx.GraphModule) -> _Split:
    from torch_pjrt._decompose import Untraceable

    def tensors(node: torch.fx.Node) -> list[Tensor]:
        value = getattr(gm, str(node.target)) if node.op == "get_attr" else node.meta.get("val")
        if isinstance(value, torch.nn.Module):
            return []
        return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor)]

    def is_host(node: torch.fx.Node) -> bool:
        return bool(tensors(node)) and all(t.device.type == "cpu" for t in tensors(node))

    host_graph, device_graph = torch.fx.Graph(gm), torch.fx.Graph(gm)
    on_host: dict[torch.fx.Node, torch.fx.Node] = {}
    on_device: dict[torch.fx.Node, torch.fx.Node] = {}
    from_host: list[torch.fx.Node] = []  # of the host's graph
    takes: list[tuple[str, int]] = []
    constants: list[Tensor] = []
    examples: list[Tensor] = []
    where = next((t.device for n in gm.graph.nodes for t in tensors(n) if t.device.type != "cpu"), torch.device("cpu"))

    def give(node: torch.fx.Node, take: tuple[str, int]) -> torch.fx.Node:
        """Another placeholder of the device's graph, which takes this node's value."""
        with device_graph.inserting_after(last[0] if last else device_graph._root):
            last[:] = [device_graph.placeholder(f"{take[0]}_{len(takes)}")]
        on_device[node] = last[0]
        takes.append(take)
        examples.append(tensors(node)[0])
        return last[0]

    def of_device(node: torch.fx.Node) -> torch.fx.Node:
        if node not in on_device:
            from_host.append(on_host[node])
            give(node, ("host", len(from_host) - 1))
        return on_device[node]

    def of_host(node: torch.fx.Node) -> torch.fx.Node:
        if node not in on_host:
            raise Untraceable(f"{node.name}: a value of the device is needed on the CPU")
        return on_host[node]

    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in placeholders:
        on_device[node] = device_graph.node_copy(node)
        copied = host_graph.node_copy(node)
        if is_host(node) or not tensors(node):
            on_host[node] = copied
    last = [on_device[placeholders[-1]]] if placeholders else []
    for node in placeholders:
        written = any(_is_copy(user) and user.args[0] is node and is_host(user) for user in node.users)
        if written and not all(map(is_host, node.users)):
            # The host writes it before the device's part runs, which wants what it was.
            from_host.append(host_graph.call_function(torch.ops.aten.clone.default, (on_host[node],)))
            give(node, ("host", len(from_host) - 1))
    outputs: list[tuple[str, int] | None] = []
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(gm, str(node.target)), torch.nn.Module):
            on_device[node] = device_graph.node_copy(node)  # a part of a higher-order operator
        elif node.op == "get_attr" and not tensors(node):
            raise Untraceable(f"{node.target} is no tensor")
        elif node.op == "get_attr":
            give(node, ("constant", len(constants)))
            constants.append(tensors(node)[0])
            if is_host(node):
                on_host[node] = host_graph.node_copy(node)
        elif node.op == "output":
            made: list[Any] = []
            for value in node.args[0]:
                if isinstance(value, torch.fx.Node) and value.op != "placeholder" and is_host(value):
                    from_host.append(on_host[value])
                    outputs.append(("host", len(from_host) - 1))
                    made.append(None)
                else:
                    outputs.append(None)
                    made.append(on_device[value] if isinstance(value, torch.fx.Node) else value)
            device_graph.output(tuple(made))
        elif node.op != "placeholder":
            if is_host(node):
                on_host[node] = host_graph.node_copy(node, of_host)
                continue
            if not tensors(node) and all(n in on_host for n in node.all_input_nodes):
                on_host[node] = host_graph.node_copy(node, of_host)  # sizes
            on_device[node] = device_graph.node_copy(node, of_device)
            kwargs = on_device[node].kwargs
            if kwargs.get("device") is not None:
                on_device[node].kwargs = {**kwargs, "device": torch.device("meta")}
    host = None
    if any(is_host(n) and n.op == "call_function" for n in on_host):
        host_graph.output(tuple(from_host))
        if any(map(_is_copy, host_graph.nodes)):
            with host_graph.inserting_before(next(n for n in host_graph.nodes if n.op != "placeholder")):
                host_graph.call_function(_refuse_capture, (where,))
        host = torch.fx.GraphModule(gm, host_graph)
    device = torch.fx.GraphModule(gm, device_graph)
    return _Split(host, len(from_host), device, takes, constants, examples, outputs, where)


def _is_copy(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.copy_.default


def _refuse_capture(device: torch.device) -> None:
    """Of what writes numbers on the CPU, such as a step count: a replay would not."""
    if torch.accelerator.current_stream(device).is_capturing():
        raise RuntimeError(
            "operation not permitted when stream is capturing: to write a number on the CPU "
            "(an optimizer needs capturable=True)"
        )


def _where(node: torch.fx.Node) -> tuple[str, int]:
    """The user's line."""
    found = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    return (found[-1][0], int(found[-1][1])) if found else ("", 0)


def _first_name(gm: torch.fx.GraphModule) -> str:
    """What the compile log calls the graph: where its first operator stands."""
    for node in gm.graph.nodes:
        file, line = _where(node)
        if file:
            return f"{file.rsplit('/', 1)[-1]}:{line}"
    return "function"
