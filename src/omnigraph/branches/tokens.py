"""Cursors and page tokens: opaque text that says where a reader is. No state is kept anywhere else.

Versioned, with a checksum, and bound to what they were made for. Long ids are represented by their beginning and a
hash, so that a token stays small.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

from omnigraph.errors import ChangeCursorRejectedError, ResourceLimitError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VERSION = 1
MAX_TOKEN_BYTES = 4_096
_EXACT_ID_BYTES = 256
_PREFIX_BYTES = 64
_CHECKSUM_BYTES = 8


def encode_token(body: Mapping[str, object]) -> str:
    """A token that holds some values.

    Raises:
        ResourceLimitError: it would be too large.
    """
    text = json.dumps({"v": TOKEN_VERSION, **body}, separators=(",", ":"), sort_keys=True).encode()
    token = _spelled(_checksum(text) + text)
    if len(token) > MAX_TOKEN_BYTES:
        raise ResourceLimitError(
            "change_continuation_token_encoded_bytes",
            MAX_TOKEN_BYTES,
            len(token),
            "the names of the branch and of types are too long for a cursor",
        )
    return token


def decode_token(token: str) -> dict[str, Any]:
    """The values of a token.

    Raises:
        ChangeCursorRejectedError: it is damaged, or of another release.
    """
    try:
        if len(token) > MAX_TOKEN_BYTES:
            raise ValueError("too long")
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        check, text = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        # The decoder is lenient about characters that carry nothing.
        if check != _checksum(text) or _spelled(raw) != token:
            raise ValueError("wrong checksum")
        body = json.loads(text)
        # Halves of characters can be written in JSON, and compared with nothing.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ChangeCursorRejectedError("it is damaged") from error
    if not isinstance(body, dict) or body.get("v") != TOKEN_VERSION:
        raise ChangeCursorRejectedError("another release made it")
    return body


def check_binding(body: Mapping[str, Any], expected: Mapping[str, tuple[object, str]]) -> None:
    """Make sure that a token was made for this call; `expected` maps members to their value and a sentence.

    Raises:
        ChangeCursorRejectedError: it was made for something else.
    """
    for name, (value, sentence) in expected.items():
        if body.get(name) != value:
            raise ChangeCursorRejectedError(sentence)


@dataclass(frozen=True, slots=True)
class Position:
    """The last entity of a commit that was told: its type and its id, which may be represented by a hash."""

    type_id: str
    entity: str
    is_exact: bool

    @staticmethod
    def of(type_id: str, entity_id: str) -> Position:
        """The position behind an entity."""
        raw = entity_id.encode()
        if len(raw) <= _EXACT_ID_BYTES:
            return Position(type_id, entity_id, True)
        prefix = raw[:_PREFIX_BYTES].hex()
        return Position(type_id, f"{prefix}:{sha256(raw).hexdigest()}", False)

    def is_behind(self, entity_id: str) -> bool:
        """Whether this is the position of an entity whose id is represented by a hash."""
        return Position.of(self.type_id, entity_id) == self

    def to_json(self) -> list[object]:
        """The position inside a token."""
        return [self.type_id, self.entity, self.is_exact]

    @staticmethod
    def from_json(body: object) -> Position:
        """The inverse of `to_json`.

        Raises:
            ChangeCursorRejectedError: it is no position.
        """
        match body:
            case [str(type_id), str(entity), bool(is_exact)]:
                return Position(type_id, entity, is_exact)
            case _:
                raise ChangeCursorRejectedError("it is damaged")


def _spelled(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _checksum(text: bytes) -> bytes:
    return blake2b(text, digest_size=_CHECKSUM_BYTES, person=b"omni-changes").digest()
