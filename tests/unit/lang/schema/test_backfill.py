from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.backfill import (
    Call,
    Constant,
    Expression,
    PropertyValue,
    pick_backfill,
    read_backfill,
    split_backfill,
    split_target,
    used_properties,
)
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

#: What rows have, and one property of every type to fill.
OLD = compile_schema(
    """
    node Paper {
        doi: String @key
        title: String?
        year: I32?
        score: F32?
        stage: enum(draft, final)?
        tags: [String]?
        vec: Vector(2)?
        body: Blob?
        coalesce: String?
    }
    """
).catalog.nodes["Paper"]
NEW = {
    "text": "String?",
    "flag": "Bool",
    "small": "I32",
    "big": "I64",
    "real": "F64",
    "day": "Date",
    "at": "DateTime",
    "stage": "enum(draft, final)",
    "tags": "[String]",
    "days": "[Date]",
    "vec": "Vector(2)",
    "file": "Blob",
}
TYPES = {
    name: definition.type
    for name, definition in compile_schema(
        f"node N {{ {' '.join(f'{name}: {type_}' for name, type_ in NEW.items())} }}"
    )
    .catalog.nodes["N"]
    .properties.items()
}


def read(name: str, value: object) -> Expression:
    return read_backfill(f"Paper.{name}", value, TYPES[name], OLD).expression


@each_case(
    ("name", "value", "stored"),
    [
        ("text", '"en"', "en"),
        ("text", r'"a \"b\" \u00e4\n"', 'a "b" ä\n'),
        ("text", '""', ""),
        ("text", '"日本"', "日本"),
        ("flag", "true", True),
        ("flag", False, False),
        ("small", " -5 ", -5),
        ("big", 2**62, 2**62),
        ("real", "1", 1.0),
        ("real", "-1.5e3", -1500.0),
        ("day", '"1970-01-03"', 2),
        ("at", '"1970-01-01T00:00:01Z"', 1000),
        ("stage", '"final"', "final"),
        ("tags", '["a", "ü"]', ("a", "ü")),
        ("tags", [], ()),
        ("days", '["1970-01-02"]', (1,)),
        ("vec", [0, 0.5], (0.0, 0.5)),
        ("file", '"base64:YWJj"', b"abc"),
    ],
)  # fmt: skip
def test_a_constant_becomes_a_stored_value(name: str, value: object, stored: object) -> None:
    expression = read(name, value)
    assert isinstance(expression, Constant)
    found = expression.value
    assert (tuple(found) if isinstance(found, list) else found) == stored


def test_names_are_properties_also_those_of_functions() -> None:
    assert read("text", "title") == PropertyValue("title")
    assert read("text", "coalesce") == PropertyValue("coalesce")
    assert read("text", "coalesce(coalesce, title)") == Call(
        "coalesce", (PropertyValue("coalesce"), PropertyValue("title"))
    )


def test_functions_are_nested() -> None:
    expression = read("text", ' concat ( lower(trim( title )), "-", coalesce(stage, "none") ) ')
    assert expression == Call(
        "concat",
        (
            Call("lower", (Call("trim", (PropertyValue("title"),)),)),
            Constant("-"),
            Call("coalesce", (PropertyValue("stage"), Constant("none"))),
        ),
    )
    assert used_properties(expression) == {"title", "stage"}


@each_case(
    ("name", "value"),
    [
        ("big", "year"),
        ("real", "coalesce(score, 0)"),
        ("text", "stage"),
        ("stage", 'coalesce(stage, "draft")'),
        ("tags", 'coalesce(tags, ["none"])'),
        ("vec", "coalesce(vec, [0, 0])"),
    ],
)
def test_a_property_fits_where_its_values_are_values(name: str, value: str) -> None:
    assert used_properties(read(name, value))


