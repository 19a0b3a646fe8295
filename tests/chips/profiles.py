"""Chips that are not there: the CPU plugin behind tests/fake_plugin/forwarding_plugin.cpp, without what they lack."""

from __future__ import annotations

from pathlib import Path

import torch_pjrt

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "build" / "tests" / "cpp" / "fake_plugin" / "fake_forwarding.so"
NO_FAKE = "the fake plugins are built with the C++ tests, which need GoogleTest"

PROFILES = {
    # Like a TPU: 64-bit floats are emulated, divisions and products of int64 are missing, buffers are not host memory.
    "tpu": {
        "FAKE_PLATFORM": "tpu",
        "FAKE_WITHOUT": "PJRT_Device_MemoryStats,PJRT_Buffer_UnsafePointer,PJRT_Client_CreateUninitializedBuffer",
        "TORCH_PJRT_CAPABILITIES": "host_visible_buffers=false,int64_division=false,int64_dot=false,"
        "complex128_fft=false",
        "TORCH_PJRT_DEVICE_NAME": "tpu",
    },
    # Like Trainium: no 64-bit floats, no donation, no serialization, no extensions, sorts by one comparison.
    "neuron": {
        "FAKE_PLATFORM": "neuron",
        "FAKE_WITHOUT": "PJRT_Device_MemoryStats,PJRT_Buffer_UnsafePointer,PJRT_Client_CreateUninitializedBuffer,"
        "PJRT_Executable_Serialize,PJRT_Executable_DeserializeAndLoad,PJRT_Executable_Fingerprint,extensions",
        "FAKE_REFUSES": "f64,stablehlo.custom_call,reduce_precision,tf.aliasing_output,sort_functions",
        "TORCH_PJRT_CAPABILITIES": "host_visible_buffers=false,completion_events=true,float64=false,donation=false,"
        "sort_functions=false",
        "TORCH_PJRT_DEVICE_NAME": "neuron",
    },
    # Like no chip we know: nothing has 64 bits.
    "slim": {
        "FAKE_PLATFORM": "slim",
        "FAKE_REFUSES": "f64,int64",
        "TORCH_PJRT_CAPABILITIES": "float64=false,int64=false",
        "TORCH_PJRT_DEVICE_NAME": "slim",
    },
}


def environment(profile: str = "") -> dict[str, str]:
    """Variables for a process that uses the fake plugin; without a profile it has all that the CPU plugin has."""
    real = torch_pjrt.versions()["path"]
    return {"TORCH_PJRT_PLUGIN": str(FAKE), "FAKE_REAL": real, **PROFILES.get(profile, {})}
