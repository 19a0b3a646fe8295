"""XLA's CPU plugin, the embedded default: everything works, and is tested, on a laptop."""

from __future__ import annotations

import os

from torch_pjrt.spec import Option, PluginSpec, library_in_package

__all__ = ["SOURCES", "spec"]

# Package and file of each supported build, best first. lammps-jax-pjrt-cpu can run a program on the
# caller's thread (4 us a dispatch against 20).
SOURCES: tuple[tuple[str, str, dict[str, bool]], ...] = (
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so", {"asynchronous": False}),
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so", {}),
)


def options_of(path: str) -> dict[str, Option]:
    """Create options that this build of the plugin knows, by the library's file name."""
    return next((dict(o) for _, file, o in SOURCES if os.path.basename(path) == file), {})


def spec() -> PluginSpec:
    """The first build that is installed."""
    paths = (library_in_package(package, file) for package, file, _ in SOURCES)
    library = next((p for p in paths if p), None)
    return PluginSpec(
        name="cpu",
        device_name="pjrt",
        library=library,
        missing="install the CPU plugin: pip install --no-deps lammps-jax-pjrt-cpu==0.11.2 "
        "(or fastatomstruct-xla-cpu==2026.6.23)",
        priority=0,
        create_options=(options_of(library) if library else {})
        | {"cpu_device_count": int(os.environ.get("TORCH_PJRT_CPU_DEVICES") or 1)},
        # maximum(1, NaN) is NaN, as IEEE 754-2019 and PyTorch say; and each of several calls in one program rounds to
        # bfloat16 as it would alone. Only where it matters: a program with any override costs 1.3 us more per execution
        # (4.4 instead of 3.1 for an addition of 16 elements).
        compile_overrides={"xla_cpu_enable_fast_min_max": False, "xla_allow_excess_precision": False},
        override_operations=("maximum", "minimum", "clamp"),
        capabilities={"host_visible_buffers": "true"},
        # Errors only: the plugin logs its options to stderr when it starts.
        environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
