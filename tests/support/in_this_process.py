"""Reading where `verify` would use another process, which takes a second to start."""

from __future__ import annotations

import json
from typing import Any

from omnigraph.errors import OmniError, StorageError
from omnigraph.maintenance import reading_aside
from omnigraph.storage._failures import without_advice
from omnigraph.storage.location import parse_location


class InThisProcess:
    """Answers as an `AsideReader` does."""

    def __init__(self, uri: str) -> None:
        self._operations = reading_aside._operations(parse_location(uri))

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, operation: str, **arguments: object) -> Any:
        try:
            return json.loads(json.dumps(self._operations[operation](**arguments)))
        except OmniError as error:
            raise StorageError(without_advice(error)) from error
