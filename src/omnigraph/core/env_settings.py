"""Declaring and reading the `OMNIGRAPH_*` variables: what cannot be read falls back to its default, with a warning.

Also the one folder of the user that holds what may be made again at any time.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import Self

_log = logging.getLogger(__name__)
#: More digits than any setting has; Python refuses to convert very long texts.
_MAX_DIGITS = 18
_MAX_NUMBER = 10**_MAX_DIGITS - 1
_DURATION = re.compile(r"([0-9]{1,9})([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_OFF = "off"
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


#: Every variable that a module which is imported declares.
DECLARED: dict[str, Variable] = {}


class Variable(str):
    """The name of a variable, declared once where it is read.

    Carries what `docs/reference/settings.md` says about it: its default, the values it takes, and what it is for.
    """

    shown_default: str
    values: str
    purpose: str

    def __new__(cls, name: str, purpose: str, *, default: str = "–", values: str = "") -> Self:
        """Declare a variable.

        Raises:
            ValueError: another module declares it too.
        """
        self = super().__new__(cls, name)
        self.shown_default, self.values, self.purpose = default, values, purpose
        if DECLARED.setdefault(name, self) is not self:
            raise ValueError(f"{name} is declared twice")
        return self

    def text(self, default: str = "") -> str:
        """The value without blanks around it; the default when it is unset or blank."""
        return os.environ.get(self, "").strip() or default

    def is_on(self) -> bool:
        """Whether it says yes: `1`, `true`, `yes` or `on`, in any case."""
        return self.text().lower() in ("1", "true", "yes", "on")


class WholeNumber(Variable):
    """A variable that holds a whole number between bounds, both included."""

    default: int
    lowest: int
    highest: int

    def __new__(
        cls,
        name: str,
        default: int,
        purpose: str,
        *,
        lowest: int = 0,
        highest: int = _MAX_NUMBER,
        shown: str | None = None,
    ) -> Self:
        """Declare a variable; `shown` describes a default that depends on the machine."""
        in_bytes = name.endswith("_BYTES")
        bounds = f"{lowest} to {highest}" if highest < _MAX_NUMBER else f"{lowest} or more"
        self = super().__new__(
            cls,
            name,
            purpose,
            default=shown or (_shown_bytes(default) if in_bytes else f"`{default}`"),
            values=f"bytes, {bounds}" if in_bytes else bounds,
        )
        self.default, self.lowest, self.highest = default, lowest, highest
        return self

    def read(self, default: int | None = None) -> int:
        """The number; its default, or the given one, when it is unset, or with a warning when it is not a number."""
        fallback = self.default if default is None else default
        text = os.environ.get(self)
        if text is None:
            return fallback
        digits = text.strip()
        if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
            number = int(digits)
            if self.lowest <= number <= self.highest:
                return number
        _log.warning(
            "%s=%s is not a whole number from %d to %d; using %d", self, text, self.lowest, self.highest, fallback
        )
        return fallback


class Duration(Variable):
    """A variable that holds a duration, as `parse_duration_s` reads it."""

    default: str

    def __new__(cls, name: str, default: str, purpose: str) -> Self:
        """Declare a variable."""
        self = super().__new__(cls, name, purpose, default=f"`{default}`", values="a duration")
        self.default = default
        return self

    @property
    def default_s(self) -> float:
        """The default in seconds."""
        return parse_duration_s(self.default)

    def read_s(self) -> float:
        """The seconds; those of the default when it is unset, or with a warning when it is not a duration."""
        text = os.environ.get(self)
        if text is None:
            return self.default_s
        try:
            return parse_duration_s(text)
        except ValueError:
            _log.warning("%s=%s is not a duration such as 45s, 30m, 12h or 7d; using %s", self, text, self.default)
            return self.default_s


def _shown_bytes(size: int) -> str:
    for factor, unit in ((1024**3, "GiB"), (1024**2, "MiB")):
        if size >= factor and size % factor == 0:
            return f"`{size}` ({size // factor} {unit})"
    return f"`{size}`"


def parse_duration_s(text: str) -> float:
    """A duration in seconds: a whole number and one of `s`, `m`, `h`, `d` and `w`; without one it is seconds.

    >>> parse_duration_s("12h")
    43200.0

    Raises:
        ValueError: the text is not a duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(int(match[1]) * _SECONDS[match[2]])


_CACHE = Variable(
    "OMNIGRAPH_CACHE_DIR",
    "The folder for analysed grammars, class archives and the launcher of Java; `off` keeps none.",
    default="`~/.cache/omnigraph`",
    values="a folder, or `off`",
)


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
