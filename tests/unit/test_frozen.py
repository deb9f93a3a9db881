"""Immutable classes: what `dataclass(frozen=True, slots=True)` makes, held against it."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from omnigraph.frozen import frozen
from support.subtests import each_case

SOURCES = Path(__file__).parents[2] / "src" / "omnigraph"


def declared(decorate: Callable[[type], type]) -> type[Any]:
    @decorate
    class Part:
        """A part."""

        total: ClassVar[int] = 0
        name: str
        sizes: tuple[int, ...] = ()
        notes: list[str] = field(default_factory=list)
        place: int = field(default=0, compare=False, repr=False)

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("a part has a name")

    return Part


OURS, THEIRS = declared(frozen), declared(dataclass(frozen=True, slots=True))


@frozen(kw_only=True)
class Base:
    """A class with a descendant."""

    first: int
    second: int = 2


@frozen
class Descendant(Base):
    """A class with fields by place and by name."""

    third: int

    def __repr__(self) -> str:
        return "its own"


@frozen
class Empty:
    """A class without fields."""


@frozen
class Loop:
    """A class whose instances may hold themselves."""

    items: list[Loop]


@each_case(("values", "named"), [(("a",), {}), (("a", (1,), ["x"], 3), {}), (("a",), {"place": 4, "notes": []})])
def test_instances_are_made_shown_compared_and_hashed_as_those_of_dataclasses(values, named):
    ours, theirs = OURS(*values, **named), THEIRS(*values, **named)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs)
    assert ours == OURS(*values, **named)
    assert ours != theirs
    assert (ours == replace(ours, place=9)) is (theirs == replace(theirs, place=9)) is True
    assert (ours == replace(ours, sizes=(7,))) is (theirs == replace(theirs, sizes=(7,))) is False
    for made in (ours, theirs):
        with pytest.raises(TypeError, match="unhashable type: 'list'"):
            hash(made)
    assert hash(Base(first=1)) == hash((1, 2))


@each_case(("values", "named"), [((), {}), (("a", (), [], 0, 1), {}), (("a",), {"nme": 1}), (("a",), {"name": "b"})])
def test_wrong_calls_are_refused_in_the_same_words(values, named):
    for made in (declared(frozen), OURS):
        with pytest.raises(TypeError) as ours:
            made(*values, **named)
        with pytest.raises(TypeError) as theirs:
            THEIRS(*values, **named)
        assert str(ours.value) == str(theirs.value)


def test_what_an_instance_holds_is_checked_once_and_never_changes():
    with pytest.raises(ValueError, match="a part has a name"):
        OURS("")
    part = OURS("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        part.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del part.name
    with pytest.raises(FrozenInstanceError):
        part.other = 1
    assert not hasattr(part, "__dict__")
    assert part.notes is not OURS("a").notes


def test_a_class_says_how_it_is_called_before_it_was():
    assert str(inspect.signature(declared(frozen))) == str(inspect.signature(declared(dataclass))).replace(
        " -> None", ""
    )
    assert [item.name for item in fields(OURS)] == [item.name for item in fields(THEIRS)]
    assert is_dataclass(OURS)
    assert OURS.__match_args__ == THEIRS.__match_args__


def test_fields_by_name_follow_those_by_place():
    made = Descendant(3, first=1)
    assert (made.first, made.second, made.third) == (1, 2, 3)
    assert repr(made) == "its own"
    assert list(inspect.signature(Descendant).parameters) == ["third", "first", "second"]
    assert replace(made, second=5) == Descendant(3, first=1, second=5) != made


def test_copies_and_pickles_are_equal():
    for made in (Base(first=1), Descendant(3, first=1), Empty(), Loop([])):
        assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert {Empty(), Empty()} == {Empty()}


def test_an_instance_that_holds_itself_is_shown():
    loop = Loop([])
    loop.items.append(loop)
    assert repr(loop) == "Loop(items=[...])"


def test_a_class_with_an_equality_of_its_own_keeps_it():
    @frozen(repr=False, slots=False)
    class Name:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text.casefold() == other.text.casefold()

        def __hash__(self) -> int:
            return 7

    assert Name("A") == Name("a")
    assert hash(Name("A")) == 7
    assert " object at 0x" in repr(Name("A"))
    assert hasattr(Name("A"), "__dict__")


def test_the_product_declares_immutable_classes_with_it():
    """Any class of `dataclasses` that a command defines costs it a third of a millisecond."""
    plain = re.compile(r"^@dataclass\((?=.*frozen=True)(?!.*(?:order|eq)=)", re.MULTILINE)
    texts = {path.relative_to(SOURCES).as_posix(): path.read_text("utf-8") for path in SOURCES.rglob("*.py")}
    assert [name for name, text in texts.items() if plain.search(text)] == []
