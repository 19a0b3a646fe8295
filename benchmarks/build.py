"""Seconds to build from nothing, and after a change in one row, in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Limit, Report

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("CMakeLists.txt", "LICENSE", "README.md", "cmake", "csrc", "python", "pyproject.toml", "tests/cpp", "tools")
ROW_FILE = "csrc/lower/pointwise.cpp"


def run(rounds: int) -> Report:
    tools = Path(sys.executable).parent
    report = Report(["seconds", "value"])
    with tempfile.TemporaryDirectory(prefix="torch-pjrt-build-") as folder:
        source, build = Path(folder) / "source", Path(folder) / "build"
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("*.so", "__pycache__")
                shutil.copytree(ROOT / name, source / name, ignore=ignored)
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, source / name)

        def seconds(*command: str | Path) -> float:
            start = time.perf_counter()
            # A compiler cache would make this a measurement of the cache.
            environment = {**os.environ, "CCACHE_DISABLE": "1"}
            subprocess.run([str(part) for part in command], check=True, env=environment, stdout=subprocess.DEVNULL)
            return time.perf_counter() - start

        ninja = tools / "ninja"
        configure = seconds(
            tools / "cmake",
            *("-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_MAKE_PROGRAM={ninja}"),
            f"-DPython3_EXECUTABLE={sys.executable}",
        )
        full = seconds(ninja, "-C", build)
        with (source / ROW_FILE).open("a") as file:
            file.write("\n// changed\n")
        row = seconds(ninja, "-C", build)
        idle = seconds(ninja, "-C", build)
    report.rows += [["configure", configure], ["build from nothing", full], [f"after a change in {ROW_FILE}", row]]
    report.rows.append(["nothing to do", idle])
    report.limits = [
        Limit("configure and build from nothing, s", configure + full, 480),
        Limit("after a change in one row, s", row, 20),
    ]
    report.remarks = [f"{os.cpu_count()} cores, without ccache; load before: {os.getloadavg()[0]:.1f}"]
    return report
