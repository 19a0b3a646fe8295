"""``python -m torch_pjrt``: versions, plugin, capabilities, devices, and what is wrong if something is."""

from __future__ import annotations

import sys

import torch

import torch_pjrt
from torch_pjrt import _C, _discovery


def main() -> int:
    """Prints the report; 0 when the device works, 1 when it does not."""
    print(f"torch_pjrt {torch_pjrt.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    print("\nPlugins:")
    for name, spec in _discovery.specs().items():
        if isinstance(spec, Exception):
            print(f"  {name}: cannot describe itself: {spec!r}")
        else:
            print(f"  {name}: {spec.library or 'not installed: ' + spec.missing}")
    device = torch_pjrt.device_name()
    print("\nSwitches:")
    for flag, value, text in _C.flags():
        print(f"  {flag}={value or '-'}  {text}")
    try:
        about = _C.describe()
        total = (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).sum().item()
    except Exception as error:
        print(f"\nDevice '{device}' does not work: {error}")
        return 1
    print(f"\nDevice '{device}': plugin {about['plugin']} ({about['path']})")
    print(f"  PJRT API 0.{about['api_minor']}, platform {about['platform']} {about['platform_version']}")
    for index, kind in enumerate(about["devices"]):
        print(f"  {device}:{index}  {kind}")
    print("  capabilities:")
    for name, value, text in about["capabilities"]:
        print(f"    {name} = {value or '-'}  ({text})")
    print(f"  check: 2x2 ones @ ones sums to {total} (expected 8.0)")
    return 0 if total == 8.0 else 1


if __name__ == "__main__":
    sys.exit(main())
