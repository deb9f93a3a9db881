"""Sizes as people read them."""

from __future__ import annotations

_STEP = 1024
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """A number of bytes with the unit that fits.

    >>> size_text(1536), size_text(64 * 1024 * 1024)
    ('1.5 KiB', '64 MiB')
    """
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    size, power = size_bytes / _STEP, 0
    while size >= _STEP and power < len(_UNITS) - 1:
        size, power = size / _STEP, power + 1
    return f"{f'{size:.1f}'.removesuffix('.0')} {_UNITS[power]}"


def compared_sizes(one: int, other: int) -> tuple[str, str]:
    """Two sizes that differ, as texts that differ: exact where their units would hide it.

    >>> compared_sizes(3 * 1024 * 1024, 1024), compared_sizes(1025, 1024)
    (('3 MiB', '1 KiB'), ('1,025 bytes', '1,024 bytes'))
    """
    texts = size_text(one), size_text(other)
    return texts if texts[0] != texts[1] else (f"{one:,} bytes", f"{other:,} bytes")
