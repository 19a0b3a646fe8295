"""The header fetcher takes only vendor/ of an archive with the pinned checksum."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

import fetch_pjrt_headers


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small source package: one header, one file outside vendor/, one name that tries to escape."""
    path = tmp_path / "package-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("p-1.0/vendor/xla/a.h", "p-1.0/setup.py", "p-1.0/vendor/../../escaped.h"):
            info = tarfile.TarInfo(name)
            info.size = len(b"text")
            tar.addfile(info, io.BytesIO(b"text"))
    return path


def test_only_vendor_is_unpacked(archive: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert fetch_pjrt_headers.unpack(archive, sha256, tmp_path / "target") == 1
    files = [path.relative_to(tmp_path / "target") for path in (tmp_path / "target").rglob("*") if path.is_file()]
    assert files == [Path("xla/a.h")]


def test_another_checksum_is_refused(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is pinned"):
        fetch_pjrt_headers.unpack(archive, "0" * 64, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_the_pin_file_is_read(tmp_path: Path) -> None:
    requirement, sha256 = fetch_pjrt_headers.read_pin(fetch_pjrt_headers.PIN_FILE)
    assert "==" in requirement
    assert len(sha256) == 64
    (tmp_path / "pin.txt").write_text("package>=1.0\n")
    with pytest.raises(SystemExit, match="does not pin"):
        fetch_pjrt_headers.read_pin(tmp_path / "pin.txt")
