"""Reading the `OMNIGRAPH_*` variables: what cannot be read falls back to its default, with a warning.

Also the one folder of the user that holds what may be made again at any time.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

_log = logging.getLogger(__name__)
#: More digits than any setting has; Python refuses to convert very long texts.
_MAX_DIGITS = 18
_DURATION = re.compile(r"([0-9]{1,9})([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_CACHE = "OMNIGRAPH_CACHE_DIR"
_OFF = "off"
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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


def duration_s(name: str, default: str) -> float:
    """A variable as a duration in seconds, as `parse_duration_s` reads it."""
    text = os.environ.get(name)
    if text is None:
        return parse_duration_s(default)
    try:
        return parse_duration_s(text)
    except ValueError:
        _log.warning(
            "%s=%s is not a duration such as 45s, 30m, 12h or 7d; using %s", name, text, default
        )
        return parse_duration_s(default)


def parse_duration_s(text: str) -> float:
    """A duration in seconds: a whole number and one of `s`, `m`, `h`, `d` and `w`; without one it is seconds.

    >>> parse_duration_s("12h")
    43200.0

    Raises:
        ValueError: the text is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(int(match[1]) * _SECONDS[match[2]])


def available_memory() -> int:
    """The bytes of memory that this process may use: of the machine, or of the container that it is in."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def cache_folder(name: str) -> Path | None:
    """A folder of the user alone for files that make later starts shorter; None when there is no place.

    What lies there is run: analysed grammars, class archives, a launcher of Java. So a folder in which another user
    could have put something is not used. `OMNIGRAPH_CACHE_DIR` names another parent folder, or `off`.
    """
    chosen = os.environ.get(_CACHE)
    if chosen == _OFF:
        return None
    try:
        parent = Path(chosen) if chosen else _user_folder()
        folder = parent / name
        for one in (parent, folder):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
            if problem := _shared_with_others(one):
                _log.warning("%s is not used as a cache: %s", one, problem)
                return None
        usable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):
        return None
    return folder.resolve() if usable else None


def _shared_with_others(folder: Path) -> str | None:
    """Why other users may have put files into a folder; None when they cannot."""
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write to it (chmod go-w)"
    return None


def _user_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "omnigraph"


def is_on(name: str) -> bool:
    """Whether a variable says yes: `1`, `true`, `yes` or `on`, in any case."""
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
