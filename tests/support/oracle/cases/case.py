"""The form of a case that a person computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from support.oracle.graphs import Row, World
from support.oracle.queries import Query
from support.oracle.reading import from_text


@dataclass(frozen=True)
class Case:
    """A query over a world, and the rows that a person expects.

    `rows` are tuples in the order of `return`; a row of one column may stand alone. Their order counts when the query
    has an order.
    """

    title: str
    world: World
    body: str
    rows: Sequence[Any]
    declared: str = ""
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The query as the engine gets it."""
        return f"query q({self.declared}) {{ {self.body} }}"

    @cached_property
    def query(self) -> Query:
        """The query as the oracle gets it."""
        return from_text(self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result columns."""
        return tuple(item.column for item in self.query.returns)

    @property
    def expected(self) -> list[Row]:
        """The rows with the names of their columns."""
        tuples = [row if isinstance(row, tuple) else (row,) for row in self.rows]
        return [dict(zip(self.columns, row, strict=True)) for row in tuples]
