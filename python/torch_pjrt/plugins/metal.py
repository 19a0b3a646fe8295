"""Apple's GPUs: the package metal-pjrt-core (XLA on Metal)."""

from __future__ import annotations

import sys

from torch_pjrt.spec import PluginSpec, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """The library of the package metal-pjrt-core."""
    return PluginSpec(
        name="metal",
        device_name="pjrt",
        library=library_in_package("metal_pjrt_core", "pjrt_c_api_mtl_plugin.dylib"),
        missing="install a Metal plugin on a Mac: pip install metal-pjrt-core (macOS 26, Python 3.12)",
        no_chip="" if sys.platform == "darwin" else "Metal is for Macs only",
        priority=20,
        capabilities={"float64": "false"},
    )
