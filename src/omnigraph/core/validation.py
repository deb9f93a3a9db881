"""Messages about values that a model refuses: the one place that knows pydantic's own.

Bodies of requests, query strings, mapping files, embedding specs and sidecars are read with models. A refusal names the
field by its path in what was given, says what belongs there, and what stands there instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

#: How many problems one message lists.
MAX_PROBLEMS = 10
#: The last part of the path of a key that is wrong.
_KEY = "[key]"
_OF_ANOTHER_KIND = "of another kind"

_WANTED = {
    "string_type": "a text",
    "string_unicode": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
}
_OBJECTS = frozenset({"dict_type", "model_type", "model_attributes_type"})
#: Rules about a value of the right kind, with what their context names.
_RULES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "finite_number": "is not a finite number",
    "int_parsing_size": "is too large a number",
    "greater_than": "is not above {gt:g}",
    "greater_than_equal": "is below {ge:g}",
    "less_than": "is not below {lt:g}",
    "less_than_equal": "is above {le:g}",
    "string_too_long": "has more than {max_length} characters",
    "json_invalid": "is not valid JSON: {error}",
}
_EMPTY = frozenset({"too_short", "string_too_short"})
_CHOICES = frozenset({"literal_error", "enum"})


@frozen
class Problem:
    """One thing that is wrong: where in the value, and what."""

    path: tuple[str | int, ...]
    #: What is said about the field, such as `is missing`.
    complaint: str
    #: Whether the name of the field is wrong, rather than its value.
    is_about_name: bool = False

    def text(self, whole: str) -> str:
        """The problem as a sentence; `whole` is how the value itself is called.

        >>> Problem(("nodes", "Person", 1, "source"), "is a text, not a number").text("the file")
        '`nodes.Person[1].source` is a text, not a number'
        """
        return f"{f'`{path_text(self.path)}`' if self.path else whole} {self.complaint}"


def path_text(path: Sequence[str | int]) -> str:
    """A path as people write it: `nodes.Person[1].source`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def problems_of(error: ValidationError, data: object, *, mapping: str = "an object") -> list[Problem]:
    """The problems of `data`, which a model refused; `mapping` is what its format calls keys with values."""
    found: dict[tuple[str | int, ...], dict[str, Problem]] = {}
    #: A value that may be of several kinds has a finding for each of them.
    kinds: dict[tuple[str | int, ...], list[str]] = {}
    for item in error.errors(include_url=False):
        path = _path(item, data)
        problems = found.setdefault(path, {})
        if wanted := _wanted(item, mapping):
            kinds.setdefault(path, []).append(wanted)
            complaint = f"is {' or '.join(dict.fromkeys(kinds[path]))}, not {_kind(item['input'], mapping)}"
            problems[_OF_ANOTHER_KIND] = Problem(path, complaint)
        else:
            problem = _problem(path, item)
            problems[problem.complaint] = problem
    # What is wrong inside of a value tells which kind was meant.
    inner = {path[:length] for path in found for length in range(len(path))}
    return [
        problem
        for path, problems in found.items()
        for key, problem in problems.items()
        if key != _OF_ANOTHER_KIND or path not in inner
    ]


def listed(problems: Sequence[Problem], whole: str) -> str:
    """Problems in one line, the first of very many; `whole` is how the value itself is called."""
    shown = "; ".join(problem.text(whole) for problem in problems[:MAX_PROBLEMS])
    more = len(problems) - MAX_PROBLEMS
    return f"{shown}; and {more:,} more" if more > 0 else shown


def _path(item: ErrorDetails, data: object) -> tuple[str | int, ...]:
    """The way to a field in the data: without the names of alternatives, which pydantic puts between its parts."""
    path: list[str | int] = []
    place = data
    for part in item["loc"]:
        if isinstance(place, dict) and (key := _key_of(place, part)) is not _NO_KEY:
            path.append(str(key))
            place = place[key]
        elif isinstance(place, list) and isinstance(part, int) and part < len(place):
            path.append(part)
            place = place[part]
    if item["type"] == "missing":
        path.append(item["loc"][-1])
    return tuple(path)


_NO_KEY = object()


def _key_of(place: dict[object, object], part: str | int) -> object:
    """The key that a part of a path stands for: in YAML a key may be a number or a truth value."""
    if isinstance(part, str) and part in place:
        return part
    return next((key for key in place if not isinstance(key, str) and key == part), _NO_KEY)


def _wanted(item: ErrorDetails, mapping: str) -> str | None:
    """The kind of value that belongs there, when one of another kind stands there."""
    if item["loc"] and item["loc"][-1] == _KEY:
        return None
    return mapping if item["type"] in _OBJECTS else _WANTED.get(item["type"])


def _problem(path: tuple[str | int, ...], item: ErrorDetails) -> Problem:
    kind, context = item["type"], item.get("ctx", {})
    if item["loc"] and item["loc"][-1] == _KEY:
        return Problem(
            path,
            "has a name that is not a text: quote it, YAML reads On, Yes and No as true or false",
            is_about_name=True,
        )
    if kind == "value_error":
        return Problem(path, f"is refused: {context['error']}")
    if kind in _CHOICES:
        choices = str(context["expected"]).replace("'", "`")
        return Problem(path, f"is not one of {choices}" if " or " in choices else f"is not {choices}")
    if kind in _EMPTY:
        least = context["min_length"]
        return Problem(path, "is empty" if least == 1 else f"has fewer than {least} entries")
    rule = _RULES.get(kind)
    complaint = "has a wrong value" if rule is None else rule.format(**context)
    return Problem(path, complaint, is_about_name=kind == "extra_forbidden")


def _kind(value: object, mapping: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return "a text"
        case int():
            return "a number"
        case float():
            return "a number" if value.is_integer() else "a number with a fraction"
        case dict():
            return mapping
        case list():
            return "a list"
        case _:
            return "a value of another kind"
