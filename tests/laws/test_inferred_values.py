"""Tables of random columns: what is proposed for them reads every row, and values come out as they went in."""

from __future__ import annotations

import shutil
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.types import Scalar, ScalarType
from omnigraph.inference.proposal import propose_for_files
from omnigraph.inference.trial import read_rows
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.pipeline.violations import ViolationCounts
from support.public_shapes import write_csv

#: Without what separates the items of lists.
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="|;,"), min_size=1, max_size=12
)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> tuple[list[str], list[Any]]:
    """The texts of a column in a CSV file, and the values that they stand for."""

    def some(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    match draw(st.sampled_from(("whole", "real", "thousands", "flag", "day", "dotted day", "list", "text"))):
        case "whole":
            numbers = some(st.integers(-(2**53), 2**53))
            return [str(number) for number in numbers], numbers
        case "real":
            floats = [number / 8 for number in some(st.integers(-(2**30), 2**30))]
            return [f"{number:.3f}" for number in floats], floats
        case "thousands":
            numbers = [number * 1000 + 1234 for number in some(st.integers(0, 10**6))]
            return [f"{number:,}" for number in numbers], numbers
        case "flag":
            flags = [True, False, *some(st.booleans())[2:]][:rows]
            return ["yes" if flag else "no" for flag in flags], flags if rows > 1 else ["yes"]
        case "day":
            days = some(st.dates(date(1800, 1, 1), date(2200, 1, 1)))
            return [day.isoformat() for day in days], days
        case "dotted day":
            days = some(st.dates(date(1800, 1, 1), date(2200, 1, 1)))
            return [f"{day:%d.%m.}{day.year}" for day in days], days
        case "list":
            lists = [["a", "b"], ["b", "c", "a"], *some(st.lists(st.sampled_from("abc"), min_size=1, max_size=3))][
                :rows
            ]
            return ["|".join(items) for items in lists], lists if rows > 1 else ["a|b"]
    # A letter first: other texts may stand for numbers, dates or null.
    texts = [f"t{text}" for text in some(_TEXT)]
    return texts, texts


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], list[list[Any]]]:
    rows = draw(st.integers(3, 25))
    found = [draw(columns(rows)) for _ in range(draw(st.integers(1, 6)))]
    empty = draw(st.lists(st.booleans(), min_size=rows, max_size=rows)) if draw(st.booleans()) else [False] * rows
    texts = [[text if not gone else "" for text, gone in zip(column, empty, strict=True)] for column, _ in found]
    values = [[value if not gone else None for value, gone in zip(column, empty, strict=True)] for _, column in found]
    return texts, values


@given(table=tables())
def test_every_row_of_a_clean_table_is_read_and_keeps_its_values(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[list[str]], list[list[Any]]]
) -> None:
    texts, values = table
    folder = tmp_path_factory.mktemp("table")
    names = [f"c{number}" for number in range(len(texts))]
    lines = [(n, *row) for n, row in enumerate(zip(*texts, strict=True))]
    write_csv(folder / "things.csv", ["thing_id", *names], lines)
    found = propose_for_files([folder])
    assert found.notes == ()
    violations = ViolationCounts()
    rows = pa.concat_tables(shaped.rows for shaped in read_rows(found.schema, found.mapping_content(), violations))
    assert not violations
    assert rows.num_rows == len(lines)
    types = compile_schema(found.schema).catalog.nodes["Thing"].properties
    for name, column, given_texts in zip(names, values, texts, strict=True):
        is_text = types[name].type.base == ScalarType(Scalar.STRING)
        wanted = [text or None for text in given_texts] if is_text else column
        assert [_plain(value) for value in rows[name].to_pylist()] == [_plain(value) for value in wanted]
    shutil.rmtree(folder)


def _plain(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value
