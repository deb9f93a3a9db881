"""Printing: results on stdout, everything about the run on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from omnigraph.errors import UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph.errors import OmniError

_HOW_TO_LOG_IN = (
    "give a token: `omnigraph login NAME` for a server of your configuration, "
    "or the variable OMNIGRAPH_BEARER_TOKEN"
)


def print_text(text: str) -> None:
    """Print a result for people."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print a result line by line as it is made."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def print_json(document: Mapping[str, object]) -> None:
    """Print a result for programs: one pretty-printed JSON document."""
    print_text(json.dumps(document, indent=2, ensure_ascii=False))


def print_warning(text: str) -> None:
    """Print a warning or an echo line; stdout stays parseable."""
    sys.stderr.write(f"{text}\n")


def print_error(error: OmniError, *, as_json: bool) -> None:
    """Print a failure: one readable message on stderr, or the error body on stdout."""
    if as_json:
        print_json(error.to_json())
    else:
        sys.stderr.write(f"{error.message}\n")
        if isinstance(error, UnauthorizedError):
            sys.stderr.write(f"{_HOW_TO_LOG_IN}\n")
