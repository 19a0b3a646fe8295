"""torch_pjrt: any chip with a PJRT plugin as a native PyTorch device.

Importing torch is enough: the device is registered through PyTorch's autoload. This module has the
tools around it: statistics, the compile log, switches.

Example:
    >>> import torch
    >>> (torch.ones(2, 2, device="pjrt") @ torch.ones(2, 2, device="pjrt")).sum().item()
    8.0
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "compile_ahead",
    "compile_log",
    "device_name",
    "eager",
    "explain_compiles",
    "fallbacks",
    "load_ahead",
    "no_compile",
    "reset_stats",
    "set_flag",
    "stablehlo",
    "stats",
    "target",
    "versions",
]

_registered = False


def _autoload() -> None:
    """Entry point of PyTorch's ``torch.backends``: registers the device. Loads no plugin."""
    global _registered
    if _registered:
        return
    _registered = True

    import torch

    from torch_pjrt import _C, _discovery, _dynamo, device

    spec = _discovery.choose()
    name = os.environ.get("TORCH_PJRT_DEVICE_NAME") or spec.device_name
    for variable, value in spec.environment.items():
        os.environ.setdefault(variable, value)
    config = {
        "device_name": name,
        "spec_name": spec.name,
        "path": spec.library or "",
        "missing": "" if spec.library else f"device '{name}': {spec.missing}",
        "create_options": dict(spec.create_options),
        "compile_overrides": dict(spec.compile_overrides),
        "override_operations": dict.fromkeys(spec.override_operations, True),
        "caps": dict(spec.capabilities)
        | dict(part.split("=", 1) for part in os.environ.get("TORCH_PJRT_CAPABILITIES", "").split(",") if "=" in part),
    }
    try:
        _C.register(config)
    except RuntimeError as error:
        raise RuntimeError(
            f"TORCH_PJRT_DEVICE_NAME or plugin '{spec.name}' names the device '{name}': {error}"
        ) from None
    device._name = name
    torch.utils.rename_privateuse1_backend(name)
    torch._register_device_module(name, device)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_around_step)
    register_optimizer_step_pre_hook(_check_capturable)
    register_optimizer_step_post_hook(_around_step)
    answers = torch.library.Library("tpj", "IMPL")
    answers.impl("changing", _of_changing_sizes, "CompositeExplicitAutograd")
    atexit.register(answers._destroy)
    _dynamo.watch()


def _around_step(*_: Any) -> None:
    """Before and after every optimizer's step: what fused eager has noted runs.

    So a step's update is a graph of its own: what comes before is the same in the first step, where an optimizer makes
    its state, and in all others.
    """
    import torch

    from torch_pjrt import _C

    if not torch.compiler.is_compiling():  # a compiled step is whole already
        _C.flush()


def _check_capturable(optimizer: Any, *_: Any) -> None:
    """PyTorch's check that a captured optimizer counts its steps on the device, which it makes for its own devices."""
    import torch

    from torch_pjrt import _C

    if torch.compiler.is_compiling() or not _C.is_initialized():
        return
    if not torch.accelerator.current_stream().is_capturing():
        return
    if all(group.get("capturable", True) for group in optimizer.param_groups):
        return
    raise RuntimeError(
        f"Attempting {torch._C._get_privateuse1_backend_name().upper()} graph capture of step() for an instance of "
        f"{type(optimizer).__name__} but param_groups' capturable is False."
    )


def _of_changing_sizes(name: str, args: tuple[Any, ...], step: int) -> Any:
    """What the core asks before it compiles a program for a call."""
    from torch_pjrt import _places

    return _places.call(name, args, step)


def device_name() -> str:
    """The device type of this process, for example ``"pjrt"``."""
    import torch

    return torch._C._get_privateuse1_backend_name()


def stats() -> dict[str, Any]:
    """Counters since the start or the last ``reset_stats()``.

    Returns:
        ``compiles``, ``disk_hits`` (programs that were read from disk instead), ``hits`` (calls served by a program
        that was there), ``decomposed`` (calls that ran PyTorch's
        decomposition), ``compile_seconds``, ``programs`` (in the cache), ``fallbacks`` (calls that ran on the
        CPU), ``live_bytes``, ``peak_bytes`` and ``live_buffers`` (over all devices).
    """
    from torch_pjrt import _C

    return _C.stats()


def reset_stats() -> None:
    """Zeroes the counters, the fallback table and the compile log; the cache keeps its programs."""
    from torch_pjrt import _C

    _C.reset_stats()


def fallbacks() -> dict[str, int]:
    """Operator -> number of calls that ran on the CPU because the device has no program for it."""
    from torch_pjrt import _C

    return _C.fallbacks()


def compile_log() -> list[dict[str, Any]]:
    """Every compile, oldest first: ``operator`` (or ``"graph of 12 calls, ..."``), ``reason`` (which part of the key
    was new), ``where`` (the user's line, ``"file.py:12"``), ``started`` (seconds since the first compile), ``seconds``.
    """
    from torch_pjrt import _C

    return _C.compile_log()


