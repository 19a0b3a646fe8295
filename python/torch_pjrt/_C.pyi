# The compiled module (csrc/bindings). Its functions are described there; here they are only known to exist.
from typing import Any

def __getattr__(name: str) -> Any: ...
