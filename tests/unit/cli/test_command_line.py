"""Functions as commands: what click gives them, and what it refuses."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click
import pytest

from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.scoped import ScopedCommand
from support.subtests import each_case


class Size(StrEnum):
    SMALL = "small"
    LARGE = "very-large"


def refuse_dots(text: str | None) -> str | None:
    if text is not None and "." in text:
        raise click.BadParameter("no dots")
    return text


def called_with(words: list[str]) -> dict[str, object]:
    """The values of a function whose command is given some words."""
    found: dict[str, object] = {}

    def paint(
        what: Annotated[str, Argument(metavar="WHAT", help="a thing", callback=refuse_dots)],
        *,
        layers: Annotated[list[int] | None, Option("--layer", min=1)] = None,
        size: Annotated[Size, Option("--size", "-s")] = Size.SMALL,
        weight: Annotated[float | None, Option("--weight")] = None,
        out: Annotated[Path | None, Option("--out")] = None,
        dry: Annotated[bool, Option("--dry")] = False,
    ) -> None:
        """Paint a thing."""
        found.update(what=what, layers=layers, size=size, weight=weight, out=out, dry=dry)

    command = ScopedCommand("paint", paint)
    with command.make_context("paint", words) as context:
        command.invoke(context)
    return found


def test_a_parameter_that_is_not_given_has_the_default_of_the_function():
    found = called_with(["wall"])
    assert found == {"what": "wall", "layers": None, "size": Size.SMALL, "weight": None, "out": None, "dry": False}
    assert isinstance(found["size"], Size)


def test_words_are_read_as_the_types_of_the_parameters():
    words = ["--layer", "1", "wall", "--layer=2", "-s", "very-large", "--weight", "2.5", "--out", "a/b", "--dry"]
    found = called_with(words)
    assert found == {
        "what": "wall",
        "layers": [1, 2],
        "size": Size.LARGE,
        "weight": 2.5,
        "out": Path("a/b"),
        "dry": True,
    }


@each_case(
    ("words", "message"),
    [
        ([], "Missing argument 'WHAT'"),
        (["wall", "--layer", "x"], "'x' is not a valid integer"),
        (["wall", "--layer", "0"], "0 is not in the range x>=1"),
        (["wall", "--size", "LARGE"], "'LARGE' is not one of 'small', 'very-large'"),
        (["wall", "--weight", "x"], "'x' is not a valid float"),
        (["a.b"], "no dots"),
        (["wall", "floor"], "unexpected extra argument floor"),
    ],
)
def test_what_does_not_fit_is_refused_in_plain_words(words, message):
    with pytest.raises(click.UsageError) as refused:
        called_with(words)
    assert message in refused.value.format_message()
