"""Programs that outlive the process: a second one neither compiles nor differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(bool(os.environ.get("TORCH_PJRT_TEST_DEVICE")), reason="about torch_pjrt")

TRAINING = """
import json, time, torch, torch_pjrt
from models import zoo
from models.workload import train
losses = list(train(zoo.MLP, torch.device("pjrt"), 3))
stats = torch_pjrt.stats()
print(json.dumps({"losses": losses, "compiles": stats["compiles"], "disk_hits": stats["disk_hits"]}))
"""

SMALL = """
import json, torch, torch_pjrt
x = torch.ones(3, 5).to("pjrt")
(x + x).cpu()
x.exp().cpu()
stats = torch_pjrt.stats()
print(json.dumps({"compiles": stats["compiles"], "disk_hits": stats["disk_hits"]}))
"""


def run(script: str, folder: Path | str, **environment: str) -> tuple[Any, str]:
    """What the script printed as JSON, and its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TORCH_PJRT_CACHE": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def command(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "torch_pjrt", "cache", *arguments],
        env={**os.environ, "TORCH_PJRT_CACHE": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_a_second_process_compiles_nothing_and_computes_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    first, _ = run(TRAINING, folder)
    assert first["compiles"] > 3 and first["disk_hits"] == 0
    second, _ = run(TRAINING, folder)
    assert second["compiles"] == 0 and second["disk_hits"] == first["compiles"]
    assert second["losses"] == first["losses"]
    assert len(list(folder.glob("*.program"))) == first["compiles"]


def test_what_is_damaged_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    first, _ = run(SMALL, folder)
    entries = sorted(folder.glob("*.program"))
    assert len(entries) == first["compiles"] >= 2
    entries[0].write_bytes(entries[0].read_bytes()[:-1])
    entries[1].write_bytes(b"")
    assert run(SMALL, folder)[0]["compiles"] == 2
    assert run(SMALL, folder)[0]["compiles"] == 0
    # Another device count: other programs.
    assert run(SMALL, folder, TORCH_PJRT_CPU_DEVICES="2")[0]["compiles"] == first["compiles"]


def test_the_command_looks_checks_takes_away_and_brings_back(tmp_path: Path) -> None:
    folder, archive = tmp_path / "programs", tmp_path / "programs.tar"
    made, _ = run(SMALL, folder)
    count = made["compiles"]
    code, text = command(folder, "info")
    assert code == 0 and f"{count} programs" in text
    assert command(folder, "verify") == (0, f"{folder}: {count} programs are whole, 0 were damaged and are removed\n")
    assert command(folder, "export", str(archive)) == (0, f"{archive}: {count} programs\n")
    first = min(folder.glob("*.program"))
    first.write_bytes(first.read_bytes().replace(b"stablehlo", b"stablehla", 1))
    code, text = command(folder, "verify")
    assert code == 1 and "1 were damaged" in text
    assert command(folder, "clear") == (0, f"{folder}: {count - 1} programs removed\n")
    assert command(folder, "import", str(archive)) == (0, f"{folder}: {count} programs added\n")
    assert run(SMALL, folder)[0]["compiles"] == 0


def test_off_is_off(tmp_path: Path) -> None:
    found, _ = run(SMALL, "off", XDG_CACHE_HOME=str(tmp_path))
    assert found["disk_hits"] == 0 and not list(tmp_path.iterdir())


def test_on_is_the_users_cache(tmp_path: Path) -> None:
    run(SMALL, "on", XDG_CACHE_HOME=str(tmp_path))
    assert list((tmp_path / "torch_pjrt").glob("*.program"))


def test_a_place_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    found, said = run(SMALL, place)
    assert found["compiles"] > 0
    assert said.count("torch_pjrt:") == 1 and "is no folder" in said


def test_a_program_from_disk_is_no_compile(tmp_path: Path) -> None:
    script = """
import json, torch, torch_pjrt
x = torch.ones(3, 5).to("pjrt")
with torch_pjrt.no_compile() if {inside} else torch.no_grad():
    print(json.dumps((x + x).sum().item()))
"""
    assert run(script.format(inside=False), tmp_path / "programs")[0] == 30
    assert run(script.format(inside=True), tmp_path / "programs")[0] == 30


ARTIFACTS = """
import json, sys, torch, torch_pjrt
f = torch.compile(lambda x, w: (x @ w).softmax(-1).sum())
path, saves = sys.argv[1:]
if saves == "no":
    info = torch.compiler.load_cache_artifacts(open(path, "rb").read())
    assert len(info.artifacts["pjrt"]) == 2, info
torch_pjrt._C.flush()
before = torch_pjrt.stats()
x, w = torch.rand(3, 4).to("pjrt"), torch.rand(4, 5).to("pjrt").requires_grad_()
f(x, w).backward()
after = torch_pjrt.stats()
names = [entry["operator"] for entry in torch_pjrt.compile_log()]
if saves == "yes":
    content, info = torch.compiler.save_cache_artifacts()
    open(path, "wb").write(content)
print(json.dumps({"compiled": sum(name.startswith("compiled") for name in names), "read": after["disk_hits"]}))
"""


def test_pytorchs_cache_artifacts_hold_the_programs(tmp_path: Path) -> None:
    script = f"import sys; sys.argv = ['', {str(tmp_path / 'artifacts')!r}, {{saves!r}}]\n{ARTIFACTS}"
    first, _ = run(script.replace("{saves!r}", "'yes'"), "off")
    second, _ = run(script.replace("{saves!r}", "'no'"), "off")
    assert first == {"compiled": 2, "read": 0}
    assert second == {"compiled": 0, "read": 2}
