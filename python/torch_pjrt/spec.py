"""What a plugin package tells us about its PJRT library."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Option", "PluginSpec", "library_in_package"]

Option = bool | int | float | str


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
        priority: the available spec with the greatest priority wins; the CPU plugin has 0.
        create_options: options of ``PJRT_Client_Create``.
        compile_overrides: compiler flags by name, for the programs with one of ``override_operations``.
        override_operations: StableHLO operations (``"maximum"``) that need the overrides; empty: all programs.
        capabilities: overrides of detected capabilities (see ``python -m torch_pjrt``).
        environment: variables set before the library is loaded, unless they are set already.

    Example:
        >>> PluginSpec(name="acme", device_name="acme", library="/opt/acme/pjrt.so", priority=10)
        PluginSpec(name='acme', device_name='acme', library='/opt/acme/pjrt.so', ...)
    """

    name: str
    device_name: str
    library: str | None
    missing: str = ""
    priority: int = 10
    create_options: Mapping[str, Option] = field(default_factory=dict)
    compile_overrides: Mapping[str, Option] = field(default_factory=dict)
    override_operations: tuple[str, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


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
