"""Reading the `OMNIGRAPH_*` variables: what cannot be read falls back to its default, with a warning."""

from __future__ import annotations

import logging
import os

_log = logging.getLogger(__name__)
#: More digits than any setting has; Python refuses to convert very long texts.
_MAX_DIGITS = 18


def whole_number(
    name: str, default: int, lowest: int = 0, highest: int = 10**_MAX_DIGITS - 1
) -> int:
    """A variable as a whole number between bounds, both included."""
    text = os.environ.get(name)
    if text is None:
        return default
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        number = int(digits)
        if lowest <= number <= highest:
            return number
    _log.warning(
        "%s=%s is not a whole number from %d to %d; using %d", name, text, lowest, highest, default
    )
    return default
