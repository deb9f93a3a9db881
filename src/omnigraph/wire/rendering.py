"""Values of results as text."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def text_value(value: object) -> str:
    """A JSON value as people read it in a table: text bare, everything else in JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def html_table(names: Sequence[str], columns: Sequence[Sequence[object]], *, total: int) -> str:
    """A table for notebooks; `total` rows exist, the columns hold the first of them."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text_value(value))}</td>" for value in row) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    shown = len(columns[0]) if columns else 0
    note = f"{total} row{'' if total == 1 else 's'}"
    if shown < total:
        note += f", first {shown} shown"
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{html.escape(note)}</p>"
    )
