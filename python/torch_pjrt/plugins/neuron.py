"""Amazon's Trainium and Inferentia: libneuronxla, from Amazon's own package index."""

from __future__ import annotations

import os

from torch_pjrt.spec import PluginSpec, first_that_exists, library_in_package

__all__ = ["spec"]


def spec() -> PluginSpec:
    """The library of the package libneuronxla."""
    return PluginSpec(
        name="neuron",
        device_name="neuron",
        library=first_that_exists(os.environ.get("NEURON_LIBRARY_PATH"))
        or library_in_package("libneuronxla", "libneuronpjrt.so"),
        missing="install libneuronxla (3 or later) and neuronx-cc from Amazon's package index, and "
        "aws-neuronx-runtime-lib; the packages of these names on PyPI are empty",
        no_chip="" if first_that_exists("/dev/neuron0") else "this machine shows no Neuron device (/dev/neuron0)",
        priority=30,
        capabilities={
            "completion_events": "true",  # ZML's runner found that executions need them
            "float64": "false",  # its compiler makes float32 of it
            "sort_functions": "false",  # the known issues below
        },
        # The compiler is a Python program and asks which C API it serves.
        environment={"NEURON_INTERNAL_PJRT_C_API_VERSION": "0.114"},
        quirks=(
            "No conditionals, and only loops with a static bound (AWS Neuron's known issues of JAX support).",
            "No FP8 but e4m3 and e5m2; complex numbers hardly work (the same page).",
        ),
    )
