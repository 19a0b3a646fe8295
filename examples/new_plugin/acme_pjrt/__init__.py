"""The Acme chip, as an example: its "library" is XLA's CPU plugin, so that it runs anywhere."""

from __future__ import annotations

from torch_pjrt.spec import PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """Where the library is, and what no API tells of the chip."""
    return PluginSpec(
        name="acme",
        device_name="acme",  # torch.device("acme")
        # A real package has its own: library_in_package("acme_pjrt", "libacme_pjrt.so")
        library=library_in_package("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
        missing="install acme-pjrt on an Acme machine",
        no_chip="" if first_that_exists("/dev/null") else "this machine shows no Acme card (/dev/acme0)",
        priority=30,  # above the CPU plugin's 0: a real chip wins
        create_options={"asynchronous": False, "cpu_device_count": 1},
        # maximum and minimum of this compiler drop NaN unless it is told not to.
        compile_overrides={"xla_cpu_enable_fast_min_max": False},
        override_operations=("maximum", "minimum", "clamp"),
        capabilities={"host_visible_buffers": "true"},
        environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
