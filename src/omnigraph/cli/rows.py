"""Rows of a result on a terminal, and as tables, pairs, CSV, JSON lines and JSON for everything else."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Annotated

import click

from omnigraph.cli.command_line import Option
from omnigraph.cli.console import print_data, print_lines, print_warning
from omnigraph.cli.flags import NoPager
from omnigraph.cli.screen import Color, paged, terminal
from omnigraph.cli.tables import Cell, CellLayout, Column, TableLayout, TerminalTable, counted, fit, text_table
from omnigraph.core.source import UNNAMED
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from rich.text import Text

    from omnigraph.api.rows import Result
    from omnigraph.core.types import BaseType

# ---- Flags


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

    @property
    def is_for_people(self) -> bool:
        """Whether people read it."""
        return self in (RowFormat.TABLE, RowFormat.KV)


#: Rows that a terminal shows, unless `--limit` says otherwise.
TERMINAL_ROWS = 100


@frozen
class RowForm:
    """The form of printed rows."""

    format: RowFormat = RowFormat.TABLE
    csv_safe: bool = False
    has_envelope: bool = False
    #: None: what the output suits; 0: all of them.
    limit: int | None = None
    color: Color = Color.AUTO
    is_paged: bool = True
    #: How a person asks for more rows, and for all columns.
    more_rows: str = "--limit N"
    all_columns: str = "--format kv"


@frozen
class RowFlags:
    """How rows are printed."""

    format: Annotated[
        RowFormat | None, Option("--format", help="how rows are printed: table, unless configured otherwise")
    ] = None
    limit: Annotated[
        int | None,
        Option(
            "--limit",
            metavar="N",
            min=0,
            help=f"print the first N rows, 0 for all; {TERMINAL_ROWS} on a terminal, all of them elsewhere",
            show_default=False,
        ),
    ] = None
    csv_safe: Annotated[
        bool, Option("--csv-safe", help="with --format csv: texts that a spreadsheet would run begin with '")
    ] = False
    envelope: Annotated[
        bool, Option("--envelope", help="with --format jsonl: a first line about the query and its rows")
    ] = False
    color: Annotated[Color, Option("--color", help="colours in tables")] = Color.AUTO
    no_pager: NoPager = False

    def check(self, *, json: bool) -> None:
        """Refuse two formats at once.

        Raises:
            click.BadParameter: there are two.
        """
        if json and self.format is not None:
            raise click.BadParameter("give one of --format and --json")

    def form(self, default: RowFormat | None, *, json: bool) -> RowForm:
        """The form that was chosen: `--json`, `--format`, else a default.

        Raises:
            click.BadParameter: two are given, or a flag is about another format.
        """
        self.check(json=json)
        chosen = RowFormat.JSON if json else self.format or default or RowFormat.TABLE
        if self.csv_safe and chosen is not RowFormat.CSV:
            raise click.BadParameter("--csv-safe is about CSV: give --format csv")
        if self.envelope and chosen is not RowFormat.JSONL:
            raise click.BadParameter("--envelope is about JSON lines: give --format jsonl")
        return RowForm(chosen, self.csv_safe, self.envelope, self.limit, self.color, not self.no_pager)


# ---- Printing


def print_rows(result: Result, form: RowForm, layout: TableLayout | None = None, *, quiet: bool = False) -> None:
    """Print rows in a form: for a person at a terminal, or as they are for everything else."""
    screen = terminal(form.color) if form.format.is_for_people else None
    if screen is not None:
        lines = list(terminal_lines(result, form, layout or TableLayout(), width=screen.width))
        paged(screen, lines, is_allowed=form.is_paged)
        return
    lines_of = render_rows(result, form, layout)
    if form.format is RowFormat.JSONL and not form.has_envelope:
        count = print_data(lines_of)
        if not quiet:
            print_warning(header_line(result, count))
    elif form.format.is_data:
        print_data(lines_of)
    else:
        print_lines(lines_of)


def render_rows(result: Result, form: RowForm, layout: TableLayout | None = None) -> Iterator[str]:
    """The lines of a result in a format."""
    rows = result.json_rows()
    if form.limit:
        rows = islice(rows, form.limit)
    match form.format:
        case RowFormat.TABLE:
            yield _plain_header(result, form)
            yield from _plain_table(result.columns, rows, layout or TableLayout())
        case RowFormat.KV:
            yield _plain_header(result, form)
            yield from _pairs(rows)
        case RowFormat.CSV:
            shown = _unformulated if form.csv_safe else _text
            yield _csv_line([shown(name) for name in result.columns])
            for row in rows:
                yield _csv_line([shown(value) for value in row.values()])
        case RowFormat.JSONL:
            if form.has_envelope:
                yield json.dumps(_envelope(result), ensure_ascii=False)
            yield from (json.dumps(row, ensure_ascii=False) for row in rows)
        case RowFormat.JSON:
            document = result.to_json()
            if form.limit:
                document |= {"rows": list(rows), "truncated": form.limit < result.row_count}
            yield json.dumps(document, indent=2, ensure_ascii=False)


def header_line(result: Result, count: int | None = None) -> str:
    """`N rows from branch B via Q`; `count` is the number of rows that were streamed."""
    number = result.row_count if count is None else count
    return f"{counted(number, 'row', form='d')} {_origin(result)}"


def _plain_header(result: Result, form: RowForm) -> str:
    if form.limit and form.limit < result.row_count:
        return f"first {form.limit} of {result.row_count} rows {_origin(result)}"
    return header_line(result)


def _origin(result: Result) -> str:
    via = "" if result.query_name == UNNAMED else f" via {result.query_name}"
    return one_line(f"from {result.target}{via}")


def _envelope(result: Result) -> dict[str, object]:
    return {
        "kind": "metadata",
        "query_name": result.query_name,
        "target": result.target.to_json(),
        "row_count": result.row_count,
    }


# ---- Lines of the formats


_Row = Mapping[str, object]


def _text(value: object) -> str:
    """A JSON value as people read it: text bare, everything else in JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain_table(names: Sequence[str], rows: Iterable[_Row], layout: TableLayout) -> Iterator[str]:
    width = layout.max_column_width
    lines: list[list[str]] = []
    for row in rows:
        texts = [_text(value) for value in row.values()]
        if layout.cells is CellLayout.WRAP:
            lines += _wrapped_row(texts, width)
        else:
            lines.append([fit(text, width) for text in texts])
    return text_table([fit(name, width) for name in names], lines)


