"""What a server does not offer: work that belongs beside the storage."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.errors import DirectOnlyError


class DirectOnlyMethods:
    """Methods of an embedded graph that a remote one refuses, with the way to run them."""

    def plan_schema(self, *_: object, **__: object) -> NoReturn:
        """Refused: plans are made beside the storage."""
        raise DirectOnlyError("plan_schema")

    def diff_schema(self, *_: object, **__: object) -> NoReturn:
        """Refused: schemas are compared beside the storage."""
        raise DirectOnlyError("diff_schema")

    def ensure_indices(self, *_: object, **__: object) -> NoReturn:
        """Refused: indexes are built beside the storage."""
        raise DirectOnlyError("ensure_indices")

    def pending_indexes(self, *_: object, **__: object) -> NoReturn:
        """Refused: indexes are looked at beside the storage."""
        raise DirectOnlyError("pending_indexes")

    def embed(self, *_: object, **__: object) -> NoReturn:
        """Refused: texts are embedded beside the storage."""
        raise DirectOnlyError("embed")

    def optimize(self, *_: object, **__: object) -> NoReturn:
        """Refused: files are rewritten beside the storage."""
        raise DirectOnlyError("optimize")

    def repair(self, *_: object, **__: object) -> NoReturn:
        """Refused: a graph is repaired beside the storage."""
        raise DirectOnlyError("repair")

    def cleanup(self, *_: object, **__: object) -> NoReturn:
        """Refused: old versions are removed beside the storage."""
        raise DirectOnlyError("cleanup")

    def doctor(self, *_: object, **__: object) -> NoReturn:
        """Refused: a graph is examined beside the storage."""
        raise DirectOnlyError("doctor")

    def verify(self, *_: object, **__: object) -> NoReturn:
        """Refused: files are read beside the storage."""
        raise DirectOnlyError("verify")

    def recoveries(self, *_: object, **__: object) -> NoReturn:
        """Refused: recovery records stand beside the storage."""
        raise DirectOnlyError("recoveries")

    def pending_recoveries(self, *_: object, **__: object) -> NoReturn:
        """Refused: recovery records stand beside the storage."""
        raise DirectOnlyError("pending_recoveries")
