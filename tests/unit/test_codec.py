"""The codec: one declaration, and what encoder, decoder and schema make of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict

import pytest

import omnigraph
from omnigraph.codec import (
    COMPLETE,
    ENTITY_TYPE,
    HIDDEN,
    OMIT_EMPTY,
    OMIT_NONE,
    Absent,
    Document,
    Key,
    Schemas,
    Text,
    Through,
    When,
    form_of,
    members_of,
)
from omnigraph.errors import OmniError
from support.subtests import each_case


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Image(TypedDict):
    properties: dict[str, object]
    id: NotRequired[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Document):
    name: str
    note: Annotated[str | None, COMPLETE] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Document):
    """Everything that a field can be."""

    computed: ClassVar = {"count": "parts"}

    key: Annotated[str, ENTITY_TYPE]
    actor: Annotated[str | None, Key("actor_id"), Text("whose it is")]
    parts: tuple[Part, ...] = ()
    colour: Colour = Colour.RED
    image: Annotated[Image | None, OMIT_NONE] = None
    hints: Annotated[list[str], OMIT_EMPTY] = ()  # type: ignore[assignment]  # never changed
    ratio: Annotated[float, When(lambda whole: whole.colour is Colour.BLUE)] = 0.5
    numbers: Annotated[dict[str, int], Through(list[int], sorted, lambda found: {str(n): n for n in found})]
    total: Annotated[int, OMIT_EMPTY, Absent(lambda fields: len(fields["parts"]))]
    inner: Annotated[object, HIDDEN] = None

    @property
    def count(self) -> int:
        return len(self.parts)


def whole(**fields: Any) -> Whole:
    return Whole(**{"key": "node:Paper", "actor": None, "numbers": {}, "total": 0} | fields)


def test_members_have_their_names_and_their_order() -> None:
    found = whole(actor="ada", parts=(Part(name="a", note="x"),), numbers={}, total=7)
    assert list(found.to_json().items()) == [
        ("entity_kind", "node"),
        ("type_name", "Paper"),
        ("actor_id", "ada"),
        ("parts", [{"name": "a"}]),
        ("count", 1),
        ("colour", "red"),
        ("numbers", []),
        ("total", 7),
    ]
    assert found.document()["parts"] == [{"name": "a", "note": "x"}]


@each_case(
    "fields",
    [
        {},
        {"parts": (Part(name="a"), Part(name="b", note="c")), "total": 2},
        {"colour": Colour.BLUE, "ratio": 1},
        {"image": {"properties": {"year": None}}, "hints": ["one"]},
        {"actor": "ada", "total": 9},
    ],
)
def test_a_document_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    made = whole(**fields)
    back = Whole.from_json(made.document())
    assert back.document() == made.document()
    assert Whole.from_json(made.document() | {"from the future": 1}) == back


@each_case(
    "change",
    [
        {"entity_kind": 1},
        {"actor_id": 1},
        {"parts": {}},
        {"parts": [[]]},
        {"parts": [{}]},
        {"colour": "green"},
        {"ratio": True},
        {"ratio": "1"},
        {"image": {}},
        {"image": []},
        {"total": 1.5},
        {"total": True},
        {"hints": [None]},
    ],
    ids=str,
)
def test_another_type_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Whole.from_json(whole().document() | change)


def test_a_member_that_is_missing_is_refused_unless_it_says_what_that_means() -> None:
    body = whole(parts=(Part(name="a"),)).document()
    assert Whole.from_json({k: v for k, v in body.items() if k != "actor_id"}).actor is None
    assert Whole.from_json(body).total == 1
    with pytest.raises(KeyError, match="type_name"):
        Whole.from_json({k: v for k, v in body.items() if k != "type_name"})


def test_the_schema_is_closed_and_knows_what_is_always_there() -> None:
    schemas = Schemas("#/")
    assert schemas.reference(Whole) == {"$ref": "#/Whole"}
    found = schemas.definitions["Whole"]
    assert found["additionalProperties"] is False
    assert found["required"] == [*("entity_kind", "type_name", "actor_id", "parts", "count", "colour", "numbers")]
    assert found["properties"]["actor_id"] == {  # type: ignore[index]  # an object
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "whose it is",
    }
    assert set(schemas.definitions) == {"Whole", "Part"}


def test_a_literal_is_one_of_its_values() -> None:
    form = form_of(Literal["a", "b"])
    assert form.decode("a") == "a"
    with pytest.raises(ValueError, match="not one of"):
        form.decode("c")


def test_a_type_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        form_of(complex)


def test_every_declared_class_has_a_form() -> None:
    """Annotations are read at run time: what they name has to be imported, not only for type checkers."""
    for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = [*_below(Document), *_below(OmniError)]
    assert len(found) > 100
    for cls in found:
        members_of(cls)


def _below(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)
