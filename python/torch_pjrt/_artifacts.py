"""Compiled programs in ``torch.compiler.save_cache_artifacts()`` and ``load_cache_artifacts()``."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

__all__ = ["record"]

_SIZES = struct.Struct("<QQ")  # of a key and its program


@CacheArtifactFactory.register
class ProgramArtifact(CacheArtifact):
    """The programs of one traced function; they are serialized only when somebody saves."""

    @staticmethod
    def type() -> str:
        return "pjrt"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramArtifact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def content(self) -> bytes:
        """As it came, or as it is now."""
        from torch_pjrt import _C

        if self._given:
            return self._given
        try:
            programs = _C.traced_programs(int(self.key))
        except RuntimeError:  # the function is gone
            programs = []
        return b"".join(_SIZES.pack(len(k), len(v)) + k + v for k, v in programs)

    @content.setter
    def content(self, value: bytes) -> None:
        object.__setattr__(self, "_given", value)

    def populate_cache(self) -> None:
        from torch_pjrt import _C

        for key, program in _pairs(self.content):
            _C.offer_program(key, program)


def _pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(content):
        key, value = _SIZES.unpack_from(content, at)
        at += _SIZES.size
        yield content[at : at + key], content[at + key : at + key + value]
        at += key + value


def record(number: int) -> None:
    """Notes a traced function for whoever saves artifacts."""
    CacheArtifactManager.record_artifact(ProgramArtifact.type(), str(number), b"")
