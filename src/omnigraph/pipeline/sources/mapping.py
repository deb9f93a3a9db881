"""Mapping files: which sources feed the types of a graph."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.core.ids import TableKey
from omnigraph.core.source import SourceText, did_you_mean
from omnigraph.core.validation import listed, problems_of
from omnigraph.core.yaml_files import raise_problems, yaml_content, yaml_text
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.shape.leniency import Dangling, Duplicates, choice
from omnigraph.pipeline.shape.value_sources import (
    EndSource,
    ItemSource,
    ValueSource,
    end_source,
    item_source,
    named_content,
    value_source,
)
from omnigraph.pipeline.shape.values import Timestamps
from omnigraph.pipeline.sources.inputs import InputFile, is_remote, read_text

# Mapping files (YAML) and their Python form:
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


@frozen(kw_only=True)
class CsvOptions:
    """The dialect of a CSV file."""

    #: None: a tab where the ending of a file says so, and a comma otherwise.
    delimiter: str | None = None
    #: The names of the columns of a file whose first line does not name them.
    header: tuple[str, ...] | None = None
    #: The texts that stand for null where they are not quoted.
    null: tuple[str, ...] = ("",)
    #: Whether values may hold line breaks; such a file is read by one task.
    multiline: bool = False

    def delimiter_of(self, file: InputFile) -> str:
        """The delimiter of a file."""
        return self.delimiter or ("\t" if file.ending == _TAB_ENDING else ",")


@frozen(kw_only=True)
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
    #: Whether records without a key, or without an end, are passed over.
    skips_null: bool = False
    #: The column of which each item is a record.
    each: ItemSource | None = None
    #: What happens to equal ids, and to edges whose ends do not exist, where the mapping says so.
    duplicates: Duplicates | None = None
    dangling: Dangling | None = None
    #: The entry as it was given.
    said: Mapping[str, object] = field(default_factory=dict)

    def said_again(self, source: str, *, is_parquet: bool) -> dict[str, object]:
        """The same entry about files at another place, with everything that was said elsewhere."""
        dropped = {"source", "table", *(_CSV_KEYS if is_parquet else ())}
        body: dict[str, object] = {"source": source}
        body |= {name: _yaml_value(value) for name, value in self.said.items() if name not in dropped}
        if is_parquet:
            body["format"] = str(SourceFormat.PARQUET)
        for name, end in zip(("from", "to"), self.ends or (), strict=False):
            if name not in body and isinstance(end, ValueSource):
                body[name] = end.only_column
        if self.timestamps is not Timestamps.REFUSE:
            body["timestamps"] = str(self.timestamps)
        rules = {"duplicates": self.duplicates, "dangling": self.dangling}
        return body | {name: str(rule) for name, rule in rules.items() if rule is not None}

    @property
    def named_columns(self) -> list[str]:
        """All columns that the mapping names."""
        columns = [*(self.columns or ()), *([] if self.each is None else [self.each.column])]
        renamed = {name: column for column, name in (self.columns or {}).items()}
        for name, source in self.properties.items():
            columns += source.columns if source.parts else [renamed.get(name, name)]
        columns += [] if self.id is None else self.id.columns
        for end in self.ends or ():
            sources = [end] if isinstance(end, ValueSource) else end.values()
            columns += [column for source in sources for column in source.columns]
        return list(dict.fromkeys(columns))


#: Keys of an entry that are about CSV.
_CSV_KEYS = ("delimiter", "header", "null", "multiline")


def _yaml_value(value: object) -> object:
    """A part of a mapping as YAML takes it."""
    match value:
        case Mapping():
            return {key if isinstance(key, bool) else str(key): _yaml_value(item) for key, item in value.items()}
        case list() | tuple():
            return [_yaml_value(item) for item in value]
        case bool() | int() | float() | date() | None:
            return value
    return str(value)


@frozen(kw_only=True)
class TypeMapping:
    """A whole mapping."""

    #: Types with a source of their own.
    types: tuple[MappedType, ...] = ()
    #: How the frames of types are read, by table key.
    frames: Mapping[TableKey, MappedType] = field(default_factory=dict)
    #: For frames that have no entry.
    timestamps: Timestamps = Timestamps.REFUSE
    duplicates: Duplicates | None = None
    dangling: Dangling | None = None
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
    header: list[str] | None = None
    null: str | list[str] | None = None
    multiline: Annotated[bool, Field(strict=False)] | None = None
    timestamps: str | None = None
    duplicates: str | None = None
    dangling: str | None = None
    skip_null: Annotated[bool, Field(strict=False)] = False
    each: str | dict[str, object] | None = None


class _MappingBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: dict[str, object] = Field(default_factory=dict)
    edges: dict[str, object] = Field(default_factory=dict)
    timestamps: str | None = None
    duplicates: str | None = None
    dangling: str | None = None


def read_mapping(
    given: str | os.PathLike[str] | Mapping[str, object],
    catalog: Catalog,
    *,
    with_frames: bool = False,
    needs_ends: bool = True,
) -> TypeMapping:
    """The mapping in a YAML file, or in its content as a dictionary; a patch needs no ends of edges.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: the file is not a mapping; every finding has its place.
        BadRequestError: the mapping does not fit this schema; the text says what is wrong and where.
    """
    where, base = "the mapping", os.getcwd()
    content: object = given
    text: SourceText | None = None
    if isinstance(given, str | os.PathLike):
        text, base = _mapping_text(os.fspath(given))
        where, content = text.name, yaml_content(text, are_texts=True)
    try:
        parsed = _MappingBody.model_validate(content)
    except ValidationError as error:
        _refuse(error, content, text, where)
    reader = _Reader(catalog, where, base, text, needs_ends=needs_ends)
    reader.timestamps = reader.timestamps_of(parsed.timestamps, where)
    reader.duplicates = choice(Duplicates, parsed.duplicates, f"{where}: `duplicates`")
    reader.dangling = choice(Dangling, parsed.dangling, f"{where}: `dangling`")
    for kind, types in (("node", parsed.nodes), ("edge", parsed.edges)):
        for name, body in types.items():
            reader.add(kind, name, body)
    if not (parsed.nodes or parsed.edges or with_frames):
        raise BadRequestError(f"{where} maps no type: give `nodes:` or `edges:`")
    return TypeMapping(
        types=tuple(reader.types),
        frames=reader.frames,
        timestamps=reader.timestamps,
        duplicates=reader.duplicates,
        dangling=reader.dangling,
        name=where,
    )


def _mapping_text(path: str) -> tuple[SourceText, str]:
    """The text of a mapping, on disk or in an object store, and the folder that its paths are relative to."""
    if not is_remote(path):
        found = Path(path)
        return yaml_text(found), str(found.parent)
    return SourceText(read_text(path), path), path.rpartition("/")[0]


def _refuse(
    error: ValidationError, content: object, text: SourceText | None, where: str, place: tuple[str | int, ...] = ()
) -> NoReturn:
    """Raise what a model found wrong with a part of a mapping, in a file with its place."""
    problems = [
        replace(problem, path=(*place, *problem.path)) for problem in problems_of(error, content, mapping="a mapping")
    ]
    if text is not None:
        raise_problems(text, problems, code=_CODE)
    raise BadRequestError(listed(problems, where)) from error


class _Reader:
    """Reads the entries of one mapping."""

    def __init__(self, catalog: Catalog, where: str, base: str, text: SourceText | None, *, needs_ends: bool) -> None:
        self.types: list[MappedType] = []
        self.frames: dict[TableKey, MappedType] = {}
        self.timestamps = Timestamps.REFUSE
        self.duplicates: Duplicates | None = None
        self.dangling: Dangling | None = None
        self._catalog = catalog
        self._where = where
        self._base = base
        self._text = text
        self._needs_ends = needs_ends

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
            _refuse(error, named, self._text, self._where, place)

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
        if body.header is not None:
            _check_header(body.header, where)
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
                header=None if body.header is None else tuple(body.header),
                null=tuple(nulls) if nulls is not None else ("",),
                multiline=bool(body.multiline),
            ),
            timestamps=self.timestamps_of(body.timestamps, where),
            skips_null=body.skip_null,
            each=None if body.each is None else item_source(body.each, f"{where}, `each`"),
            duplicates=choice(Duplicates, body.duplicates, f"{where}: `duplicates`") or self.duplicates,
            dangling=self._dangling(key, body, where),
            said=body.model_dump(by_alias=True, exclude_unset=True),
        )

    def _dangling(self, key: TableKey, body: _TypeBody, where: str) -> Dangling | None:
        if key.kind == "node":
            if body.dangling is not None:
                raise BadRequestError(f"{where}: `dangling` is for edges, and a node has no ends")
            return None
        return choice(Dangling, body.dangling, f"{where}: `dangling`") or self.dangling

    def _ends(self, key: TableKey, body: _TypeBody, where: str) -> tuple[EndSource, EndSource] | None:
        given = (body.source_end, body.target_end)
        is_frame = body.source is None and body.table is None
        if key.kind == "node":
            if given != (None, None):
                raise BadRequestError(f"{where}: a node has no `from` and `to`")
            return None
        if given == (None, None) and (is_frame or not self._needs_ends):
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


def _check_header(names: list[str], where: str) -> None:
    """Make sure that names of columns tell them apart."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadRequestError(f"{where}: `header` names the column `{twice}` twice")
    if not names or "" in names:
        raise BadRequestError(f"{where}: `header` is the list of the names of all columns, and none of them is empty")


def _refuse_file_options(body: _TypeBody, where: str) -> None:
    """Refuse options of files where they would have no effect."""
    given = [name for name in ("format", "delimiter", "header", "null", "multiline") if getattr(body, name) is not None]
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
