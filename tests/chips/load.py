"""The plugins that pip installs, on a machine without their chips: each loads, or says in plain words what is missing.

    pip install --no-deps --target FOLDER jax-cuda13-pjrt jax-rocm7-pjrt jax-oneapi-pjrt
    python tests/chips/load.py FOLDER

Asks the doctor about each. Exits 1 when one crashes, hangs, is not found, or fails without a reason.
"""

from __future__ import annotations

import os
import subprocess
import sys

from torch_pjrt import doctor

PLUGINS = ("cuda", "oneapi", "rocm", "tpu")
SECONDS = 90


def problem(plugin: str, folder: str) -> str:
    """``""``, or what is wrong with the doctor's answer."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]),
        "TORCH_PJRT_PLUGIN": plugin,
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    command = [sys.executable, "-m", "torch_pjrt", "doctor", "--timeout", str(SECONDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * SECONDS)
    answer = next((line for line in done.stdout.splitlines() if line.startswith("Device ")), "no answer")
    print(f"{plugin}: {done.returncode}: {answer}")
    if done.returncode == doctor.WORKS:  # its chip is here
        return ""
    reasons = ("cannot be loaded as a shared library", "PJRT_Client_Create")
    if done.returncode == doctor.NO_CHIP and any(r in answer for r in reasons) and "What to do: " in done.stdout:
        return ""
    return f"{plugin}: exit code {done.returncode}\n{done.stdout}{done.stderr}"


def main() -> int:
    problems = [p for p in (problem(plugin, sys.argv[1]) for plugin in PLUGINS) if p]
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
