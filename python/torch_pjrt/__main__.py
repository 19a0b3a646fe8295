"""``python -m torch_pjrt doctor``: what works on this machine. ``... check``: a script on a chip that is not here."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torch_pjrt import cache, check, doctor


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; without one, the doctor."""
    parser = argparse.ArgumentParser(prog="python -m torch_pjrt", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    exit_codes = "Exit codes: 0 the device works, 1 it does not, 2 no plugin is installed, 3 its chip is not here."
    examine = commands.add_parser("doctor", help="what works here and what to do", epilog=exit_codes)
    examine.add_argument("--all", action="store_true", help="try every installed plugin")
    examine.add_argument("--timeout", type=float, default=60.0, help="seconds that a plugin may take (60)")
    try_script = commands.add_parser("check", help="a script's programs on a chip that is not here")
    try_script.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments, last of all")
    try_script.add_argument(
        "--target", required=True, help="plugin:chip or plugin:chip:shape, see docs/compile-only.md"
    )
    try_script.add_argument("--device", help="what the script calls its device (the plugin's own name)")
    on_disk = commands.add_parser("cache", help="the programs that are kept on disk (TORCH_PJRT_CACHE)")
    on_disk.add_argument("action", choices=["info", "verify", "clear", "export", "import"])
    on_disk.add_argument("archive", nargs="?", type=Path, help="of export and import")
    given = parser.parse_args(arguments)
    if given.command == "cache":
        return cache.run(given.action, given.archive)
    if given.command == "check":
        plugin = given.target.partition(":")[0]
        return check.check_script(given.script, given.target, given.device or plugin)
    if given.command == "doctor":
        return doctor.diagnose(given.all, given.timeout)
    return doctor.diagnose()


if __name__ == "__main__":
    sys.exit(main())
