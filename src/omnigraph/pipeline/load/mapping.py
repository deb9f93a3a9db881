"""Mapping files: YAML with places, and what it says about each value."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omnigraph.core.ids import TableKey
from omnigraph.core.source import did_you_mean
from omnigraph.core.validation import listed, problems_of
from omnigraph.core.yaml_files import raise_problems, read_yaml
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.load.value_forms import (
    BoolWords,
    EndSource,
    FixedText,
    NumberForm,
    Transforms,
    ValueSource,
    column_source,
    date_format,
    notation,
)
from omnigraph.pipeline.load.values import Timestamps
from omnigraph.pipeline.violations import shown

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.pipeline.load.inputs import InputFile


# ---- Parsing the source of one value
#
# A value of a mapping file is a text, whatever it looks like; a Python dictionary may bring numbers and truth values.


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
    concat: list[object] | None = None
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
        parts=parts, separator=body.separator or "", transforms=transforms, is_joined=body.concat is not None
    )


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
            raise BadRequestError(f"{where}: `{name}` is one character, and not a digit, a letter or a sign")
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


# ---- Mapping files (YAML) and their Python form
#
#     nodes:
#       Person:
#         source: people/*.parquet
#         columns: {full_name: name}
#         properties:
#           born: {column: birthday, date_format: "%d.%m.%Y"}
#     edges:
#       Knows:
#         source: knows.csv
#         from: person_a
#         to: person_b
#
# Paths are relative to the mapping file. Without `columns`, columns and properties have equal names and every column
# has to be one; with it, only the columns that it names are read. `properties` says how values are read. An entry
# without `source` and `table` describes the frame of its type.


_CODE = "mapping"
_ABSOLUTE = re.compile(r"^(/|~|[A-Za-z][A-Za-z0-9+.-]*://)")


class SourceFormat(StrEnum):
    """The file format of a mapped source."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ORC = "orc"
    TABLE = "table"


_ENDINGS = {
    "parquet": SourceFormat.PARQUET,
    "pq": SourceFormat.PARQUET,
    "csv": SourceFormat.CSV,
    "tsv": SourceFormat.CSV,
    "json": SourceFormat.JSON,
    "jsonl": SourceFormat.JSON,
    "ndjson": SourceFormat.JSON,
    "orc": SourceFormat.ORC,
}


