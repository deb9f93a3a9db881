"""A blob cell on its way through the system: one binary value that is either bytes or the address of bytes.

Rows travel as Arrow tables in which a Blob column is binary. A cell that holds bytes is these bytes; a cell that only
refers to bytes elsewhere is a mark followed by the address. Bytes that happen to begin with the mark get it once more
in front, so the two can never be taken for each other. Storage does not see the mark: there both have descriptors of
their own.

Whoever takes bytes in from outside calls `managed_cell`, whoever hands them out looks at `reference_of` first.
"""

from __future__ import annotations

#: Chosen at random; 16 bytes that hardly a file begins with.
MARK = bytes.fromhex("d6c14f0e9a3b4e5d8f27b1605ac97e34")
_BYTES = MARK + b"b"
#: What the text of bytes begins with.
MANAGED = "base64:"
#: Characters that are decoded at a time, a multiple of four.
_STEP = 1 << 20
#: What a cell that refers to an address begins with.
ADDRESS_MARK = MARK + b"a"


def managed_cell(data: bytes) -> bytes:
    """The cell that holds these bytes."""
    return _BYTES + data if data.startswith(MARK) else data


def reference_cell(uri: str) -> bytes:
    """The cell that refers to an address."""
    return ADDRESS_MARK + uri.encode()


def reference_of(cell: bytes) -> str | None:
    """The address that a cell refers to; None when it holds bytes.

    >>> reference_of(reference_cell("s3://scans/1.png"))
    's3://scans/1.png'
    >>> reference_of(managed_cell(b"s3://scans/1.png")) is None
    True
    """
    return cell[len(ADDRESS_MARK) :].decode() if cell.startswith(ADDRESS_MARK) else None


def managed_bytes(cell: bytes) -> bytes:
    """The bytes that a cell holds.

    >>> managed_bytes(managed_cell(MARK + b"!")) == MARK + b"!"
    True
    """
    return cell[len(_BYTES) :] if cell.startswith(_BYTES) else cell


def spelled_cell(text: str) -> bytes:
    """The cell that holds the bytes which a text of the form `base64:…` spells.

    >>> spelled_cell("base64:SGVsbG8=")
    b'Hello'

    Raises:
        ValueError: they are not spelled right.
    """
    from base64 import b64decode
    from binascii import Error

    begin = len(MANAGED) if text.startswith(MANAGED) else 0
    padding = text.find("=", begin)
    try:
        if 0 <= padding < len(text) - 2:
            raise Error("padding stands in the middle")
        # Piece by piece: a whole text would be copied twice before it is decoded.
        steps = range(begin, len(text), _STEP)
        pieces = [b64decode(text[step : step + _STEP], validate=True) for step in steps]
    except Error as problem:
        raise ValueError(f"the text behind `{MANAGED}` is not base64: {problem}") from problem
    return managed_cell(b"".join(pieces))


def blob_text(cell: bytes) -> str:
    """A cell as JSON spells it: an address as it is, bytes as `base64:…`. A load reads it back."""
    from base64 import b64encode

    uri = reference_of(cell)
    return f"{MANAGED}{b64encode(managed_bytes(cell)).decode('ascii')}" if uri is None else uri
