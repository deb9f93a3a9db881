"""Where a command takes its query and its parameters from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.syntax.source import SourceText


#: Why a name alone needs a server.
STORED = "a query by its name alone is stored on a server"


def source_or_name(path: Path | None, text: str | None, name: str | None) -> SourceText | str:
    """The source that the flags name; without one the name of a query that a server has stored."""
    if path is None and text is None and name is not None:
        return name
    return query_source(path, text)


def query_source(path: Path | None, text: str | None) -> SourceText:
    """The one source that the flags name."""
    from omnigraph.query.compiler import read_queries
    from omnigraph.syntax.source import SourceText

    if (path is None) == (text is None):
        raise typer.BadParameter("give exactly one of --query FILE and -e GQ")
    if path is not None:
        return read_queries(path)
    if text is None or not text.strip():
        raise typer.BadParameter("the query text is empty")
    return SourceText(text, "<query>")


def read_params(text: str | None, path: Path | None) -> dict[str, object]:
    """The parameters that the flags name.

    Raises:
        BadRequestError: they are not a JSON object.
        InputFileError: the file cannot be read.
    """
    if text is not None and path is not None:
        raise typer.BadParameter("give one of --params and --params-file")
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(str(path), str(error)) from error
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the parameters are not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadRequestError('the parameters are not a JSON object such as {"name": "value"}')
    return values
