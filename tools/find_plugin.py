"""Prints the path of the plugin library inside an installed package, without importing it.

python tools/find_plugin.py lammps_jax_pjrt_cpu
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    package = sys.argv[1]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"package {package} is not installed")
    libraries = sorted(Path(spec.submodule_search_locations[0]).glob("*.so"))
    if len(libraries) != 1:
        raise SystemExit(f"package {package} has {len(libraries)} shared libraries, expected one plugin")
    print(libraries[0])


if __name__ == "__main__":
    main()
