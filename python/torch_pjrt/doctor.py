"""What works on this machine, what does not, and what to do about it.

Plugins are tried in processes of their own, for a bounded time: one that hangs or crashes while it looks for its chip
is a line in the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import torch

import torch_pjrt
from torch_pjrt import _C, _discovery
from torch_pjrt.spec import PluginSpec

__all__ = ["NO_CHIP", "NO_PLUGIN", "WORKS", "Trial", "diagnose", "try_plugin"]

# Exit codes of `python -m torch_pjrt doctor`.
WORKS = 0
FAILS = 1
NO_PLUGIN = 2
NO_CHIP = 3

_PROBE = """
import json, torch, torch_pjrt
device = torch_pjrt.device_name()
about = torch_pjrt._C.describe()
total = (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).sum().item()
print("\\n" + json.dumps(about | {"device": device, "total": total}))
"""


@dataclass(frozen=True)
class Trial:
    """One plugin, loaded and used: ``about`` is what it says of itself, ``error`` why it does not work."""

    about: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def try_plugin(name: str, timeout: float = 60.0) -> Trial:
    """Loads a registered plugin (or a library by path) in a process of its own and multiplies two matrices."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "TORCH_PJRT_PLUGIN": name},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return Trial(error=f"it did not answer within {timeout:g} s: it may be waiting for its chip")
    if done.returncode < 0:
        return Trial(error=f"it crashed (signal {-done.returncode})")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = [line for line in done.stderr.strip().splitlines() if line and not line.startswith((" ", "Traceback"))]
        return Trial(error=said[-1] if said else f"it ended with status {done.returncode}")
    about = json.loads(lines[-1])
    if about["total"] != 8.0:
        return Trial(about, f"2x2 ones @ ones sums to {about['total']}, expected 8.0")
    return Trial(about)


def _state(spec: PluginSpec | Exception, used: bool) -> str:
    if isinstance(spec, Exception):
        return f"cannot describe itself: {spec!r}"
    if not spec.library:
        return f"not installed. {spec.missing[:1].upper()}{spec.missing[1:]}."
    state = "in use" if used else "installed"
    if spec.no_chip:
        state += f"; {spec.no_chip}" + ("" if used else ", so that it is used only when TORCH_PJRT_PLUGIN names it")
        if spec.chips:
            state += f". It can compile for chips that are not here: {', '.join(spec.chips)}"
    return f"{state} ({spec.library})"


def diagnose(every: bool = False, timeout: float = 60.0) -> int:
    """Prints the report and returns the exit code: 0 the device works, 1 it does not, 2 no plugin is installed, 3 the
    plugin that was asked for is there and its chip is not.

    Args:
        every: try all plugins that are installed, not only the one in use.
        timeout: seconds that each may take.
    """
    print(f"torch_pjrt {torch_pjrt.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    specs = _discovery.specs()
    chosen = _discovery.choose()
    print("\nPlugins:")
    for name, spec in sorted(specs.items()):
        used = isinstance(spec, PluginSpec) and spec == chosen
        print(f"  {name}: {_state(spec, used)}")
        for quirk in spec.quirks if used and isinstance(spec, PluginSpec) else ():
            print(f"    note: {quirk}")
    print("\nSwitches:")
    for flag, value, text in _C.flags():
        print(f"  {flag}={value or '-'}  {text}")
    device = torch_pjrt.device_name()
    if not chosen.library:
        print(f"\nDevice '{device}' does not work: {chosen.missing}")
        return NO_PLUGIN
    others = [n for n, s in specs.items() if isinstance(s, PluginSpec) and s.library and s != chosen] if every else []
    for name in others:
        trial = try_plugin(name, timeout)
        print(f"\nPlugin '{name}': " + (trial.error or f"works, {len(trial.about['devices'])} device(s)"))
    trial = try_plugin(chosen.name if chosen.name in specs else chosen.library, timeout)
    if trial.error:
        print(f"\nDevice '{device}' does not work: {trial.error}")
        if chosen.no_chip:
            here = " `torch_pjrt.target` compiles for it here." if chosen.chips else ""
            print(f"What to do: run it where the chip is; {chosen.no_chip}.{here}")
        return NO_CHIP if chosen.no_chip else FAILS
    about = trial.about
    print(f"\nDevice '{device}': plugin {about['plugin']} ({about['path']})")
    print(f"  PJRT API 0.{about['api_minor']}, platform {about['platform']} {about['platform_version']}")
    for index, kind in enumerate(about["devices"]):
        print(f"  {device}:{index}  {kind}")
    print("  capabilities:")
    for name, value, text in about["capabilities"]:
        print(f"    {name} = {value or '-'}  ({text})")
    print(f"  check: 2x2 ones @ ones sums to {about['total']} (expected 8.0)")
    return WORKS
