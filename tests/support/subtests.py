"""Tables of cases that one test walks through: every row is a subtest, the table is one reported test."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import pytest

_PARAM = type(pytest.param())
#: The values of some parameters, with the name under which a failure is reported.
Row = tuple[str, dict[str, Any]]


def each_case(
    names: str | Sequence[str], values: Iterable[Any], *, ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every row as a subtest; the arguments are those of `pytest.mark.parametrize`.

    Several tables above one test are multiplied. All rows share the fixtures of the test, so a test that changes what
    a fixture gave it stays parametrized.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = _rows(wanted, list(values), ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        body: Callable[..., None] = getattr(test, "body", test)
        tables: list[list[Row]] = [*getattr(test, "tables", []), table]
        given = {name for rows in tables for _, row in rows[:1] for name in row}
        fixtures = [it for it in inspect.signature(body).parameters.values() if it.name not in given]
        wants_subtests = any(it.name == "subtests" for it in fixtures)

        @wraps(body)
        def walk(*args: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            if wants_subtests:
                fixtures["subtests"] = subtests
            for combined in itertools.product(*tables):
                row = {name: value for _, part in combined for name, value in part.items()}
                said = "-".join(name for name, _ in combined)[:100]
                # Workers report names in UTF-8, and some cases are about texts that have none.
                with subtests.test(msg=said.encode("utf-8", "backslashreplace").decode()):
                    body(*args, **fixtures, **row)

        walk.body = body
        walk.tables = tables
        extra = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        kept = [it for it in fixtures if it.name != "subtests"]
        walk.__signature__ = inspect.Signature([*kept, extra])
        return walk

    return decorate


def named_cases(
    names: str | Sequence[str], rows: Mapping[str, Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every row as a subtest under the sentence that stands before the row."""
    return each_case(names, rows.values(), ids=rows.keys())


def _rows(names: list[str], values: list[Any], ids: Iterable[Any] | Callable[[Any], Any] | None) -> list[Row]:
    given = list(ids) if ids is not None and not callable(ids) else None
    rows = []
    for number, value in enumerate(values):
        said = given[number] if given is not None else None
        cells = list(value) if len(names) > 1 else [value]
        if isinstance(value, _PARAM):
            assert not value.marks, "a row with a mark needs a parametrized test"
            said = value.id or said
            cells = list(value.values)
        row = dict(zip(names, cells, strict=True))
        if said is None:
            spell = ids if callable(ids) else (lambda _: None)
            said = "-".join(_name(spell(cell), cell, f"{key}{number}") for key, cell in row.items())
        rows.append((str(said), row))
    return rows


def _name(said: object, value: object, otherwise: str) -> str:
    if said is not None:
        return str(said)
    if isinstance(value, str | int | float | bool | None):
        return str(value)
    return str(getattr(value, "__name__", otherwise))
