"""Failures of blob cells: ranges, external addresses, and values that are not what storage says they are."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from omnigraph.errors.base import OmniError

_SHOWN_CHARACTERS = 500


def without_credentials(uri: str) -> str:
    """An address as messages may show it: without user, password and query, which carries signatures, and not endless.

    >>> without_credentials("https://me:secret@example.org/a?X-Amz-Signature=00")
    'https://example.org/a'
    """
    try:
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        # Not even the parts can be told apart, so nobody knows where a secret may be.
        shown = f"{uri.partition(':')[0][:20]}:…"
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"


class BlobRangeError(OmniError):
    """A range outside the value of a blob."""

    kind = "blob_range"
    code = "bad_request"
    http_status = 416

    def __init__(self, start: int, end: int, length: int) -> None:
        super().__init__(f"bytes {start} to {end} are outside a blob of {length} bytes")
        self.start, self.end, self.length = start, end, length

    def details(self) -> dict[str, object]:
        """`blob_range` with the bytes asked for and the length of the value."""
        return {"blob_range": {"start": self.start, "end": self.end, "length": self.length}}


class BlobChangedError(OmniError):
    """A blob is not the value that the caller has seen."""

    kind = "blob_changed"
    code = "conflict"
    http_status = 412


class ExternalBlobPolicyError(OmniError):
    """An external blob URI is not allowed."""

    kind = "external_blob_policy"
    code = "bad_request"
    http_status = 400

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = without_credentials(uri)
        self.reason = reason
        super().__init__(f"external blob {self.uri} is refused: {reason}")

    def details(self) -> dict[str, object]:
        """`external_blob_policy` with the address and the reason."""
        return {"external_blob_policy": {"uri": self.uri, "reason": self.reason}}


class ExternalBlobSourceError(OmniError):
    """An allowed external blob cannot be read. Nothing was written."""

    kind = "external_blob_source"
    code = None
    http_status = 424

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = without_credentials(uri)
        self.reason = reason
        super().__init__(f"external blob {self.uri} cannot be read: {reason}")

    def details(self) -> dict[str, object]:
        """`external_blob_source` with the address and the reason."""
        return {"external_blob_source": {"uri": self.uri, "reason": self.reason}}


class BlobIntegrityError(OmniError):
    """A stored blob contradicts its descriptor."""

    kind = "blob_integrity"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"a stored blob is damaged: {reason}; restore its file from a copy, or write the value again"
        )

    def details(self) -> dict[str, object]:
        """`blob_integrity` with the contradiction."""
        return {"blob_integrity": {"reason": self.reason}}
