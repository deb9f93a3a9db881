"""Where graphs are stored is known to the server and its log; failures, which may name files, are sent without it."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from omnigraph.errors import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph.serving.config import ServerConfig

_FILE = "file://"
_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
#: What stands before or after a name that is part of an address.
_SIGNS = r"[/:.`'\"=]"


class HiddenPlaces:
    """Texts that are replaced by what they mean to a caller. Immutable and thread-safe."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Replace patterns of regular expressions; the longest one that fits wins."""
        self._names = [places[pattern] for pattern in sorted(places, key=len, reverse=True)]
        patterns = "|".join(f"({pattern})" for pattern in sorted(places, key=len, reverse=True))
        self._pattern = re.compile(patterns) if places else None

    @classmethod
    def of(cls, config: ServerConfig) -> HiddenPlaces:
        """The places of a configuration: storage, endpoints, files of stored queries, uploads."""
        places: dict[str, str] = {}
        for graph in config.graphs:
            places |= dict.fromkeys(_storage_patterns(graph.store), graph.graph_id)
            for source in graph.queries:
                places[_path_pattern(str(source.path))] = os.path.basename(source.path)
        uploads = re.escape(os.path.join(tempfile.gettempdir(), "omnigraph-load-"))
        places[uploads + r"[\w.-]*"] = "body"
        for name in _ENDPOINTS:
            if endpoint := os.environ.get(name):
                places[re.escape(endpoint.rstrip("/"))] = "storage"
        return cls(places)

    def in_text(self, text: str) -> str:
        """A text without these places."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[(found.lastindex or 1) - 1], text)

    def in_document(self, document: Mapping[str, object]) -> dict[str, object]:
        """A document whose texts are without them, at every depth."""
        return {name: self._in_value(value) for name, value in document.items()}

    def _in_value(self, value: Any) -> Any:
        match value:
            case str():
                return self.in_text(value)
            case dict():
                return self.in_document(value)
            case list() | tuple():
                return [self._in_value(item) for item in value]
            case _:
                return value


def _storage_patterns(store: str) -> Iterator[str]:
    """Every spelling of the root of a graph that a failure may have."""
    parts = urlsplit(store)
    if parts.scheme not in ("", "file"):
        yield re.escape(store.rstrip("/"))
        yield re.escape(without_credentials(store).rstrip("/"))
        if key := parts.path.strip("/"):
            yield _path_pattern(f"{parts.hostname or ''}/{key}")
            yield _path_pattern(key)
        if bucket := re.escape(parts.hostname or ""):
            yield rf"(?<={_SIGNS}){bucket}(?![\w-])"
            yield rf"(?<![\w-]){bucket}(?={_SIGNS})"
            yield rf"(?<=[Bb]ucket ){bucket}(?![\w-])"
        return
    path = store.removeprefix(_FILE).rstrip("/")
    for known in {path, os.path.realpath(path)}:
        for form in {known, quote(known)}:
            # Lance tells paths of files without the slash at their beginning.
            yield rf"(?:{_FILE})?/?{re.escape(form.lstrip('/'))}(?![\w-])"


def _path_pattern(path: str) -> str:
    """A path that is not a part of a longer name."""
    return rf"/?(?<![\w.-]){re.escape(path)}(?![\w-])"
