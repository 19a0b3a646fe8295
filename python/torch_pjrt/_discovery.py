"""Which plugin this process uses: by path, by name, or the best that is installed."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.metadata import entry_points

from torch_pjrt.spec import PluginSpec

__all__ = ["choose", "specs"]


def specs() -> dict[str, PluginSpec | Exception]:
    """Every registered plugin by entry point name; the exception of one that fails to describe itself."""
    found: dict[str, PluginSpec | Exception] = {}
    for entry in entry_points(group="torch_pjrt.plugins"):
        try:
            found[entry.name] = entry.load()()
        except Exception as error:  # a broken plugin package must not take the others down
            found[entry.name] = error
    return found


def _nothing(reason: str) -> PluginSpec:
    return PluginSpec(name="none", device_name="pjrt", library=None, missing=reason)


def _by_path(path: str, known: dict[str, PluginSpec | Exception]) -> PluginSpec:
    """The spec whose library has the same file name, with this path; else one without options."""
    if not os.path.exists(path):
        return _nothing(f"TORCH_PJRT_PLUGIN: no such file: {path}")
    from torch_pjrt.plugins import cpu

    if os.path.basename(path) in {file for _, file, _ in cpu.SOURCES}:
        spec = cpu.spec()
        count = {"cpu_device_count": spec.create_options["cpu_device_count"]}
        return replace(spec, library=path, create_options=cpu.options_of(path) | count)
    for other in known.values():
        if isinstance(other, PluginSpec) and other.library:
            if os.path.basename(other.library) == os.path.basename(path):
                return replace(other, library=path)
    return PluginSpec(name="path", device_name="pjrt", library=path)


def choose() -> PluginSpec:
    """The plugin of this process. Never raises: a spec without a library says what is missing."""
    wanted = os.environ.get("TORCH_PJRT_PLUGIN", "")
    known = specs()
    if wanted and wanted not in known:
        if os.sep in wanted or wanted.endswith((".so", ".dylib", ".dll")):
            return _by_path(wanted, known)
        names = ", ".join(sorted(known)) or "none"
        return _nothing(f"TORCH_PJRT_PLUGIN={wanted} names no registered plugin (registered: {names}) and no file")
    if wanted:
        spec = known[wanted]
        if isinstance(spec, Exception):
            return _nothing(f"plugin '{wanted}' cannot describe itself: {spec!r}")
        return spec
    usable = [s for s in known.values() if isinstance(s, PluginSpec)]
    best = max((s for s in usable if s.library and not s.no_chip), key=lambda s: s.priority, default=None)
    if best:
        return best
    hints = "; ".join(s.missing for s in usable if s.missing)
    return _nothing(f"no PJRT plugin is installed. {hints}" if hints else "no PJRT plugin is installed")
