"""Reading what a mapping says about one value: `{column: birthday, date_format: "%d.%m.%Y"}` → a `ValueSource`.

A value of a mapping file is a text, whatever it looks like; a Python dictionary may bring numbers and truth values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.date_formats import date_format
from omnigraph.pipeline.problems import shown
from omnigraph.pipeline.value_sources import (
    BoolWords,
    EndSource,
    FixedText,
    NumberForm,
    Transforms,
    ValueSource,
    column_source,
    notation,
)
from omnigraph.validation import listed, problems_of

_Body = TypeVar("_Body", bound=BaseModel)
#: The keys of which a description of a value has one, where nothing else says what it is about.
_ORIGINS = ("column", "concat", "constant")
#: What other readers of YAML make of words that are keys here.
_WORDS = {None: "null", True: "true", False: "false"}


def _word(value: object) -> object:
    """A text, also where a number or a truth value stands for one."""
    return notation(value) if isinstance(value, bool | int) else value


def _words(value: object) -> object:
    return [_word(item) for item in value] if isinstance(value, list | tuple) else [_word(value)]


def _named(body: object) -> object:
    if not isinstance(body, Mapping):
        return body
    return {_WORDS.get(key, key) if not isinstance(key, str) else key: v for key, v in body.items()}


_Flag = Annotated[bool, Field(strict=False)]
_Words = Annotated[list[str], BeforeValidator(_words)]


class _TruthBody(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)

    true_words: _Words = Field(default_factory=list, alias="true")
    false_words: _Words = Field(default_factory=list, alias="false")


class _NumberBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    decimal: str = "."
    thousands: str | None = None


class _ValueBody(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)

    column: str | None = None
    concat: list[Any] | None = None
    separator: str | None = None
    constant: Any = None
    trim: _Flag = False
    null: _Words | None = None
    split: str | None = None
    truths: Any = Field(default=None, alias="bool")
    date_format: _Words | None = None
    number: Any = None


def read_body(body: type[_Body], content: object, where: str) -> _Body:
    """The content of one place of a mapping; nothing is an empty content.

    Raises:
        BadRequestError: it has another form.
    """
    named = named_content(content, where)
    try:
        return body.model_validate(named)
    except ValidationError as error:
        problems = problems_of(error, named, mapping="a mapping")
        raise BadRequestError(f"{where}: {listed(problems, 'the value')}") from error


def named_content(content: object, where: str) -> dict[str, Any]:
    """Keys and values of one place of a mapping, its keys as texts.

    Raises:
        BadRequestError: it is something else.
    """
    named = _named({} if content is None else content)
    if not isinstance(named, dict):
        raise BadRequestError(f"{where}: keys and values are expected here, not {shown(content)!r}")
    return named


def value_source(given: object, where: str, *, needs_parts: bool = True) -> ValueSource:
    """Where a value comes from and how it is read; a text is the name of a column.

    Without `needs_parts` it may be left out what the value comes from.

    Raises:
        BadRequestError: the description is wrong.
    """
    if isinstance(given, str):
        return column_source(given)
    body = read_body(_ValueBody, given, where)
    origins = [name for name in _ORIGINS if name in body.model_fields_set]
    if len(origins) > 1 or (needs_parts and not origins):
        raise BadRequestError(f"{where}: give one of `column`, `concat` and `constant`")
    if body.separator is not None and body.concat is None:
        raise BadRequestError(f"{where}: `separator` belongs to `concat`")
    transforms = _transforms(body, where)
    if "constant" in origins:
        if transforms != Transforms():
            raise BadRequestError(f"{where}: a `constant` is written as it is stored")
        return ValueSource(parts=(FixedText(_constant(body.constant, where)),))
    parts = _parts(body, where)
    return ValueSource(
        parts=parts,
        separator=body.separator or "",
        transforms=transforms,
        is_joined=body.concat is not None,
    )


def end_source(given: object, members: frozenset[str], where: str) -> EndSource:
    """What feeds an end of an edge: a column of ids, a description of one, or the members of the key by name.

    Raises:
        BadRequestError: the description is wrong.
    """
    if not isinstance(given, dict) or (set(given) != members and set(given) & set(_ORIGINS)):
        return value_source(given, where)
    return {str(name): value_source(value, f"{where}, {name}") for name, value in given.items()}


def _parts(body: _ValueBody, where: str) -> tuple[str | FixedText, ...]:
    if body.column is not None:
        return (body.column,)
    if body.concat is None:
        return ()
    parts: list[str | FixedText] = []
    for part in body.concat:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and set(part) == {"constant"}:
            parts.append(FixedText(_constant(part["constant"], where)))
        else:
            raise BadRequestError(
                f"{where}: an item of `concat` is a column or `{{constant: text}}`, not {shown(part)!r}"
            )
    if not any(isinstance(part, str) for part in parts):
        raise BadRequestError(f"{where}: `concat` is a list of columns, with at least one")
    return tuple(parts)


def _transforms(body: _ValueBody, where: str) -> Transforms:
    number = _number(body.number, f"{where}, `number`")
    typed = {"bool": body.truths, "date_format": body.date_format, "number": number}
    several = [name for name, value in typed.items() if value is not None]
    if len(several) > 1:
        raise BadRequestError(f"{where}: give one of `{'` and `'.join(several)}`")
    if body.split == "":
        raise BadRequestError(f"{where}: `split` is the text between two items, and it is empty")
    formats = []
    for text in body.date_format or ():
        try:
            formats.append(date_format(text))
        except ValueError as problem:
            raise BadRequestError(f"{where}: `{text}` is not a date format: {problem}") from None
    return Transforms(
        trim=body.trim,
        null=tuple(body.null or ()),
        split=body.split,
        words=None if body.truths is None else _truths(body.truths, f"{where}, `bool`"),
        date_formats=tuple(formats),
        number=number,
    )


def _truths(given: object, where: str) -> BoolWords:
    body = read_body(_TruthBody, given, where)
    if not body.true_words and not body.false_words:
        raise BadRequestError(f"{where}: give the texts, as in `{{true: [yes], false: [no]}}`")
    both = set(body.true_words) & set(body.false_words)
    if both:
        raise BadRequestError(f"{where}: {sorted(both)[0]!r} stands for true and for false")
    return BoolWords(true=tuple(body.true_words), false=tuple(body.false_words))


def _number(given: object, where: str) -> NumberForm | None:
    if given is None or _word(given) in ("true", "false"):
        return NumberForm() if _word(given) == "true" else None
    body = read_body(_NumberBody, given, where)
    for name, text in (("decimal", body.decimal), ("thousands", body.thousands)):
        if text is not None and (len(text) != 1 or text.isalnum() or text in "+-"):
            raise BadRequestError(
                f"{where}: `{name}` is one character, and not a digit, a letter or a sign"
            )
    if body.decimal == body.thousands:
        raise BadRequestError(f"{where}: `decimal` and `thousands` are the same character")
    return NumberForm(decimal=body.decimal, thousands=body.thousands)


def _constant(value: object, where: str) -> str:
    """A fixed value as CSV would write it."""
    match value:
        case str():
            return value
        case bool() | int():
            return notation(value)
        case float():
            return repr(value)
        case date():
            return value.isoformat()
    raise BadRequestError(
        f"{where}: `constant` is a text, a number, a date, true or false; a property without a value is left out"
    )
