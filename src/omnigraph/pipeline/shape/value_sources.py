"""Where values of a mapped type come from and how they are written: as tasks know it, and as a mapping says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omnigraph.core.validation import listed, problems_of
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.shape.values import DateFormat, date_format
from omnigraph.pipeline.violations import shown

# ---- Value sources
#
# Plain values: they travel to tasks.


def _word(value: object) -> object:
    """A text, also where a number or a truth value stands for one."""
    return notation(value) if isinstance(value, bool | int) else value


def _words(value: object) -> object:
    return tuple(map(_word, value)) if isinstance(value, list | tuple) else (_word(value),)


_Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class BoolWords(BaseModel):
    """The texts that stand for true and for false; the case of letters counts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    true: _Words = ()
    false: _Words = ()


class NumberForm(BaseModel):
    """The format of numbers: the decimal separator, and the one between groups of three digits, if any."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    decimal: str = "."
    thousands: str | None = None

    @property
    def pattern(self) -> str:
        """All of its numbers, in the syntax of RE2."""
        digits = "[0-9]+"
        if self.thousands is not None:
            digits = f"(?:[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        return f"^-?{digits}(?:{re.escape(self.decimal)}[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

    @property
    def description(self) -> str:
        """The form as a message shows it."""
        text = f"a number with the decimal separator {self.decimal!r}"
        return text if self.thousands is None else f"{text} and {self.thousands!r} every 3 digits"


@frozen(kw_only=True)
class Transforms:
    """The steps of one value."""

    trim: bool = False
    #: Texts that stand for null.
    null: tuple[str, ...] = ()
    #: What separates the items of a list.
    split: str | None = None
    words: BoolWords | None = None
    date_formats: tuple[DateFormat, ...] = ()
    number: NumberForm | None = None

    @property
    def is_typed(self) -> bool:
        """Whether a step makes something else of texts: a truth value, a date, a number."""
        return self.words is not None or bool(self.date_formats) or self.number is not None


def notation(value: bool | int) -> str:
    """A truth value or a whole number as CSV writes it, with all of its digits."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@frozen
class FixedText:
    """A text that is the same in all records."""

    text: str


@frozen(kw_only=True)
class ValueSource:
    """The source of a value and its format: a column, several that are joined, or a fixed text."""

    #: Columns by name, or by the path of a member of a struct. Empty: the column that has the name of the property.
    parts: tuple[str | FixedText, ...]
    separator: str = ""
    transforms: Transforms = Transforms()
    #: Whether a text is made of the parts, also of a single one.
    is_joined: bool = False
    #: Whether that text is the first of the parts that is not null, instead of all of them.
    is_first: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(part for part in self.parts if isinstance(part, str))

    @property
    def plain_column(self) -> str | None:
        """The column whose values are taken as they are, if that is all."""
        return self.only_column if self.transforms == Transforms() else None

    @property
    def only_column(self) -> str | None:
        """The column, where there is one and no text is made of it."""
        is_single = len(self.parts) == 1 and not self.is_joined
        return self.parts[0] if is_single and isinstance(self.parts[0], str) else None


def column_source(name: str) -> ValueSource:
    """The values of a column as they are."""
    return ValueSource(parts=(name,))


@frozen(kw_only=True)
class ItemSource:
    """A column of lists, of which each item is a record of its own."""

    column: str
    #: What separates the items of a text.
    split: str | None = None
    trim: bool = False


#: What feeds an end of an edge: ids, or the members of a key by name.
EndSource = ValueSource | Mapping[str, ValueSource]


# ---- Parsing the source of one value
#
# A value of a mapping file is a text, whatever it looks like; a Python dictionary may bring numbers and truth values.


_Body = TypeVar("_Body", bound=BaseModel)
#: The keys of which a description of a value has one, where nothing else says what it is about.
_ORIGINS = ("column", "concat", "first", "constant")
#: What other readers of YAML make of words that are keys here.
_WORDS = {None: "null", True: "true", False: "false"}


def _named(body: object) -> object:
    if not isinstance(body, Mapping):
        return body
    return {_WORDS.get(key, key) if not isinstance(key, str) else key: v for key, v in body.items()}


_Flag = Annotated[bool, Field(strict=False)]


