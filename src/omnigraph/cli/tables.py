"""Rows and values as text."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING

from omnigraph.errors.text import one_line

if TYPE_CHECKING:
    from omnigraph.api.rows import Result


# ---- Rows as tables, CSV and JSON lines


#: Longest cell of a table; longer ones end with an ellipsis.
MAX_COLUMN_WIDTH = 80
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
#: A text that begins with one of them is a formula to a spreadsheet; the wide ones too.
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")


class RowFormat(StrEnum):
    """The format of printed rows."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"

    @property
    def is_data(self) -> bool:
        """Whether programs read it, line by line and as it is."""
        return self in (RowFormat.CSV, RowFormat.JSONL)


class CellLayout(StrEnum):
    """The layout of cells that are wider than their column."""

    TRUNCATE = "truncate"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a table."""

    max_column_width: int = MAX_COLUMN_WIDTH
    cells: CellLayout = CellLayout.TRUNCATE


def render_rows(
    result: Result, format_: RowFormat, layout: TableLayout | None = None, *, csv_safe: bool = False
) -> Iterator[str]:
    """The lines of a result in a format; `layout` is about tables, `csv_safe` about spreadsheets that read the CSV."""
    match format_:
        case RowFormat.TABLE:
            yield header_line(result)
            yield from _fitted_table(result, layout or TableLayout())
        case RowFormat.KV:
            yield header_line(result)
            yield from _pairs(result)
        case RowFormat.CSV:
            shown = _unformulated if csv_safe else _text
            yield _csv_line([shown(name) for name in result.columns])
            for row in result.json_rows():
                yield _csv_line([shown(value) for value in row.values()])
        case RowFormat.JSONL:
            yield from _json_lines(result)
        case RowFormat.JSON:
            yield json.dumps(result.to_json(), indent=2, ensure_ascii=False)


def header_line(result: Result) -> str:
    """`N rows from branch B via Q`."""
    return f"{counted(result.row_count, 'row', form='d')} from {result.target} via {result.query_name}"


def _text(value: object) -> str:
    """A JSON value as people read it: text bare, everything else in JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fitted_table(result: Result, layout: TableLayout) -> Iterator[str]:
    width = layout.max_column_width
    rows: list[list[str]] = []
    for row in result.json_rows():
        texts = [_text(value) for value in row.values()]
        if layout.cells is CellLayout.WRAP:
            rows += _wrapped_row(texts, width)
        else:
            rows.append([fit(text, width) for text in texts])
    return text_table([fit(name, width) for name in result.columns], rows)


def _wrapped_row(texts: Sequence[str], width: int) -> Iterator[list[str]]:
    """A row as the lines of a table that it takes: what does not fit goes on below."""
    from rich.cells import chop_cells

    cells = [chop_cells(one_line(text), width) or [""] for text in texts]
    yield from (list(line) for line in zip_longest(*cells, fillvalue=""))


def fit(text: str, width: int = MAX_COLUMN_WIDTH) -> str:
    """A visible text of so many cells; what does not fit is an ellipsis."""
    from rich.cells import cell_len

    text = one_line(text)
    if len(text) <= width // 2 or cell_len(text) <= width:
        return text
    shown, used = [], 0
    for character in text:
        used += cell_len(character)
        if used >= width:
            break
        shown.append(character)
    return f"{''.join(shown)}…"


def counted(number: int, one: str, many: str | None = None, *, form: str = ",") -> str:
    """A number of things: `1 row`, `1,200 rows`; `form` is the one of the number."""
    return f"{number:{form}} {one if number == 1 else many or f'{one}s'}"


def wrapped(text: str, width: int) -> list[str]:
    """A visible text as lines of about so many characters; words stay whole, so that paths can be copied."""
    return textwrap.wrap(one_line(text), width, break_long_words=False, break_on_hyphens=False) or [""]


def text_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table: names, a rule, and the rows under them; nothing when there are no rows."""
    from rich.cells import cell_len

    if not rows:
        return
    columns = list(zip(*[names, *rows], strict=True))
    widths = [max(cell_len(cell) for cell in column) for column in columns]

    def line(cells: Iterable[str]) -> str:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
        return "  ".join(padded).rstrip()

    yield line(names)
    yield line("-" * width for width in widths)
    yield from (line(row) for row in rows)


def _pairs(result: Result) -> Iterator[str]:
    for number, row in enumerate(result.json_rows(), start=1):
        yield f"row {number}"
        for name, value in row.items():
            yield f"  {name}: {one_line(_text(value))}"


def _csv_line(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    # The writer quotes a cell for the characters of its line terminator only: both have to be in it.
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().removesuffix("\r\n")


def _unformulated(value: object) -> str:
    """A value as people read it; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    text = _text(value)
    # Spreadsheets pass over blanks before the sign.
    begins_one = text.lstrip()[:1] in _FORMULA_SIGNS or text[:1] in ("\t", "\r", "\n")
    if isinstance(value, str) and begins_one and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def _json_lines(result: Result) -> Iterator[str]:
    metadata = {
        "kind": "metadata",
        "query_name": result.query_name,
        "target": result.target.to_json(),
        "row_count": result.row_count,
    }
    yield json.dumps(metadata, ensure_ascii=False)
    for row in result.json_rows():
        yield json.dumps(row, ensure_ascii=False)


# ---- Values side by side


#: Longest value in a line or a cell that holds several.
VALUE_WIDTH = 32


def value_text(value: object) -> str:
    """A value as JSON spells it: null, "null" and "" are three different things."""
    return json.dumps(value, ensure_ascii=False)


def compared(texts: Sequence[str], width: int = VALUE_WIDTH) -> list[str]:
    """Texts that differ, fitted: long ones begin shortly before the first difference between them."""
    long = [text for text in texts if len(text) > width]
    if len(set(long)) > 1:
        shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*long, strict=False))
        begin = sum(1 for _ in shared) - width // 3
        if begin > 1:
            texts = [f"…{text[begin:]}" if len(text) > width else text for text in texts]
    return [fit(text, width) for text in texts]


def image_values(image: Mapping[str, object]) -> dict[str, str]:
    """The values of a row image, by name and as text: the ends of an edge, then the properties."""
    parts = (image.get("endpoints"), image["properties"])
    return {name: value_text(value) for part in parts if isinstance(part, dict) for name, value in part.items()}
