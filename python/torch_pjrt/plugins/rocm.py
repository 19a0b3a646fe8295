"""AMD's GPUs through XLA: the package jax-rocm7-pjrt, without JAX."""

from __future__ import annotations

from torch_pjrt.spec import PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """The library of the package jax-rocm7-pjrt."""
    return PluginSpec(
        name="rocm",
        device_name="pjrt",
        library=library_in_package("jax_plugins.xla_rocm7", "xla_rocm_plugin.so"),
        missing="install a ROCm plugin: pip install --no-deps jax-rocm7-pjrt (it needs ROCm 7 on the machine)",
        no_chip="" if first_that_exists("/dev/kfd") else "this machine shows no AMD GPU (/dev/kfd)",
        priority=20,
        create_options={"platform_name": "ROCM", "preallocate": False},
        environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
