"""Regular expressions take memory for what they may have to go back to: none of ours does per repetition of a group."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants, _parser
from typing import Any

import omnigraph
from support.subtests import each_case

#: What one repetition of is a step along the text, without a memory of its own.
SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)
BACKTRACKING = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


def _patterns() -> dict[str, re.Pattern[Any]]:
    root = Path(omnigraph.__file__).parents[1]
    found: dict[str, re.Pattern[Any]] = {}
    for path in sorted(root.glob("omnigraph/**/*.py")):
        if "re.compile(" not in path.read_text(encoding="utf-8"):
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for name, value in vars(importlib.import_module(module)).items():
            members = value if isinstance(value, tuple) else (value,)
            for number, member in enumerate(members):
                if isinstance(member, re.Pattern):
                    found[f"{module}.{name}[{number}]"] = member
    return found


def _remembering(parsed: Any) -> Iterator[Any]:
    """Unbounded repetitions of groups that may go back into each repetition."""
    for operation, argument in parsed:
        if operation in BACKTRACKING:
            _, most, body = argument
            if most is _constants.MAXREPEAT and not (len(body) == 1 and body[0][0] in SINGLE):
                yield body
        yield from (item for part in _parts(argument) for item in _remembering(part))


def _parts(argument: Any) -> Iterator[Any]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _parts(item)


@each_case(
    ("pattern", "count"),
    [
        (r'"(?:[^"\\]|\\.)*"', 1),
        (r'"(?:[^"\\]++|\\.)*+"', 0),
        (r"[a-z]*[0-9]+", 0),
        (r"(?:a+)+", 1),
        (r"(?:ab){0,3}", 0),
    ],
)
def test_the_search_finds_them(pattern: str, count: int) -> None:
    assert len(list(_remembering(_parser.parse(pattern)))) == count


def test_no_pattern_remembers_every_repetition_of_a_group() -> None:
    """A text of 30 MB took 3.9 GB, and nested repetitions may take for ever: write `(?:…)*+`, which never goes back."""
    wrong = {
        name: pattern.pattern
        for name, pattern in _patterns().items()
        if any(_remembering(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)))
    }
    assert wrong == {}
