"""A process forks with a clear text, spawns, and ends silently with code 0."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

ENDINGS = {
    "before the first use": "",
    "after a number was read": "print(torch.ones(2, device=D).sum().item(), end='')",
    "with a live tensor": "x = torch.ones(2, device=D)",
    "with work in flight": """
x = torch.ones(512, 512, device=D)
for _ in range(20):
    x = x @ x / 512
""",
    "with an upload in flight": "y = torch.ones(1 << 20).pin_memory().to(D, non_blocking=True)",
    "after a caught error": """
try:
    torch.ones(2, device=D) + torch.ones(3, device=D)
except RuntimeError:
    pass
""",
    "after running out of memory": """
try:
    torch.zeros(1 << 50, device=D)
except torch.OutOfMemoryError:
    pass
""",
    "after an index out of range": """
try:
    torch.ones(4, device=D)[torch.tensor([9], device=D)]
    torch.accelerator.synchronize()
except (IndexError, RuntimeError):
    pass
""",
    "with an error in flight": "x = torch.ones(4, device=D)[torch.tensor([3], device=D)]",
    "after backward": """
x = torch.ones(3, device=D, requires_grad=True)
(x * x).sum().backward()
""",
    "with a tensor in a module": """
import sys, types
sys.modules['keeper'] = keeper = types.ModuleType('keeper')
keeper.x = torch.ones(3, device=D)
keeper.self = keeper
""",
    "with a tensor in a cycle": """
class Node: pass
node = Node(); node.me = node; node.x = torch.ones(3, device=D)
del node
""",
    "by sys.exit": "import sys; x = torch.ones(3, device=D); sys.exit(0)",
    "with a stream, an event and a generator": """
s, e, g = torch.Stream(D), torch.Event(D), torch.Generator(D)
e.record(s)
torch.rand(3, device=D, generator=g)
""",
    "in an atexit function": """
import atexit
x = torch.ones(3, device=D)
atexit.register(lambda: (x + 1).sum().item())
""",
    "in a finalizer": """
import weakref
class Owner: pass
owner = Owner()
x = torch.ones(3, device=D)
weakref.finalize(owner, lambda: (x * 2).sum().item())
""",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_process_ends_silently(code: str, run_python: Run) -> None:
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_sys_exit_keeps_its_code(run_python: Run) -> None:
    done = run_python("import sys; x = torch.ones(3, device=D); sys.exit(7)")
    assert (done.returncode, done.stderr) == (7, "")


FORKED = """
import multiprocessing, sys
torch.ones(2, device=D)
def child(queue):
    try:
        torch.ones(2, device=D)
        queue.put("no error")
    except RuntimeError as error:
        queue.put(str(error))
context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
process = context.Process(target=child, args=(queue,))
process.start()
process.join(60)
print(queue.get())
print(process.exitcode)
"""


def test_a_forked_child_is_told_to_spawn(run_python: Run) -> None:
    done = run_python(FORKED, check=True)
    text, code = done.stdout.strip().splitlines()
    assert text.startswith("Cannot re-initialize")
    assert "in forked subprocess" in text
    assert "'spawn' start method" in text
    assert code == "0"
    assert done.stderr == ""


def test_a_fork_before_the_first_use_is_fine(run_python: Run) -> None:
    code = FORKED.replace("torch.ones(2, device=D)\ndef", "def")
    assert run_python(code, check=True).stdout.split("\n")[0] == "no error"


def test_a_forked_child_may_use_the_cpu_and_drop_what_it_inherited(run_python: Run) -> None:
    code = """
import os
x = torch.ones(2, device=D)
pid = os.fork()
if pid == 0:
    assert (torch.ones(2) + 1).sum().item() == 4
    assert getattr(torch, D)._is_in_bad_fork()
    torch.manual_seed(3)
    del x
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (x + 1).tolist() == [2.0, 2.0]
"""
    assert run_python(code, check=True).stderr == ""


def test_a_spawned_child_uses_the_device(run_python: Run, tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        """
import sys
import torch
import torch.multiprocessing as multiprocessing

def child(queue, name):
    queue.put((torch.ones(2, device=name) + 1).tolist())

if __name__ == "__main__":
    torch.ones(1, device=sys.argv[1])
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue, sys.argv[1]))
    process.start()
    print(queue.get())
    process.join(60)
    sys.exit(process.exitcode)
"""
    )
    done = run_python(f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, {str(script)!r}, D]))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2.0, 2.0]\n", "")


FULL = """
import ctypes, mmap, threading

def mappings():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)

with open("/proc/sys/vm/max_map_count") as file:
    limit = int(file.read())
torch.ones(3, device=D).add(1).cpu()
pages = limit * 9 // 10 - mappings() - 60  # where every second one has another protection, each is a mapping
region = mmap.mmap(-1, pages * mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(region))
for i in range(0, pages, 2):
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + i * mmap.PAGESIZE), mmap.PAGESIZE, 1) == 0
wrong = []

def work(first):
    try:
        for n in 2 * list(range(first, first + 12)):
            assert torch.full((n,), 2.0, device=D).add_(1).sum().item() == 3 * n
    except Exception as error:
        wrong.append(error)

threads = [threading.Thread(target=work, args=(1 + 12 * i,)) for i in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not wrong, wrong
assert mappings() < limit
"""


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_programs_make_room_for_others(mode: str, run_python: Run) -> None:
    """A process has only so many memory mappings, and each program on the host takes some."""
    run_python(FULL, check=True, TORCH_PJRT_EAGER=mode, TORCH_PJRT_SIZES="exact")
