"""Checks the arrows between the folders of csrc: who may include whom, who may see torch, who may see Python.

    python tools/check_layers.py [--root DIR]

Prints one line per violation and exits 1 if there is any. LAYERS below is the layer table of docs/design.md; a new
folder or arrow is added there and here, in one commit. The link lines of csrc/*/CMakeLists.txt are held to the same
table.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layer:
    """What a folder may include beside itself."""

    folders: tuple[str, ...]
    torch: bool = False
    python: bool = False
    pjrt_headers: bool = False


CORE = ("base", "pjrt", "hlo", "lower", "compile")
BELOW_DOORS = (*CORE, "runtime", "exec")

LAYERS = {
    "base": Layer(()),
    "pjrt": Layer(("base",), pjrt_headers=True),
    "hlo": Layer(("base",)),
    "lower": Layer(("base", "hlo")),
    "compile": Layer(("base", "pjrt", "hlo")),
    "runtime": Layer(("base", "pjrt"), torch=True),
    "exec": Layer((*CORE, "runtime"), torch=True),
    "eager": Layer(BELOW_DOORS, torch=True),
    "bridge": Layer(BELOW_DOORS, torch=True),
    "dist": Layer(BELOW_DOORS, torch=True),
    "kernels": Layer(BELOW_DOORS, torch=True, pjrt_headers=True),
    "profiler": Layer(("base", "pjrt", "runtime"), torch=True),
    "bindings": Layer((*BELOW_DOORS, "eager", "bridge", "dist", "kernels", "profiler"), torch=True, python=True),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<quote>["<])(?P<path>[^">]+)[">]')
TORCH = ("ATen", "c10", "caffe2", "torch")
# Python's own header, pybind11, and those of torch's headers that bring one of them along.
PYTHON = re.compile(r"(^|/)(Python\.h|pybind\.h|python_\w+\.h)$|^pybind11/|^torch/(extension|python)\.h$")
LINKS = re.compile(r"tpj_folder\(\s*\w+.*?\bLINKS\b(?P<names>[^)]*)\)", re.S)


def judge_include(folder: str, quote: str, path: str) -> str | None:
    """Returns what is wrong with this include in csrc/`folder`, or None."""
    layer = LAYERS[folder]
    top = path.split("/")[0] if "/" in path else ""
    if PYTHON.search(path):
        return None if layer.python else f"{folder} may not include Python's headers"
    if top in TORCH:
        return None if layer.torch else f"{folder} may not include torch"
    if top == "xla":
        return None if layer.pjrt_headers else f"{folder} may not include the PJRT headers"
    if top in LAYERS:
        return None if top == folder or top in layer.folders else f"{folder} may not include {top}"
    if quote == '"':
        return 'our headers are included as "folder/file.h", where folder is one of csrc'
    return None


def find_violations(root: Path) -> Iterator[str]:
    """Yields "file:line: what is wrong" for everything below root/csrc."""
    csrc = root / "csrc"
    for path in sorted(csrc.rglob("*")):
        folder = path.relative_to(csrc).parts[0]
        name = path.relative_to(root)
        if path.is_dir() or (path.suffix not in (".h", ".cpp") and path.name != "CMakeLists.txt"):
            continue
        if folder not in LAYERS:
            yield f"{name}: csrc/{folder} is not in the layer table"
            continue
        text = path.read_text()
        if path.name == "CMakeLists.txt":
            links = LINKS.search(text)
            for link in links["names"].split() if links else ():
                link = link.removeprefix("tpj_")
                if link in LAYERS and link not in LAYERS[folder].folders:
                    yield f"{name}: {folder} may not link {link}"
            continue
        for number, line in enumerate(text.splitlines(), 1):
            include = INCLUDE.match(line)
            problem = include and judge_include(folder, include["quote"], include["path"])
            if problem:
                yield f"{name}:{number}: {line.strip()}: {problem}"


def main() -> None:
    parser = argparse.ArgumentParser(description="check the arrows between the folders of csrc")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = list(find_violations(parser.parse_args().root))
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations")
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