_TAB_ENDING = "tsv"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The dialect of a CSV file."""

    #: None: a tab where the ending of a file says so, and a comma otherwise.
    delimiter: str | None = None
    #: The texts that stand for null where they are not quoted.
    null: tuple[str, ...] = ("",)
    #: Whether values may hold line breaks; such a file is read by one task.
    multiline: bool = False

    def delimiter_of(self, file: InputFile) -> str:
        """The delimiter of a file."""
        return self.delimiter or ("\t" if file.ending == _TAB_ENDING else ",")


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedType:
    """One type and where its records come from."""

    type_key: TableKey
    #: Path, directory, pattern, or the name of a Spark table; of a frame, what reports call it.
    source: str
    format: SourceFormat | None = None
    #: Column → property; None: equal names.
    columns: Mapping[str, str] | None = None
    #: How values of properties are read.
    properties: Mapping[str, ValueSource] = field(default_factory=dict)
    id: ValueSource | None = None
    ends: tuple[EndSource, EndSource] | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    timestamps: Timestamps = Timestamps.REFUSE

    @property
    def named_columns(self) -> list[str]:
        """All columns that the mapping names."""
        columns = list(self.columns or ())
        renamed = {name: column for column, name in (self.columns or {}).items()}
        for name, source in self.properties.items():
            columns += source.columns if source.parts else [renamed.get(name, name)]
        columns += [] if self.id is None else self.id.columns
        for end in self.ends or ():
            sources = [end] if isinstance(end, ValueSource) else end.values()
            columns += [column for source in sources for column in source.columns]
        return list(dict.fromkeys(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMapping:
    """A whole mapping."""

    #: Types with a source of their own.
    types: tuple[MappedType, ...] = ()
    #: How the frames of types are read, by table key.
    frames: Mapping[TableKey, MappedType] = field(default_factory=dict)
    #: For frames that have no entry.
    timestamps: Timestamps = Timestamps.REFUSE
    #: As messages call it.
    name: str = "the mapping"


class _TypeBody(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)

    source: str | None = None
    table: str | None = None
    format: str | None = None
    columns: dict[str, str] | None = None
    properties: dict[str, object] | None = None
    id: str | dict[str, object] | None = None
    source_end: str | dict[str, object] | None = Field(default=None, alias="from")
    target_end: str | dict[str, object] | None = Field(default=None, alias="to")
    delimiter: str | None = None
    null: str | list[str] | None = None
    multiline: Annotated[bool, Field(strict=False)] | None = None
    timestamps: str | None = None


class _MappingBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: dict[str, object] = Field(default_factory=dict)
    edges: dict[str, object] = Field(default_factory=dict)
    timestamps: str | None = None


def read_mapping(
    given: str | os.PathLike[str] | Mapping[str, object], catalog: Catalog, *, with_frames: bool = False
) -> TypeMapping:
    """The mapping in a YAML file, or in its content as a dictionary.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: the file is not a mapping; every finding has its place.
        BadRequestError: the mapping does not fit this schema; the text says what is wrong and where.
    """
    where, base = "the mapping", Path.cwd()
    content: object = given
    path = None if hasattr(given, "keys") else Path(os.fspath(given))
    if path is not None:
        where, base, content = str(path), path.parent, read_yaml(path, are_texts=True)
    try:
        parsed = _MappingBody.model_validate(content)
    except ValidationError as error:
        _refuse(error, content, path, where)
    reader = _Reader(catalog, where, base, path)
    reader.timestamps = reader.timestamps_of(parsed.timestamps, where)
    for kind, types in (("node", parsed.nodes), ("edge", parsed.edges)):
        for name, body in types.items():
            reader.add(kind, name, body)
    if not (parsed.nodes or parsed.edges or with_frames):
        raise BadRequestError(f"{where} maps no type: give `nodes:` or `edges:`")
    return TypeMapping(types=tuple(reader.types), frames=reader.frames, timestamps=reader.timestamps, name=where)


def _refuse(
    error: ValidationError, content: object, path: Path | None, where: str, place: tuple[str | int, ...] = ()
) -> NoReturn:
    """Raise what a model found wrong with a part of a mapping, in a file with its place."""
    problems = [
        replace(problem, path=(*place, *problem.path)) for problem in problems_of(error, content, mapping="a mapping")
    ]
    if path is not None:
        raise_problems(path, problems, code=_CODE)
    raise BadRequestError(listed(problems, where)) from error


class _Reader:
    """Reads the entries of one mapping."""

    def __init__(self, catalog: Catalog, where: str, base: Path, path: Path | None) -> None:
        self.types: list[MappedType] = []
        self.frames: dict[TableKey, MappedType] = {}
        self.timestamps = Timestamps.REFUSE
        self._catalog = catalog
        self._where = where
        self._base = base
        self._path = path

    def add(self, kind: str, name: str, content: object) -> None:
        """Read what a mapping says about one type."""
        key = self._type_key(kind, name)
        where = f"{self._where}, {name}"
        several = isinstance(content, list)
        for number, item in enumerate(content if isinstance(content, list) else [content]):
            place = (f"{kind}s", name, number) if several else (f"{kind}s", name)
            body = self._body(item, place)
            mapped = self._mapped(key, body, where)
            if body.source is not None or body.table is not None:
                self.types.append(mapped)
            elif key in self.frames:
                raise BadRequestError(
                    f"{where}: two entries have neither `source` nor `table`, and a type has one frame"
                )
            else:
                self.frames[key] = mapped

    def _body(self, item: object, place: tuple[str | int, ...]) -> _TypeBody:
        named = named_content(item, f"{self._where}, {place[1]}")
        try:
            return _TypeBody.model_validate(named)
        except ValidationError as error:
            _refuse(error, named, self._path, self._where, place)

    def _type_key(self, kind: str, name: str) -> TableKey:
        known = list(self._catalog.nodes if kind == "node" else self._catalog.edges)
        if name not in known:
            hint = did_you_mean(name, known)
            raise BadRequestError(f"{self._where}: there is no {kind} type `{name}`" + (f": {hint}" if hint else ""))
        return TableKey(f"{kind}:{name}")

    def _mapped(self, key: TableKey, body: _TypeBody, where: str) -> MappedType:
        if body.source is not None and body.table is not None:
            raise BadRequestError(f"{where}: give `source` (files) or `table` (a Spark table), not both")
        if body.delimiter is not None and (len(body.delimiter) != 1 or not body.delimiter.isascii()):
            raise BadRequestError(f"{where}: `delimiter` is one ASCII character")
        if body.source is None and body.table is None:
            _refuse_file_options(body, where)
        source = body.source or body.table or ""
        if body.source is not None and not _ABSOLUTE.match(source):
            source = os.path.join(self._base, source)
        nulls = [body.null] if isinstance(body.null, str) else body.null
        return MappedType(
            type_key=key,
            source=source,
            format=SourceFormat.TABLE if body.table is not None else _format(body.format, where),
            columns=body.columns,
            properties={
                name: value_source(value, f"{where}, {name}", needs_parts=False)
                for name, value in (body.properties or {}).items()
            },
            id=None if body.id is None else value_source(body.id, f"{where}, `id`"),
            ends=self._ends(key, body, where),
            csv=CsvOptions(
                delimiter=body.delimiter,
                null=tuple(nulls) if nulls is not None else ("",),
                multiline=bool(body.multiline),
            ),
            timestamps=self.timestamps_of(body.timestamps, where),
        )

    def _ends(self, key: TableKey, body: _TypeBody, where: str) -> tuple[EndSource, EndSource] | None:
        given = (body.source_end, body.target_end)
        is_frame = body.source is None and body.table is None
        if key.kind == "node":
            if given != (None, None):
                raise BadRequestError(f"{where}: a node has no `from` and `to`")
            return None
        if given == (None, None) and is_frame:
            return None
        if None in given:
            raise BadRequestError(f"{where}: an edge needs the columns `from` and `to`")
        edge = self._catalog.edges[key.name]
        source, target = (
            end_source(end, self._members(name), f"{where}, `{side}`")
            for side, end, name in zip(("from", "to"), given, (edge.source, edge.target), strict=True)
        )
        return source, target

    def _members(self, name: str) -> frozenset[str]:
        key = self._catalog.nodes[name].key
        return frozenset() if key is None else frozenset(key.members)

    def timestamps_of(self, given: str | None, where: str) -> Timestamps:
        """The rule of an entry for moments finer than `DateTime`, else that of the mapping."""
        if given is None:
            return self.timestamps
        try:
            return Timestamps(given)
        except ValueError:
            known = ", ".join(Timestamps)
            raise BadRequestError(
                f"{where}: `timestamps` is one of {known}, not `{given}`; a DateTime holds milliseconds, "
                "so that finer digits cannot be kept"
            ) from None


def _refuse_file_options(body: _TypeBody, where: str) -> None:
    """Refuse options of files where they would have no effect."""
    given = [name for name in ("format", "delimiter", "null", "multiline") if getattr(body, name) is not None]
    if given:
        advice = "; `null` of a property works with any source" if "null" in given else ""
        raise BadRequestError(
            f"{where}: `{given[0]}` is about files, and an entry without `source` describes a frame{advice}"
        )


def _format(name: str | None, where: str) -> SourceFormat | None:
    if name is None:
        return None
    known = [item for item in SourceFormat if item is not SourceFormat.TABLE]
    if name not in known:
        raise BadRequestError(f"{where}: `{name}` is not a format; known are {', '.join(known)}")
    return SourceFormat(name)


def format_of(file: InputFile, mapped: MappedType) -> SourceFormat:
    """The format of a file: as the mapping says, or by its ending.

    Raises:
        BadRequestError: neither tells.
    """
    found = mapped.format or _ENDINGS.get(file.ending)
    if found is None:
        raise BadRequestError(f"the format of {file.path} is unknown: give `format:` in the mapping")
    return found


def endings_of(mapped: MappedType) -> tuple[str, ...] | None:
    """The endings that files of a directory have; None when the format was given."""
    return tuple(_ENDINGS) if mapped.format is None else None
