"""Reading the `OMNIGRAPH_*` variables: what cannot be read falls back to its default, with a warning."""

from __future__ import annotations

import logging
import os

_log = logging.getLogger(__name__)
#: More digits than any setting has; Python refuses to convert very long texts.
_MAX_DIGITS = 18


def whole_number(name: str, default: int) -> int:
    """A variable as a number from 0 on."""
    text = os.environ.get(name)
    if text is None:
        return default
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        _log.warning("%s=%s is not a whole number; using %d", name, text, default)
        return default
    return int(digits)
