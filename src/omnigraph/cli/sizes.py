"""Sizes as people read them."""

from __future__ import annotations

_STEP = 1024
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """A number of bytes with the unit that fits.

    >>> size_text(1536)
    '1.5 KiB'
    """
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    size, power = size_bytes / _STEP, 0
    while size >= _STEP and power < len(_UNITS) - 1:
        size, power = size / _STEP, power + 1
    return f"{size:.1f} {_UNITS[power]}"
