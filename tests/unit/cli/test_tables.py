"""Rows on a terminal: what fits, what is cut, and what is said about the rest."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from omnigraph.api.rows import Result
from omnigraph.cli.rows import FirstRows, RowForm, RowFormat, first_rows, terminal_lines
from omnigraph.cli.tables import CellLayout, Column, TableLayout, TerminalTable, fitted_widths
from omnigraph.commit.read_target import Target
from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType

_WIDTHS = st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=12)


@given(_WIDTHS, st.integers(1, 200))
def test_columns_never_take_more_than_the_width_and_numbers_stay_whole(columns, width) -> None:
    natural, flexible = zip(*columns, strict=True)
    widths = fitted_widths(natural, flexible, width)
    cut = len(widths) < len(natural)
    taken = sum(widths) + 2 * (len(widths) - 1) + (3 if cut else 0)
    assert 1 <= len(widths) <= len(natural)
    assert taken <= width or widths == [1]
    assert all(given <= wanted for given, wanted in zip(widths, natural, strict=False))
    if len(widths) > 1:
        assert all(item == natural[index] or (flexible[index] and item >= 8) for index, item in enumerate(widths))
    if sum(natural) + 2 * (len(natural) - 1) <= width:
        assert widths == list(natural)


COLUMNS = [Column("name"), Column("n", is_number=True, is_flexible=False), Column("note")]
ROWS = [["日本語", "1", "a\nb"], ["é" * 20, None, ""], ["x", "-20", None]]


def _shown(width: int, layout: TableLayout | None = None) -> list[str]:
    return [line.plain for line in TerminalTable(COLUMNS, ROWS, width, layout or TableLayout()).lines()]


def test_numbers_stand_on_the_right_and_wide_characters_keep_their_columns() -> None:
    assert _shown(60) == [
        "name                     n  note",
        "────────────────────  ────  ────",
        "日本語                   1  a\\nb",
        f"{'é' * 20}  null",
        "x                      -20  null",
    ]


def test_texts_are_cut_before_columns_are_left_out() -> None:
    assert _shown(24)[3] == f"{'é' * 11}…  null"
    narrow = TerminalTable(COLUMNS, ROWS, 17)
    assert narrow.hidden_columns == 1
    assert [line.plain for line in narrow.lines()][2] == "日本語       1  …"


def test_a_wrapped_cell_goes_on_below() -> None:
    wrapped = _shown(24, TableLayout(cells=CellLayout.WRAP))
    assert wrapped[3:5] == [f"{'é' * 12}  null", "é" * 8]


def test_a_null_is_quiet() -> None:
    table = TerminalTable(COLUMNS, ROWS, 60)
    styles = {line.plain[span.start : span.end].strip(): span.style for line in table.lines() for span in line.spans}
    assert styles["null"] == "dim"
    assert styles["name"] == "bold"


# ---- results


def _result(batches: int, size: int) -> Result:
    schema = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("vec", pa.list_(pa.float32(), 3))])

    def made():
        for number in range(batches):
            rows = [{"n": number * size + i, "tags": ["a"] * 40, "vec": [0.1, 2.0, 1e9]} for i in range(size)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    types = (ScalarType(Scalar.I64), ListType(Scalar.STRING), VectorType(3))
    return Result(
        schema,
        made(),
        query_name="some",
        target=Target(),
        commit_id="c",
        types=tuple(PropertyType(base, nullable=True) for base in types),
    )


@pytest.mark.parametrize(
    ("limit", "seconds", "rows", "total"),
    [
        (0, 1.0, 30, 30),
        (100, 1.0, 30, 30),
        (30, 1.0, 30, 30),
        (12, 0.0, 12, 30),
        (12, 9.0, 12, None),
        (5, 1.0, 5, None),
    ],
)
def test_rows_that_are_not_shown_are_counted_for_a_moment(
    limit: int, seconds: float, rows: int, total: int | None
) -> None:
    ticks = itertools.count()
    found = first_rows(_result(3, 10), limit, clock=lambda: next(ticks) * seconds)
    assert [row[0] for row in found.rows] == list(range(rows))
    assert found.total == total


def test_lists_are_shortened_and_the_count_comes_last() -> None:
    lines = list(terminal_lines(_result(1, 2), RowForm(limit=1), TableLayout(), width=80))
    assert [line.plain for line in lines][2:] == [
        '0  ["a", "a", "a", "a", "a", "a", … 34 more]  [0.1, 2, 1e+09]',
        "first 1 of 2 rows from branch main via some; more: --limit N",
    ]
    assert max(cell_len(line.plain) for line in lines) <= 80
    pairs = list(terminal_lines(_result(1, 1), RowForm(RowFormat.KV), TableLayout(), width=80))
    assert [line.plain for line in pairs][:2] == ["row 1", "  n: 0"]
    assert pairs[-1].plain == "1 row from branch main via some"
    assert FirstRows([], 0).rows == []