def explain_compiles(form: str = "text") -> str:
    """What was compiled, when, how long it took, and why it was new; the longest first.

    Args:
        form: ``"text"``; ``"json"``: the entries of ``compile_log()``; ``"html"``: a page to look at.

    Raises:
        ValueError: another form.

    Example:
        >>> print(torch_pjrt.explain_compiles())
        2 programs compiled in 0.09 s; 0 read from disk
        seconds  at     what              line          why
        0.051    0.000  aten::mm          train.py:12   first call
        0.040    0.210  aten::add.Tensor  train.py:13   self Float[4, 4] (was Float[8, 8])
    """
    import json

    from torch_pjrt import _page

    counters, entries = stats(), compile_log()
    if form == "json":
        return json.dumps(entries, indent=1)
    longest = sorted(entries, key=lambda e: -float(e["seconds"]))
    head = ["seconds", "at", "what", "line", "why"]
    rows = [[f"{e['seconds']:.3f}", f"{e['started']:.3f}", e["operator"], e["where"], e["reason"]] for e in longest]
    summary = (
        f"{counters['compiles']} programs compiled in {counters['compile_seconds']:.2f} s; "
        f"{counters['disk_hits']} read from disk"
    )
    if form == "html":
        return _page.page("torch_pjrt: compiles", summary, _page.table(rows, head))
    if form != "text":
        raise ValueError(f"explain_compiles: form must be text, json or html, got {form!r}")
    return "\n".join([summary, _page.columns(rows, head)])


def stablehlo(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """The StableHLO module of one call of a function, as this process's device would compile it whole.

    Nothing runs and nothing is compiled: the tensors may be real, fake or on ``meta``. In-place writes, backward passes
    and optimizer steps are part of the module; a function that ``torch.compile`` made is taken as it was before.

    Raises:
        NotImplementedError: the function calls an operator that the device has no program for.
        DataDependentOutputException: the function reads a value, for example by ``.item()``.

    Example:
        >>> print(torch_pjrt.stablehlo(lambda x: x @ x, torch.ones(2, 2)))
        ... "stablehlo.dot_general"(%0, %0) ...
    """
    from torch_pjrt import _discovery, _record

    for wrapped in ("_orig_mod", "_torchdynamo_orig_callable"):
        function = getattr(function, wrapped, function)
    name = getattr(function, "__name__", type(function).__name__)
    recording = _record.record(function, args, kwargs, device_name())
    return str(recording.lower(name, _discovery.choose().capabilities)["text"])


@contextlib.contextmanager
def no_compile() -> Iterator[None]:
    """Inside, a compile is a RuntimeError that names operator, reason and line. For after the warm-up.

    Example:
        >>> with torch_pjrt.no_compile():
        ...     train_step(batch)
    """
    from torch_pjrt import _C

    _C.forbid_compile(1)
    try:
        yield
    finally:
        _C.forbid_compile(-1)


@contextlib.contextmanager
def eager(mode: str) -> Iterator[None]:
    """How calls run inside, in all threads of the process.

    Args:
        mode: ``"fused"``: calls are noted, and run together as one program when a value is needed; ``"strict"``: each
            call runs when it is made; ``"debug"``: and is waited for, so that an error at run time points at its line.

    Raises:
        ValueError: another mode.

    Example:
        >>> with torch_pjrt.eager("debug"):
        ...     loss = model(batch)
    """
    from torch_pjrt import _C

    before = next(value for name, value, _ in _C.flags() if name == "TORCH_PJRT_EAGER")
    _C.set_flag("EAGER", mode)
    try:
        yield
    finally:
        _C.set_flag("EAGER", before)


def set_flag(name: str, value: str) -> None:
    """Changes a switch (``FALLBACK``, ``EAGER``) as ``TORCH_PJRT_<name>`` would.

    Raises:
        ValueError: unknown name, or a value that does not parse.
    """
    from torch_pjrt import _C

    _C.set_flag(name, value)


def versions() -> dict[str, Any]:
    """``torch_pjrt``, ``torch``, ``python``, and of the plugin: ``plugin``, ``path``, ``platform``,
    ``platform_version``, ``api_minor``, ``devices``. Loads the plugin.
    """
    import torch

    from torch_pjrt import _C

    about = _C.describe()
    about.pop("capabilities")
    return {
        "torch_pjrt": __version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "api": f"0.{about['api_minor']}",
        **about,
    }


# `import torch_pjrt` before torch: importing torch loads this package's entry point in turn.
import torch as _torch  # noqa: E402

if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
    _autoload()
del _torch


def __getattr__(name: str) -> Any:
    if name in ("compile_ahead", "load_ahead"):  # they need torch, which loads this package
        from torch_pjrt import packages

        return getattr(packages, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
