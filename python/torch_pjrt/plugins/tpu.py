"""Google's TPU: the package libtpu runs on a TPU machine, and compiles for any TPU without one."""

from __future__ import annotations

import os
import tempfile

from torch_pjrt.spec import Chip, PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]

_GENERATIONS = "https://cloud.google.com/tpu/docs/system-architecture-tpu-vm"
# name: (topology, smallest shape, peak in FLOP/s for bf16, bytes/s), all of a chip. Memory: the topology tells.
_CHIPS = {
    "v2": ("v2:{shape}", "2x2", 45e12, 700e9),
    "v3": ("v3:{shape}", "2x2", 123e12, 900e9),
    "v4": ("v4:{shape}", "2x2x1", 275e12, 1228e9),
    "v5e": ("v5e:{shape}", "1x1", 197e12, 819e9),
    "v5p": ("v5:{shape}", "2x2x1", 459e12, 2765e9),
    "v6e": ("v6e:{shape}", "1x1", 918e12, 1640e9),
    "tpu7x": ("tpu7x:{shape}", "2x2x1", 2307e12, 7380e9),
}


def spec() -> PluginSpec:
    """TPU_LIBRARY_PATH, or the package's library."""
    chip = first_that_exists("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
    return PluginSpec(
        name="tpu",
        device_name="tpu",
        library=first_that_exists(os.environ.get("TPU_LIBRARY_PATH")) or library_in_package("libtpu", "libtpu.so"),
        missing="install the TPU's runtime: pip install libtpu",
        no_chip="" if chip else "this machine shows no TPU (/dev/accel0 or /dev/vfio/0)",
        priority=30,
        # Matrix products of float32 run in float32: lower precision is the user's explicit choice.
        capabilities={"complex128_fft": "false", "int64_division": "false", "int64_dot": "false"},
        environment={
            # Off Google's cloud each key of the metadata server is asked for 30 times, for minutes.
            **({} if chip else {"TPU_SKIP_MDS_QUERY": "1"}),
            "TPU_LOG_DIR": os.path.join(tempfile.gettempdir(), "tpu_logs"),
            "TPU_MIN_LOG_LEVEL": "3",
            "TPU_STDERR_LOG_LEVEL": "3",
        },
        # Who only compiles disturbs nobody.
        compile_only_environment={"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
        chips={name: Chip(*data, source=_GENERATIONS) for name, data in _CHIPS.items()},
        quirks=(
            "One process at a time: a second one fails with a lock file's name. ALLOW_MULTIPLE_LIBTPU_LOAD=1 allows "
            "compile-only processes side by side (jax-ml/jax#10192).",
            "Vector division of 64-bit integers takes minutes to compile: ours is made of 32-bit steps.",
            "An all_reduce whose groups name more devices than the options aborts the process: refused before.",
        ),
    )
