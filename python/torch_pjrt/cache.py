"""The programs that are kept on disk (``TORCH_PJRT_CACHE``): look at them, check them, take them to an equal machine.

The format is that of csrc/compile/store.cpp: a header (magic, size of the key, size of the value, checksum), the key,
the value. What is exported is used where all is equal that a program depends on: plugin, version, processor.
"""

from __future__ import annotations

import os
import re
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Info", "clear", "export_to", "folder", "import_from", "info", "verify"]

_HEADER = struct.Struct("<8sQQII")
_MAGIC = b"TPJPROG1"
_NAME = re.compile(r"[0-9a-f]{32}\.program")


@dataclass(frozen=True)
class Info:
    """``entries`` by plugin, and ``bytes`` of all of them."""

    folder: Path
    entries: dict[str, int]
    bytes: int


def folder(setting: str | None = None) -> Path | None:
    """Where ``TORCH_PJRT_CACHE`` (or ``setting``) puts the programs; None when it is off."""
    value = setting or os.environ.get("TORCH_PJRT_CACHE") or "off"
    if value == "off":
        return None
    if value != "on":
        return Path(value)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "torch_pjrt"


def _entries(where: Path) -> Iterator[Path]:
    yield from (path for path in sorted(where.glob("*.program")) if _NAME.fullmatch(path.name))


def _key(data: bytes) -> bytes | None:
    """The key of an entry that is whole."""
    if len(data) < _HEADER.size:
        return None
    magic, key_size, value_size, checksum, _ = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    whole = magic == _MAGIC and len(body) == key_size + value_size and zlib.crc32(body) == checksum
    return body[:key_size] if whole else None


def info(where: Path) -> Info:
    """Counts the entries by the plugin that made them."""
    plugins: Counter[str] = Counter()
    size = 0
    for path in _entries(where):
        with path.open("rb") as file:
            lines = file.read(4096)[_HEADER.size :].split(b"\n")
        plugins[lines[1].split(b" ")[0].decode(errors="replace") if len(lines) > 1 else "damaged"] += 1
        size += path.stat().st_size
    return Info(where, dict(plugins), size)


def verify(where: Path) -> tuple[int, int]:
    """Reads every entry and removes those that are damaged; returns how many are whole, and how many were removed."""
    whole = removed = 0
    for path in _entries(where):
        if _key(path.read_bytes()) is None:
            path.unlink(missing_ok=True)
            removed += 1
        else:
            whole += 1
    return whole, removed


def clear(where: Path) -> int:
    """Removes every entry; returns how many there were."""
    count = 0
    for path in _entries(where):
        path.unlink(missing_ok=True)
        count += 1
    return count


def export_to(where: Path, archive: Path) -> int:
    """Writes every whole entry to a tar archive; returns how many."""
    count = 0
    with tarfile.open(archive, "w") as tar:
        for path in _entries(where):
            if _key(path.read_bytes()) is not None:
                tar.add(path, arcname=path.name)
                count += 1
    return count


def import_from(where: Path, archive: Path) -> int:
    """Adds the entries of an archive that are whole; returns how many. Raises tarfile.TarError for another file."""
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    count = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() and _NAME.fullmatch(member.name) else None
            data = file.read() if file else b""
            if _key(data) is None:
                continue
            temporary = where / f".{os.getpid()}-import-{count}.tmp"
            temporary.write_bytes(data)
            temporary.replace(where / member.name)
            count += 1
    return count


def run(command: str, archive: Path | None) -> int:
    """``python -m torch_pjrt cache``: prints what was done; 0, or 1 when the cache is off or had damaged entries."""
    where = folder()
    if where is None:
        print("the program cache is off (TORCH_PJRT_CACHE=on, or a folder)")
        return 1
    if command == "info":
        found = info(where)
        print(f"{found.folder}: {sum(found.entries.values())} programs, {found.bytes} bytes")
        for plugin, count in found.entries.items():
            print(f"  {count:8} {plugin}")
    elif command == "verify":
        whole, removed = verify(where)
        print(f"{where}: {whole} programs are whole, {removed} were damaged and are removed")
        return 1 if removed else 0
    elif command == "clear":
        print(f"{where}: {clear(where)} programs removed")
    elif archive is None:
        print(f"cache {command} needs an archive's name")
        return 1
    elif command == "export":
        print(f"{archive}: {export_to(where, archive)} programs")
    else:
        print(f"{where}: {import_from(where, archive)} programs added")
    return 0
