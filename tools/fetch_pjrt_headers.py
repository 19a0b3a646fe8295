"""Fetches the PJRT and XLA FFI headers into a folder.

    python tools/fetch_pjrt_headers.py build/pjrt_headers

The headers are the `vendor/` folder of a source package which cmake/pjrt_headers.txt pins by version and SHA-256. pip
fetches it, from whatever index pip is set up to use, and refuses another checksum before it looks into the archive; we
check it once more before unpacking. A folder that already holds this version is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PIN_FILE = Path(__file__).resolve().parent.parent / "cmake" / "pjrt_headers.txt"


def read_pin(pin_file: Path) -> tuple[str, str]:
    """Returns (requirement, SHA-256) of the single pinned line."""
    pin = re.search(r"^(\S+==\S+) --hash=sha256:([0-9a-f]{64})$", pin_file.read_text(), re.M)
    if pin is None:
        raise SystemExit(f"{pin_file} does not pin one package by version and SHA-256")
    return pin.group(1), pin.group(2)


def download(pin_file: Path, requirement: str, folder: Path) -> Path:
    """Has pip download the source archive into `folder` and returns its path."""
    package = requirement.split("==")[0]
    # Only this package is wanted as source: its build backend, which pip runs for the metadata, may come as a wheel.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", package, "--require-hashes", "--dest", str(folder), "-r", str(pin_file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    archives = sorted(folder.glob("*.tar.gz"))
    if done.returncode != 0 or len(archives) != 1:
        raise SystemExit(f"pip could not download {requirement}:\n{done.stdout}")
    return archives[0]


def unpack(archive: Path, sha256: str, target: Path) -> int:
    """Unpacks the archive's `vendor/` into `target`, which must not exist; returns the number of files."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise SystemExit(f"{archive.name} has SHA-256 {found}, but {sha256} is pinned")
    count = 0
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            parts = Path(member.name).parts
            if not member.isfile() or len(parts) < 3 or parts[1] != "vendor" or ".." in parts:
                continue
            content = tar.extractfile(member)
            assert content is not None  # a regular file always has content
            path = target.joinpath(*parts[2:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="fetch the PJRT and XLA FFI headers")
    parser.add_argument("target", type=Path, help="folder to make; xla/pjrt/c/pjrt_c_api.h is found below it")
    target: Path = parser.parse_args().target

    requirement, sha256 = read_pin(PIN_FILE)
    stamp = target / "fetched_sha256"
    if stamp.is_file() and stamp.read_text().strip() == sha256:
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = download(PIN_FILE, requirement, Path(folder))
        shutil.rmtree(target, ignore_errors=True)
        count = unpack(archive, sha256, target)
    stamp.write_text(sha256 + "\n")
    print(f"PJRT headers: {count} files of {requirement} in {target}")


if __name__ == "__main__":
    main()