@each_case(
    ("name", "value", "why"),
    [
        ("text", "en", 'Paper has no property `en`, and a text is written "en"'),
        ("text", "titel", "a text is written \"titel\": did you mean `title`?"),
        ("text", "year", "year does not fit String"),
        ("text", "lower(year)", "lower(year) does not fit String"),
        ("text", 5, "5 is not a String"),
        ("text", "concat(title, 5)", "5 is not a String"),
        ("text", "", "'' cannot be read at column 1; a text is written in double quotes"),
        ("text", "'en'", "cannot be read at column 1"),
        ("text", "title year", "cannot be read at column 7"),
        ("text", "lower(title", "cannot be read at column"),
        ("text", r'"\q"', "Invalid \\escape"),
        ("text", "lowr(title)", "there is no function `lowr`: did you mean `lower`?"),
        ("text", "now(title)", "there is no function `now`: known here: `coalesce`, `concat`, `lower`"),
        ("text", "lower(title, title)", "`lower` takes 1 argument"),
        ("text", "coalesce(title)", "`coalesce` takes 2 arguments or more"),
        ("text", "lower(" * 200 + "title" + ")" * 200, "it is nested more than 100 levels deep"),
        ("text", f'"{"x" * 10_000}"', "it is longer than 10000 characters"),
        ("text", None, "null is what rows hold without one"),
        ("small", "score", "score does not fit I32"),
        ("small", "3000000000", "3000000000 is out of range for I32"),
        ("small", "1.5", "1.5"),
        ("small", "lower(title)", "lower(title) does not fit I32"),
        ("big", "coalesce(year, title)", "coalesce(year, title) does not fit I64"),
        ("real", "1e400", "inf is not a finite F64"),
        ("real", float("nan"), "'NaN' cannot be read"),
        ("day", '"yesterday"', "yesterday"),
        ("day", dt.date(2024, 1, 31), "a date is not a JSON value: give a text in double quotes"),
        ("real", Decimal("1.5"), "a Decimal is not a JSON value"),
        ("stage", '"gone"', "is not one of"),
        ("stage", "title", "title does not fit enum(draft, final)"),
        ("tags", '"a"', "is not a list"),
        ("tags", "[title]", "cannot be read at column 2"),
        ("vec", "[1]", "2"),
        ("file", "body", "body does not fit Blob"),
        ("file", '"file:///etc/hosts"', "the bytes of a blob are given as `base64:…`"),
        ("file", '"base64:?"', "the text behind `base64:` is not base64"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(name: str, value: object, why: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(name, value)
    assert str(caught.value).startswith(f"the backfill of Paper.{name} is wrong: ")
    assert why in str(caught.value)


def test_brackets_inside_a_text_are_no_nesting() -> None:
    assert read("text", f'"{"(" * 500}"') == Constant("(" * 500)


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ('Paper.lang="en"', ("Paper.lang", '"en"')),
        (' node:Paper.lang = concat(a, "=") ', ("node:Paper.lang", 'concat(a, "=")')),
        ("Paper.lang=", ("Paper.lang", "")),
    ],
)
def test_an_assignment_has_two_sides(assignment: str, parts: tuple[str, str]) -> None:
    assert split_backfill(assignment) == parts


@each_case("assignment", ["", "Paper.lang", "lang=1", '="x"'])
def test_an_assignment_without_a_form_is_refused(assignment: str) -> None:
    with pytest.raises(BadRequestError, match=r"is not of the form Type\.property=value"):
        split_backfill(assignment)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("Paper.lang", (None, "Paper", "lang")),
        ("node:Paper.lang", (TypeKind.NODE, "Paper", "lang")),
        ("edge:Cites.since", (TypeKind.EDGE, "Cites", "since")),
    ],
)
def test_a_target_may_name_the_kind(target: str, parts: tuple[Any, str, str]) -> None:
    assert split_target(target) == parts


@each_case("target", ["", "x", "Paper.", ".x", ":Paper.x", "table:Paper.x", "node:.x"])
def test_a_target_without_a_form_is_refused(target: str) -> None:
    with pytest.raises(BadRequestError, match=r"is not of the form Type\.property"):
        split_target(target)


def test_the_kind_tells_a_node_from_an_edge_of_the_same_name() -> None:
    given = {"node:Both.x": "1", "edge:Both.x": "2"}
    assert pick_backfill(given, TypeKind.EDGE, "Both", "x") == ("edge:Both.x", "2")
    assert pick_backfill(given, TypeKind.NODE, "Both", "y") is None
    with pytest.raises(BadRequestError, match=r"the backfill of Both\.x is given twice"):
        pick_backfill({**given, "Both.x": "3"}, TypeKind.NODE, "Both", "x")
