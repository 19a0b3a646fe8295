"""A test process for each core: more threads in each would only wait for one another."""

from __future__ import annotations

import os

import torch


def one_core() -> None:
    """One thread for the CPU's operators and, where there are several processes, one for the compiler as well.

    The CPU plugin's compiler cuts each program in 32 pieces for its threads, which costs about a tenth of its time. The
    plugin reads the flag when its client is made; a compile option of each program would change how it is executed.
    """
    torch.set_num_threads(1)
    if "PYTEST_XDIST_WORKER" not in os.environ or os.environ.get("TORCH_PJRT_TEST_DEVICE") or "XLA_FLAGS" in os.environ:
        return
    import torch_pjrt
    from torch_pjrt import _discovery

    if _discovery.choose().name != "cpu":
        return
    os.environ["XLA_FLAGS"] = "--xla_cpu_parallel_codegen_split_count=1"
    torch_pjrt._C.init()
    del os.environ["XLA_FLAGS"]  # not for the processes that tests start, which may load other plugins
