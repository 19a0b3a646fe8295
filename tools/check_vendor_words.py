"""Keeps the names of vendors and of their chips out of the core.

    python tools/check_vendor_words.py [--root DIR]

The core asks a plugin for capabilities, never who made it. So csrc/ and python/torch_pjrt/ may not contain a vendor's
word, neither in code nor in comments; python/torch_pjrt/plugins/, docs, tests, examples and tools may. A word counts
as a whole word, its plural, or a part of an identifier: `is_cuda`, `CudaGuard` and `kCUDA` hold "cuda",
`relationship` does not hold "hip". Prints one line per violation and exits 1 if there is any.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

WORDS = frozenset(
    """
    amd apple ascend cuda cudnn gaudi google habana hip inferentia intel libtpu metal miopen mps mtia musa neuron
    nvidia oneapi qualcomm rocm sycl tenstorrent tpu trainium xpu
    """.split()
)

GUARDED = ("csrc", "python/torch_pjrt")
EXEMPT = ("python/torch_pjrt/plugins",)
SUFFIXES = (".cpp", ".h", ".py", ".pyi", ".txt")

# (file, word): why it cannot be avoided there. An entry that no longer matches anything is an error too.
ALLOWED: dict[tuple[str, str], str] = {}

# An identifier's parts: a capital run (CUDA, or with its plural: TPUs), a capitalised or a lower-case word. Underscores
# and digits separate; the "k" of a constant (kCUDA) falls off as a word of its own.
PART = re.compile(r"[A-Z]{2,}s\b|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def find_words(line: str) -> set[str]:
    """Returns the vendor words in a line.

    >>> sorted(find_words("if (t.is_cuda() || device == kXPU) // CudaGuard, on TPUs"))
    ['cuda', 'tpu', 'xpu']
    """
    parts = {part.lower() for part in PART.findall(line)}
    return (parts | {part.removesuffix("s") for part in parts}) & WORDS


def find_violations(root: Path) -> Iterator[str]:
    """Yields "file:line: what is wrong" for the guarded folders below root."""
    used = set()
    for guarded in GUARDED:
        for path in sorted((root / guarded).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_dir() or path.suffix not in SUFFIXES or name.startswith(tuple(f"{e}/" for e in EXEMPT)):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for word in sorted(find_words(line)):
                    if (name, word) in ALLOWED:
                        used.add((name, word))
                    else:
                        yield f"{name}:{number}: vendor word '{word}': {line.strip()}"
    for name, word in sorted(ALLOWED.keys() - used):
        yield f"tools/check_vendor_words.py: '{word}' is allowed in {name}, but does not occur there"


def main() -> None:
    parser = argparse.ArgumentParser(description="keep vendor words out of the core")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = list(find_violations(parser.parse_args().root))
    for violation in violations:
        print(violation)
    print(f"vendor words: {len(violations)} violations")
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
