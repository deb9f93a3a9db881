"""Secrets on their way to tasks: in two halves, each of which tells nothing."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret as it travels with the items of a stage. Its other half is a property of the Spark job."""

    _data: bytes = field(repr=False)
    #: The property that holds the other half.
    _property: str

    def open(self) -> str:
        """As `TaskSecret.open`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        pad = None if context is None else context.getLocalProperty(self._property)
        if pad is None:
            raise RuntimeError("a sealed secret is opened outside of its stage")
        return _mixed(self._data, bytes.fromhex(pad)).decode()


def seal(secret: str, property_name: str) -> tuple[Sealed, str]:
    """The two halves of a secret: one for the items of a stage, one for a property of its job."""
    data = secret.encode()
    pad = secrets.token_bytes(len(data))
    return Sealed(_mixed(data, pad), property_name), pad.hex()


def _mixed(data: bytes, pad: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, pad, strict=True))
