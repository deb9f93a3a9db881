"""What models refuse, in our words: every field with its path, and never the words of pydantic."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omnigraph.core.validation import MAX_PROBLEMS, listed, problems_of
from support.subtests import each_case


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def _odd(value: object) -> object:
    if value == 2:
        raise ValueError("2 is even")
    return value


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    tags: list[str] = []


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = ""
    from_: Annotated[str | None, Field(alias="from")] = None
    flag: bool = False
    count: Annotated[int, Field(ge=1, le=9)] = 1
    seconds: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    odd: Annotated[int, BeforeValidator(_odd)] = 1
    kind: Literal["node", "edge"] = "node"
    version: Literal[1] = 1
    colour: Annotated[Colour, Field(strict=False)] = Colour.RED
    short: Annotated[str, Field(max_length=3)] = ""
    some: Annotated[list[int], Field(min_length=1)] = [1]
    pair: Annotated[list[int], Field(min_length=2)] = [1, 2]
    moment: Annotated[str, Field(pattern="^[0-9]+$")] = "1"
    inner: Inner | list[Inner] | None = None
    ends: str | dict[str, str] | None = None
    types: dict[str, Inner] = {}


def complaints(data: object, mapping: str = "an object") -> str:
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(data)
    return listed(problems_of(refused.value, data, mapping=mapping), "the body")


@each_case(
    ("data", "text"),
    [
        ({"text": 3}, "`text` is a text, not a number"),
        ({"from": True}, "`from` is a text, not true"),
        ({"flag": "yes"}, "`flag` is true or false, not a text"),
        ({"count": 1.5}, "`count` is a whole number, not a number with a fraction"),
        ({"count": None}, "`count` is a whole number, not null"),
        ({"count": 0}, "`count` is below 1"),
        ({"count": 10}, "`count` is above 9"),
        ({"seconds": 0}, "`seconds` is not above 0"),
        ({"seconds": float("nan")}, "`seconds` is not a finite number"),
        ({"odd": 2}, "`odd` is refused: 2 is even"),
        ({"kind": "nodes"}, "`kind` is not one of `node` or `edge`"),
        ({"version": 2}, "`version` is not 1"),
        ({"colour": "green"}, "`colour` is not one of `red` or `blue`"),
        ({"short": "long"}, "`short` has more than 3 characters"),
        ({"some": []}, "`some` is empty"),
        ({"pair": [1]}, "`pair` has fewer than 2 entries"),
        ({"moment": "now"}, "`moment` has a wrong value"),
        ({"unknown": 1}, "`unknown` is not a known field"),
        ({"some": [1, "b", 2, None]}, "`some[1]` is a whole number, not a text; `some[3]` is a whole number, not null"),
        ({"types": {"A": {"tags": [1]}}}, "`types.A.name` is missing; `types.A.tags[0]` is a text, not a number"),
        ({"ends": 3}, "`ends` is a text or an object, not a number"),
        ({"ends": {"a": 3}}, "`ends.a` is a text, not a number"),
        ({"inner": {"name": 1}}, "`inner.name` is a text, not a number"),
        ({"inner": [{"name": "a"}, {}]}, "`inner[1].name` is missing"),
        ({"inner": "a"}, "`inner` is an object or a list, not a text"),
        ([], "the body is an object, not a list"),
        (None, "the body is an object, not null"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_what_belongs_there_and_what_stands_there(
    data: Any, text: str
) -> None:
    assert complaints(data) == text


@pytest.mark.parametrize("key", [1, True], ids=repr)
def test_a_key_that_is_not_a_text_is_told_to_be_quoted(key: object) -> None:
    text = f"`types.{key}` has a name that is not a text: quote it"
    assert complaints({"types": {key: {"name": "a"}}}).startswith(text)


def test_the_format_says_what_keys_with_values_are_called() -> None:
    assert complaints({"inner": 1}, "a mapping") == "`inner` is a mapping or a list, not a number"


def test_very_many_problems_are_counted() -> None:
    text = complaints({"some": ["a"] * (MAX_PROBLEMS + 1_002)})
    assert text.endswith("; and 1,002 more")
