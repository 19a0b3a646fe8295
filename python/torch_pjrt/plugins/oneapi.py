"""Intel's GPUs through XLA: the package jax-oneapi-pjrt, without JAX."""

from __future__ import annotations

from torch_pjrt.spec import PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """The library of the package jax-oneapi-pjrt."""
    return PluginSpec(
        name="oneapi",
        device_name="pjrt",
        library=library_in_package("jax_plugins.xla_oneapi", "xla_oneapi_plugin.so"),
        missing="install a oneAPI plugin: pip install --no-deps jax-oneapi-pjrt (it needs Intel's oneAPI runtime)",
        no_chip="" if first_that_exists("/dev/dri/renderD*") else "this machine shows no GPU (/dev/dri/renderD128)",
        priority=15,
        create_options={"platform_name": "SYCL"},
        environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
