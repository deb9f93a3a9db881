"""What the oracle says about a result, and whether a real result agrees with it.

An answer is more than rows: without an order any arrangement is right, with a limit besides any choice of rows is, a
sum of floats depends on the order of its additions, and relevance is not predicted at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from support.oracle.graphs import Row

#: Relative to the sum of the magnitudes that were added.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Approximate:
    """A float that an engine may compute in another order of operations."""

    value: float
    #: How far the true result may be away.
    slack: float
    #: Whether every order of operations gives `value` itself.
    is_exact: bool = False

    def accepts(self, found: object) -> bool:
        return type(found) is float and (
            found == self.value or abs(found - self.value) <= self.slack
        )


@dataclass(frozen=True, slots=True)
class Unpredicted:
    """A score that is not predicted: any finite float."""

    def accepts(self, found: object) -> bool:
        return type(found) is float and math.isfinite(found)


@dataclass(frozen=True, slots=True)
class Instant:
    """The moment of `now()`, about which only the neighbourhood is known."""

    about: datetime

    def accepts(self, found: object) -> bool:
        return isinstance(found, datetime) and abs(found - self.about) < timedelta(minutes=5)


Judge = Approximate | Unpredicted | Instant


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query, as far as the language determines it."""

    columns: tuple[str, ...]
    #: All rows before the limit, in order if the order is determined.
    rows: list[Row]
    is_ordered: bool
    limit: int | None

    @property
    def row_count(self) -> int:
        """How many rows there are after the limit."""
        return len(self.rows) if self.limit is None else min(self.limit, len(self.rows))

    def objection(self, columns: Sequence[str], rows: Sequence[Row]) -> str | None:
        """Why a result is wrong; None when it is right."""
        if tuple(columns) != self.columns:
            return f"columns {list(columns)}, wanted {list(self.columns)}"
        for row in rows:
            if row.keys() != set(self.columns):
                return f"a row has the columns {list(row)}"
        if len(rows) != self.row_count:
            return f"{len(rows)} rows, wanted {self.row_count}: {self._shown(rows)}"
        return self._drifting(rows) or (
            self._misplaced(rows) if self.is_ordered else self._surplus(rows)
        )

    def _misplaced(self, rows: Sequence[Row]) -> str | None:
        for number, (wanted, found) in enumerate(zip(self.rows, rows, strict=False)):
            if not _same_row(wanted, found):
                return f"row {number} is {found}, wanted {wanted}; all: {self._shown(rows)}"
        return None

    def _surplus(self, rows: Sequence[Row]) -> str | None:
        """A row that is not among the wanted ones, or too often."""
        if not any(isinstance(cell, Judge) for row in self.rows for cell in row.values()):
            surplus = Counter(map(_frozen, rows)) - Counter(map(_frozen, self.rows))
            return f"{next(iter(surplus))} is too much: {self._shown(rows)}" if surplus else None
        waiting = list(self.rows)
        for found in rows:
            at = next((n for n, row in enumerate(waiting) if _same_row(row, found)), None)
            if at is None:
                return f"{found} is too much: {self._shown(rows)}"
            del waiting[at]
        return None

    def _drifting(self, rows: Sequence[Row]) -> str | None:
        """Scores fall from row to row, and there is one `now()` per query."""
        for column, cell in self.rows[0].items() if self.rows else ():
            found = [row[column] for row in rows]
            if isinstance(cell, Instant) and len(set(found)) > 1:
                return f"`now()` moves: {found}"
            is_score = isinstance(cell, Unpredicted) and all(map(cell.accepts, found))
            if is_score and any(later > earlier for earlier, later in pairwise(found)):
                return f"the scores rise: {found}"
        return None

    def _shown(self, rows: Sequence[Row]) -> str:
        how = "in this order" if self.is_ordered else "in any order"
        if self.limit is not None:
            how += f", the first {self.limit}" if self.is_ordered else f", any {self.limit}"
        return f"found {list(rows)[:20]}, wanted {how} {self.rows[:20]}"


def _same_row(wanted: Row, found: Row) -> bool:
    return all(_same_cell(cell, found[column]) for column, cell in wanted.items())


def _same_cell(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Judge):
        return wanted.accepts(found)
    return bool(_frozen_cell(wanted) == _frozen_cell(found))


def _frozen(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((column, _frozen_cell(cell)) for column, cell in row.items()))


def _frozen_cell(cell: Any) -> Any:
    """A cell that can be counted and knows its type: 1, 1.0 and true are three values."""
    if isinstance(cell, list):
        return "list", tuple(map(_frozen_cell, cell))
    return type(cell).__name__, cell
