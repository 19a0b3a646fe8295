"""What a plugin package tells us about its PJRT library."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Chip", "Option", "PluginSpec", "first_that_exists", "library_in_package"]

Option = bool | int | float | str


@dataclass(frozen=True)
class Chip:
    """A chip that a plugin's compiler can compile for without having it (``torch_pjrt.target``).

    Attributes:
        topology: the plugin's own name of the topology; ``{shape}`` stands for the shape that the user gives.
        shape: the smallest shape, used when the user gives none; ``""`` where the name has no shape.
        peak_flops: floating-point operations per second of one chip, in the best format for matrices.
        bandwidth: bytes per second between one chip's compute units and its main memory.
        memory: bytes of main memory per device, where the compiler's topology does not tell.
        options: options of ``PJRT_TopologyDescription_Create``.
        source: where the numbers are published.
    """

    topology: str
    shape: str
    peak_flops: float
    bandwidth: float
    memory: int = 0
    options: Mapping[str, Option] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class PluginSpec:
    """A PJRT plugin: how to find it, how to configure it, what it can do beyond what its API tells.

    Returned by the function behind an entry point of the group ``torch_pjrt.plugins``. Making one
    must be cheap and silent: no import of heavy packages, no load of the library.

    Attributes:
        name: name of the spec, for example ``"cpu"``.
        device_name: the PyTorch device type, for example ``"pjrt"``.
        library: path of the shared library; ``None`` when it is not on this machine.
        missing: what to install or set when ``library`` is ``None``, in one sentence.
        no_chip: why the chip is not on this machine though the library is; such a plugin is only used when it is asked
            for by name. ``""`` when the chip seems to be there.
        priority: the available spec with the greatest priority wins; the CPU plugin has 0.
        create_options: options of ``PJRT_Client_Create``.
        compile_overrides: compiler flags by name, for the programs with one of ``override_operations``.
        override_operations: StableHLO operations (``"maximum"``) that need the overrides; empty: all programs.
        capabilities: overrides of detected capabilities (see ``python -m torch_pjrt``).
        environment: variables set before the library is loaded, unless they are set already.
        compile_only_environment: the same for processes that only compile (``torch_pjrt.target``).
        chips: what ``torch_pjrt.target("<name>:<chip>:<shape>")`` can compile for, by chip name.
        quirks: known oddities of the plugin, each with where it is reported.

    Example:
        >>> PluginSpec(name="acme", device_name="acme", library="/opt/acme/pjrt.so", priority=10)
        PluginSpec(name='acme', device_name='acme', library='/opt/acme/pjrt.so', ...)
    """

    name: str
    device_name: str
    library: str | None
    missing: str = ""
    no_chip: str = ""
    priority: int = 10
    create_options: Mapping[str, Option] = field(default_factory=dict)
    compile_overrides: Mapping[str, Option] = field(default_factory=dict)
    override_operations: tuple[str, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    compile_only_environment: Mapping[str, str] = field(default_factory=dict)
    chips: Mapping[str, Chip] = field(default_factory=dict)
    quirks: tuple[str, ...] = ()


def library_in_package(package: str, file: str) -> str | None:
    """Path of ``file`` inside an installed package, without importing it; ``None`` if it is not there."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (found.submodule_search_locations if found else None) or ():
        path = os.path.join(folder, file)
        if os.path.exists(path):
            return path
    return None


def first_that_exists(*paths: str | None) -> str | None:
    """The first path that is there; shell patterns (``/dev/accel*``) are fine."""
    return next((found for path in paths if path for found in sorted(glob.glob(path))), None)
