"""Tenstorrent's cards: pjrt-plugin-tt, from Tenstorrent's own package index."""

from __future__ import annotations

from torch_pjrt.spec import PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """The library of the package pjrt-plugin-tt."""
    chip = first_that_exists("/dev/tenstorrent/[0-9]*")
    return PluginSpec(
        name="tenstorrent",
        device_name="pjrt",
        library=library_in_package("pjrt_plugin_tt", "pjrt_plugin_tt.so"),
        missing="install pjrt-plugin-tt from Tenstorrent's package index",
        no_chip="" if chip else "this machine shows no Tenstorrent card (/dev/tenstorrent/0)",
        priority=20,
        # 64-bit floats are taken at the border and computed narrower.
        capabilities={"float64": "false", "portable_executables": "false"},
        quirks=("Its client ignores create options; no extensions, no serialization (tenstorrent/tt-xla).",),
    )
