"""NVIDIA's GPUs through XLA: the package jax-cuda13-pjrt or jax-cuda12-pjrt, without JAX."""

from __future__ import annotations

import os

from torch_pjrt.spec import Chip, PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]

# name: (compute capability, multiprocessors, GHz, bytes of memory, bytes/s, bytes of L2, bytes of shared memory of a
# multiprocessor, peak in FLOP/s for bf16 without sparsity), from NVIDIA's data sheets and CUDA's programming guide.
_CHIPS = {
    "a100": ((8, 0), 108, 1.41, 80 << 30, 2039e9, 40 << 20, 164 << 10, 312e12),
    "l4": ((8, 9), 58, 2.04, 24 << 30, 300e9, 48 << 20, 100 << 10, 121e12),
    "h100": ((9, 0), 132, 1.98, 80 << 30, 3350e9, 50 << 20, 228 << 10, 989e12),
    "h200": ((9, 0), 132, 1.98, 141 << 30, 4800e9, 50 << 20, 228 << 10, 989e12),
}


def _chip(
    name: str,
    capability: tuple[int, int],
    cores: int,
    clock: float,
    memory: int,
    bandwidth: float,
    l2: int,
    shared: int,
    peak: float,
) -> Chip:
    """The compiler wants the chip as the text of its GpuTargetConfigProto."""
    description = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "threads_per_core_limit": 1536 if capability == (8, 9) else 2048,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_block_optin": shared - 1024,
        "shared_memory_per_core": shared,
        "registers_per_core_limit": 1 << 16,
        "registers_per_block_limit": 1 << 16,
        "core_count": cores,
        "fpus_per_core": 64 if capability == (8, 0) else 128,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(bandwidth),
        "l2_cache_size": l2,
        "clock_rate_ghz": clock,
        "device_memory_size": memory,
    }
    fields = " ".join(f"{name}: {value}" for name, value in description.items())
    version = f"cuda_compute_capability {{ major: {capability[0]} minor: {capability[1]} }}"
    config = f'gpu_device_info {{ {fields} {version} }} platform_name: "CUDA" dnn_version_info {{ major: 9 }}'
    config += f' device_description_str: "NVIDIA {name.upper()}"'
    return Chip("gpu", "", peak, bandwidth, memory, {"topology": "1x1x1", "target_config": config})


def spec() -> PluginSpec:
    """The newest of the two builds that is installed."""
    library = next(
        (
            path
            for version in ("13", "12")
            if (path := library_in_package(f"jax_plugins.xla_cuda{version}", "xla_cuda_plugin.so"))
        ),
        None,
    )
    # ptxas and libdevice, from the packages nvidia-cuda-nvcc and nvidia-nvvm.
    tools = library_in_package("nvidia", "cu13") if library else None
    return PluginSpec(
        name="cuda",
        device_name="pjrt",  # "cuda" is PyTorch's own
        library=library,
        missing="install a CUDA plugin: pip install --no-deps jax-cuda13-pjrt",
        no_chip="" if first_that_exists("/dev/nvidia0") else "this machine shows no NVIDIA GPU (/dev/nvidia0)",
        priority=20,
        # PyTorch's own CUDA build may live in the same process: take memory as it is needed.
        create_options={"preallocate": False},
        compile_overrides={"xla_gpu_cuda_data_dir": tools} if tools else {},
        environment={"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")},
        chips={name: _chip(name, *data) for name, data in _CHIPS.items()},
        quirks=("Without a CUDA toolkit: pip install nvidia-cuda-nvcc nvidia-nvvm (ptxas and libdevice).",),
    )
