"""Why a commit was made: a message for people and metadata for programs, both in the words of its writer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias

from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

#: Metadata of a commit: one flat JSON object.
Metadata: TypeAlias = Mapping[str, str | int | float | bool | None]

#: Bytes of a message, and of metadata as JSON: they are kept in the manifest, which every open graph reads.
MAX_MESSAGE_BYTES = 16 * 1024
MAX_METADATA_BYTES = 16 * 1024


@frozen
class Note:
    """What a writer says about its commit."""

    message: str | None = None
    metadata: Metadata | None = None


NO_NOTE = Note()


def note_of(message: str | None, metadata: Mapping[str, object] | None) -> Note:
    """The note of a write; a message is kept without the blank space around it, and empty metadata is none.

    >>> note_of(" prices of May ", {"ticket": 17})
    Note(message='prices of May', metadata={'ticket': 17})

    Raises:
        BadRequestError: one of them is too long or has another form.
    """
    if message is None and metadata is None:
        return NO_NOTE
    return Note(_checked_message(message), _checked_metadata(metadata))


def _checked_message(message: object) -> str | None:
    if message is None:
        return None
    if not isinstance(message, str):
        raise BadRequestError(f"the message of a commit is a text, found {type(message).__name__}")
    text = message.strip()
    if not text:
        raise BadRequestError("the message of the commit is blank: leave it out, or say why the write is made")
    size = _size(text, "the message of the commit")
    if size > MAX_MESSAGE_BYTES:
        raise BadRequestError(f"the message of a commit takes at most {MAX_MESSAGE_BYTES:,} bytes, found {size:,}")
    return text


def _checked_metadata(metadata: object) -> Metadata | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise BadRequestError(f"the metadata of a commit is a flat JSON object, found {type(metadata).__name__}")
    found: dict[str, str | int | float | bool | None] = {}
    for key, value in metadata.items():
        if not isinstance(key, str) or not key.strip():
            raise BadRequestError(f"names in the metadata of a commit are texts that are not blank, found {key!r}")
        if not isinstance(value, str | int | float | bool | None):
            raise BadRequestError(
                f"`{key}` in the metadata of the commit is a {type(value).__name__}: values are texts, numbers, truth "
                "values or null; write anything else as JSON text"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise BadRequestError(f"`{key}` in the metadata of the commit is {value}, which JSON cannot express")
        found[key] = value
    size = _size(json.dumps(found, separators=(",", ":"), ensure_ascii=False), "the metadata of the commit")
    if size > MAX_METADATA_BYTES:
        limit = f"{MAX_METADATA_BYTES:,} bytes as JSON"
        raise BadRequestError(f"the metadata of a commit takes at most {limit}, found {size:,}")
    return found or None


def _size(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise BadRequestError(f"{what} holds half a character at position {error.start + 1}") from error
