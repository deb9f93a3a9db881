"""Texts in cells: plain tables for pipes and files, and tables that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING

from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from rich.text import Text

# ---- Texts of bounded width


#: Longest cell of a table; longer ones end with an ellipsis.
MAX_COLUMN_WIDTH = 80


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


# ---- Plain tables


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


# ---- Tables for a terminal
#
# Numbers and moments keep their width, since a part of them says something else. Texts share what is left; when that
# is too little, columns on the right are left out, and a line under the table says how many.


class CellLayout(StrEnum):
    """The layout of cells that are wider than their column."""

    TRUNCATE = "truncate"
    WRAP = "wrap"


@frozen
class TableLayout:
    """The layout of a table."""

    max_column_width: int = MAX_COLUMN_WIDTH
    cells: CellLayout = CellLayout.TRUNCATE


@frozen
class Column:
    """A column of a table: its name, and how its cells stand."""

    name: str
    is_number: bool = False
    #: Whether cells may be cut.
    is_flexible: bool = True


#: A cell: its text, or None for null.
Cell = str | None
_NULL = "null"
_GAP = 2
_ELLIPSIS = "…"
#: Texts are not cut to less.
_NARROWEST = 8


@frozen
class TerminalTable:
    """Rows in columns that fit a width."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    width: int
    layout: TableLayout = TableLayout()

    @property
    def hidden_columns(self) -> int:
        """The number of columns that are left out."""
        return len(self.columns) - len(self._widths())

    def lines(self) -> Iterator[Text]:
        """The names, a rule and the rows, with their styles."""
        from rich.text import Text

        widths = self._widths()
        is_cut = len(widths) < len(self.columns)

        def line(cells: Iterable[Text]) -> Text:
            shown = [*cells, Text(_ELLIPSIS, "dim")] if is_cut else list(cells)
            joined = Text(" " * _GAP).join(shown)
            joined.rstrip()
            return joined

        shown = self.columns[: len(widths)]
        yield line(
            self._padded(fit(item.name, width), width, item, "bold") for item, width in zip(shown, widths, strict=True)
        )
        yield line(Text("─" * width, "dim") for width in widths)
        for row in self.rows:
            yield from map(line, self._row(row[: len(widths)], widths))

    def _row(self, row: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[Text]]:
        """A row as the lines that it takes."""
        parts = [self._parts(cell, width) for cell, width in zip(row, widths, strict=True)]
        styles = ["dim" if cell is None else "" for cell in row]
        for texts in zip_longest(*parts, fillvalue=""):
            cells = zip(texts, widths, self.columns, styles, strict=False)
            yield [self._padded(text, width, column, style) for text, width, column, style in cells]

    def _parts(self, cell: Cell, width: int) -> list[str]:
        text = _shown(cell)
        if self.layout.cells is CellLayout.TRUNCATE:
            return [fit(text, width)]
        from rich.cells import chop_cells

        return chop_cells(text, width) or [""]

    def _padded(self, text: str, width: int, column: Column, style: str) -> Text:
        from rich.cells import cell_len
        from rich.text import Text

        blanks = " " * (width - cell_len(text))
        return Text(f"{blanks}{text}" if column.is_number else f"{text}{blanks}", style)

    def _widths(self) -> list[int]:
        """The widths of the columns that are shown."""
        from rich.cells import cell_len

        cells = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        natural = [
            min(max(cell_len(_shown(text)) for text in (column.name, *found)), self.layout.max_column_width)
            for column, found in zip(self.columns, cells, strict=True)
        ]
        return fitted_widths(natural, [item.is_flexible for item in self.columns], self.width)


def _shown(cell: Cell) -> str:
    return _NULL if cell is None else one_line(cell)


def fitted_widths(natural: Sequence[int], is_flexible: Sequence[bool], width: int) -> list[int]:
    """The widths of columns, with gaps between them, in so many cells; those on the right may be left out.

    >>> fitted_widths([4, 50, 60], [False, True, True], 60)
    [4, 26, 26]
    >>> fitted_widths([4, 50, 60], [False, True, True], 20)
    [4, 11]
    """
    least = [min(item, _NARROWEST) if flexible else item for item, flexible in zip(natural, is_flexible, strict=True)]
    count = len(natural)
    while count > 1 and sum(least[:count]) + _taken(count, len(natural)) > width:
        count -= 1
    room = width - _taken(count, len(natural))
    if count == 1 and least[0] > room:
        return [max(room, 1)]
    widths = list(least[:count])
    while True:
        # The narrowest of those that want more grow first: short texts stay whole.
        wanting = [index for index in range(count) if widths[index] < natural[index]]
        spare = room - sum(widths)
        if not wanting or spare < 1:
            return widths
        narrowest = min(widths[index] for index in wanting)
        growing = [index for index in wanting if widths[index] == narrowest][:spare]
        for index in growing:
            widths[index] += 1


def _taken(count: int, total: int) -> int:
    """The cells that gaps take, and the mark of columns that are left out."""
    return _GAP * (count - 1) + (_GAP + len(_ELLIPSIS) if count < total else 0)