class _ValueBody(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)

    column: str | None = None
    concat: list[object] | None = None
    first: list[object] | None = None
    separator: str | None = None
    constant: object = None
    trim: _Flag = False
    null: _Words | None = None
    split: str | None = None
    truths: object = Field(default=None, alias="bool")
    date_format: _Words | None = None
    number: object = None


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


def named_content(content: object, where: str) -> dict[str, object]:
    """Keys and values of one place of a mapping, its keys as texts.

    Raises:
        BadRequestError: it is something else.
    """
    named = _named({} if content is None else content)
    if not isinstance(named, dict):
        raise BadRequestError(f"{where}: keys and values are expected here, not {shown(content)!r}")
    return named


def value_source(given: object, where: str, *, needs_parts: bool = True) -> ValueSource:
    """Parse the source of a value; a text is the name of a column.

    Without `needs_parts` it may be left out what the value comes from.

    Raises:
        BadRequestError: the description is wrong.
    """
    if isinstance(given, str):
        return column_source(given)
    body = read_body(_ValueBody, given, where)
    origins = [name for name in _ORIGINS if name in body.model_fields_set]
    if len(origins) > 1 or (needs_parts and not origins):
        raise BadRequestError(f"{where}: give one of `column`, `concat`, `first` and `constant`")
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
        is_joined=body.concat is not None or body.first is not None,
        is_first=body.first is not None,
    )


class _ItemBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    column: str
    split: str | None = None
    trim: _Flag = False


def item_source(given: str | dict[str, object], where: str) -> ItemSource:
    """Parse the source of items: the name of a column, or a description of one.

    Raises:
        BadRequestError: the description is wrong.
    """
    if isinstance(given, str):
        return ItemSource(column=given)
    body = read_body(_ItemBody, given, where)
    if body.split == "":
        raise BadRequestError(f"{where}: `split` is the text between two items, and it is empty")
    return ItemSource(column=body.column, split=body.split, trim=body.trim)


def end_source(given: object, members: frozenset[str], where: str) -> EndSource:
    """Parse the source of an end of an edge: a column of ids, a description of one, or the members of the key by name.

    Raises:
        BadRequestError: the description is wrong.
    """
    if not isinstance(given, dict) or (set(given) != members and set(given) & set(_ORIGINS)):
        return value_source(given, where)
    return {str(name): value_source(value, f"{where}, {name}") for name, value in given.items()}


def _parts(body: _ValueBody, where: str) -> tuple[str | FixedText, ...]:
    if body.column is not None:
        return (body.column,)
    listed_parts, key = (body.first, "first") if body.concat is None else (body.concat, "concat")
    if listed_parts is None:
        return ()
    parts: list[str | FixedText] = []
    for part in listed_parts:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and set(part) == {"constant"}:
            parts.append(FixedText(_constant(part["constant"], where)))
        else:
            raise BadRequestError(
                f"{where}: an item of `{key}` is a column or `{{constant: text}}`, not {shown(part)!r}"
            )
    if not any(isinstance(part, str) for part in parts):
        raise BadRequestError(f"{where}: `{key}` is a list of columns, with at least one")
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
        null=body.null or (),
        split=body.split,
        words=None if body.truths is None else _truths(body.truths, f"{where}, `bool`"),
        date_formats=tuple(formats),
        number=number,
    )


def _truths(given: object, where: str) -> BoolWords:
    words = read_body(BoolWords, given, where)
    if not words.true and not words.false:
        raise BadRequestError(f"{where}: give the texts, as in `{{true: [yes], false: [no]}}`")
    both = set(words.true) & set(words.false)
    if both:
        raise BadRequestError(f"{where}: {sorted(both)[0]!r} stands for true and for false")
    return words


def _number(given: object, where: str) -> NumberForm | None:
    if given is None or _word(given) in ("true", "false"):
        return NumberForm() if _word(given) == "true" else None
    form = read_body(NumberForm, given, where)
    for name, text in (("decimal", form.decimal), ("thousands", form.thousands)):
        if text is not None and (len(text) != 1 or text.isalnum() or text in "+-"):
            raise BadRequestError(f"{where}: `{name}` is one character, and not a digit, a letter or a sign")
    if form.decimal == form.thousands:
        raise BadRequestError(f"{where}: `decimal` and `thousands` are the same character")
    return form


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
