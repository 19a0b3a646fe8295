"""A compiler in a process of its own: one that aborts, or never ends, is an error message here.

The parent writes pickled requests for ``_C.compile_ahead`` to the child's standard input and reads pickled answers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Compiler", "CompilerError"]


class CompilerError(RuntimeError):
    """The compiler refused a program, died, or took too long."""


class Compiler:
    """A child process that compiles; started at the first request, and again after it died.

    Args:
        environment: variables for the child, unless this process has them already.
        timeout: seconds that one request may take.
    """

    def __init__(self, environment: Mapping[str, str], timeout: float) -> None:
        self.environment = dict(environment)
        self.timeout = timeout
        self.child: subprocess.Popen[bytes] | None = None
        self.log = tempfile.TemporaryFile()  # what the child says on standard error
        atexit.register(self.close)

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer with ``seconds``. Raises CompilerError with the compiler's own words."""
        start = time.perf_counter()
        child = self.child or self.start()
        assert child.stdin and child.stdout
        self.log.seek(0)
        self.log.truncate()
        try:
            child.stdin.write(pickle.dumps(request))
            child.stdin.flush()
            answer = self.read(child, start + self.timeout)
        except (BrokenPipeError, EOFError):
            raise CompilerError(self.last_words(child)) from None
        if "error" in answer:
            raise CompilerError(answer["error"])
        return answer

    def start(self) -> subprocess.Popen[bytes]:
        self.child = subprocess.Popen(
            [sys.executable, "-c", "from torch_pjrt import _ahead; _ahead.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            # The child needs no device, and its plugin may be another one than this process has.
            env={**self.environment, **os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )
        return self.child

    def read(self, child: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
        """One answer: eight bytes of length, then the pickled dict."""
        assert child.stdout
        data = b""
        wanted = 8
        while len(data) < wanted:
            if not select.select([child.stdout], [], [], max(0.0, end - time.perf_counter()))[0]:
                self.close()
                raise CompilerError(f"the compiler did not end within {self.timeout:g} s")
            chunk = os.read(child.stdout.fileno(), wanted - len(data))
            if not chunk:
                raise EOFError
            data += chunk
            if wanted == 8 and len(data) == 8:
                wanted += int.from_bytes(data, "little")
        return dict(pickle.loads(data[8:]))

    def last_words(self, child: subprocess.Popen[bytes]) -> str:
        self.close()
        code = child.wait()
        how = f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        checks = [line for line in lines if "Check failed" in line or line.startswith("F0")]
        said = "\n".join(checks[:1] or lines[-5:])
        return f"the compiler {how}" + (f": {said}" if said else "")

    def close(self) -> None:
        """Ends the child; the next request starts another."""
        child, self.child = self.child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(BrokenPipeError):  # what the child did not read any more
                if pipe:
                    pipe.close()


def serve() -> None:
    """The child: answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a compiler prints is not an answer
    import torch  # noqa: F401  its libraries are what the core is linked with

    from torch_pjrt import _C

    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        start = time.perf_counter()
        try:
            answer = _C.compile_ahead(request)
        except Exception as error:
            answer = {"error": str(error)}
        answer["seconds"] = time.perf_counter() - start
        data = pickle.dumps(answer)
        answers.write(len(data).to_bytes(8, "little") + data)
        answers.flush()