def _wrapped_row(texts: Sequence[str], width: int) -> Iterator[list[str]]:
    """A row as the lines of a table that it takes: what does not fit goes on below."""
    from rich.cells import chop_cells

    cells = [chop_cells(one_line(text), width) or [""] for text in texts]
    yield from (list(line) for line in zip_longest(*cells, fillvalue=""))


def _pairs(rows: Iterable[_Row]) -> Iterator[str]:
    for number, row in enumerate(rows, start=1):
        yield f"row {number}"
        for name, value in row.items():
            yield f"  {name}: {one_line(_text(value))}"


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
#: A text that begins with one of them is a formula to a spreadsheet; the wide ones too.
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")


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


# ---- Rows on a terminal


#: How long rows behind those that are shown are counted.
_COUNTING_S = 0.5
#: Items of a list that a cell shows, in characters.
_LIST_WIDTH = 32


@frozen
class FirstRows:
    """The first rows of a result, and how many there are, where counting them took no time."""

    rows: list[list[object]]
    total: int | None


def first_rows(result: Result, limit: int, *, clock: Callable[[], float] = time.monotonic) -> FirstRows:
    """Take the first rows of a result, all of them where the limit is 0, and count the others for a moment."""
    from omnigraph.core.arrow import json_column

    rows: list[list[object]] = []
    total, deadline = 0, None
    for batch in result:
        part = batch.slice(0, limit - len(rows)) if limit else batch
        columns = [json_column(column, type_.base) for column, type_ in zip(part.columns, result.types, strict=True)]
        rows += map(list, zip(*columns, strict=True))
        total += batch.num_rows
        if limit and total > limit:
            deadline = clock() + _COUNTING_S if deadline is None else deadline
            if clock() > deadline:
                return FirstRows(rows, None)
    return FirstRows(rows, total)


def terminal_lines(result: Result, form: RowForm, layout: TableLayout, *, width: int) -> Iterator[Text]:
    """The rows as a terminal of some width shows them, and how many there are."""
    from rich.text import Text

    limit = TERMINAL_ROWS if form.limit is None else form.limit
    found = first_rows(result, limit)
    if form.format is RowFormat.KV:
        yield from _styled_pairs(result.columns, found.rows)
        yield Text(_count(result, found, form), "dim")
        return
    cells = [[_cell(value, type_.base) for value, type_ in zip(row, result.types, strict=True)] for row in found.rows]
    columns = [_column(name, type_.base) for name, type_ in zip(result.columns, result.types, strict=True)]
    table = TerminalTable(columns, cells, width, layout)
    if cells:
        yield from table.lines()
    yield Text(_count(result, found, form), "dim")
    if cells and (hidden := table.hidden_columns):
        yield Text(f"{counted(hidden, 'more column')} to the right: {form.all_columns} shows all", "dim")


def _count(result: Result, found: FirstRows, form: RowForm) -> str:
    shown = len(found.rows)
    if found.total is None:
        return f"first {shown:,} rows {_origin(result)}; there are more: {form.more_rows}"
    if shown < found.total:
        return f"first {shown:,} of {found.total:,} rows {_origin(result)}; more: {form.more_rows}"
    return f"{counted(shown, 'row')} {_origin(result)}"


def _styled_pairs(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[Text]:
    from rich.text import Text

    for number, row in enumerate(rows, start=1):
        yield Text(f"row {number}", "bold")
        for name, value in zip(names, row, strict=True):
            text = one_line(_text(value))
            yield Text.assemble((f"  {one_line(name)}: ", "dim"), (text, "dim" if value is None else ""))


def _column(name: str, base: BaseType) -> Column:
    from omnigraph.core.types import MOMENTS, NUMERICS, Scalar, scalar_of

    scalar = scalar_of(base)
    is_number = scalar in NUMERICS
    return Column(one_line(name), is_number, is_flexible=not (is_number or scalar in MOMENTS or scalar is Scalar.BOOL))


def _cell(value: object, base: BaseType) -> Cell:
    from omnigraph.core.types import VectorType

    if value is None:
        return None
    if isinstance(value, list):
        is_vector = isinstance(base, VectorType)
        return _short_list([f"{item:.4g}" if is_vector else json.dumps(item, ensure_ascii=False) for item in value])
    return _text(value)


def _short_list(items: Sequence[str]) -> str:
    """The first items of a list, and how many there are besides.

    >>> _short_list(["0.5"] * 100)
    '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 94 more]'
    """
    used = 0
    for index, item in enumerate(items):
        used += len(item) + 2
        if used > _LIST_WIDTH and len(items) - index > 1:
            kept = max(index, 1)
            return f"[{', '.join(items[:kept])}, … {len(items) - kept:,} more]"
    return f"[{', '.join(items)}]"
