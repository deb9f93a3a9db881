"""Which table or file feeds which type: mapping files (YAML) and their Python form.

    nodes:
      Person:
        source: people/*.parquet
        columns: {full_name: name}
    edges:
      Knows:
        source: knows.csv
        from: person_a
        to: person_b

Paths are relative to the mapping file. Without `columns`, columns and properties have equal names and every column has
to be one; with it, only the columns that it names are read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.problems import shown
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.validation import listed, problems_of
from omnigraph.yaml_files import raise_problems, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.pipeline.inputs import InputFile
    from omnigraph.pipeline.plan import EntityShape
    from omnigraph.schema import Catalog

_CODE = "mapping"
#: How many columns a message names.
_SHOWN_NAMES = 20
_ABSOLUTE = re.compile(r"^(/|~|[A-Za-z][A-Za-z0-9+.-]*://)")


class SourceFormat(StrEnum):
    """How files of a mapped source are written."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How a CSV file is written."""

    delimiter: str = ","
    #: The text that stands for null; an empty quoted text is a text.
    null: str = ""
    #: Whether values may hold line breaks; such a file is read by one task.
    multiline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedType:
    """One type and where its records come from."""

    type_key: str
    #: Path, directory, pattern, or the name of a Spark table.
    source: str
    format: SourceFormat | None
    #: Column → property; None: equal names.
    columns: Mapping[str, str] | None = None
    id: str | None = None
    #: A column of ids, or key member → column.
    ends: tuple[str | Mapping[str, str], str | Mapping[str, str]] | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)


class _TypeBody(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)

    source: str | None = None
    table: str | None = None
    format: str | None = None
    columns: dict[str, str] | None = None
    id: str | None = None
    source_end: str | dict[str, str] | None = Field(default=None, alias="from")
    target_end: str | dict[str, str] | None = Field(default=None, alias="to")
    delimiter: str | None = None
    null: str | None = None
    multiline: bool | None = None


class _MappingBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: dict[str, _TypeBody | list[_TypeBody]] = Field(default_factory=dict)
    edges: dict[str, _TypeBody | list[_TypeBody]] = Field(default_factory=dict)


def read_mapping(
    given: str | os.PathLike[str] | Mapping[str, object], catalog: Catalog
) -> list[MappedType]:
    """The mapped types of a YAML file, or of its content as a dictionary.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: the file is not a mapping; every finding has its place.
        BadRequestError: the mapping does not fit this schema; the text says what is wrong and where.
    """
    where, base, body = "the mapping", Path.cwd(), given
    path = None if hasattr(given, "keys") else Path(os.fspath(given))
    if path is not None:
        where, base, body = str(path), path.parent, read_yaml(path)
    try:
        parsed = _MappingBody.model_validate(body)
    except ValidationError as error:
        problems = problems_of(error, body, mapping="a mapping")
        if path is not None:
            raise_problems(path, problems, code=_CODE)
        raise BadRequestError(listed(problems, where)) from error
    found: list[MappedType] = []
    for kind, types in (("node", parsed.nodes), ("edge", parsed.edges)):
        for name, bodies in types.items():
            key = _type_key(kind, name, catalog, where)
            several = bodies if isinstance(bodies, list) else [bodies]
            found += [_mapped(key, item, base, f"{where}, {name}") for item in several]
    if not found:
        raise BadRequestError(f"{where} maps no type: give `nodes:` or `edges:`")
    return found


def _type_key(kind: str, name: str, catalog: Catalog, where: str) -> str:
    known = list(catalog.nodes if kind == "node" else catalog.edges)
    if name not in known:
        hint = did_you_mean(name, known)
        raise BadRequestError(
            f"{where}: there is no {kind} type `{name}`" + (f": {hint}" if hint else "")
        )
    return f"{kind}:{name}"


def _mapped(key: str, body: _TypeBody, base: Path, where: str) -> MappedType:
    if (body.source is None) == (body.table is None):
        raise BadRequestError(f"{where}: give `source` (files) or `table` (a Spark table)")
    is_edge = key.startswith("edge:")
    if is_edge and (body.source_end is None or body.target_end is None):
        raise BadRequestError(f"{where}: an edge needs the columns `from` and `to`")
    if not is_edge and (body.source_end is not None or body.target_end is not None):
        raise BadRequestError(f"{where}: a node has no `from` and `to`")
    ends = None
    if body.source_end is not None and body.target_end is not None:
        ends = (body.source_end, body.target_end)
    if body.delimiter is not None and (len(body.delimiter) != 1 or not body.delimiter.isascii()):
        raise BadRequestError(f"{where}: `delimiter` is one ASCII character")
    source = str(body.source if body.source is not None else body.table)
    if body.source is not None and not _ABSOLUTE.match(source):
        source = os.path.join(base, source)
    return MappedType(
        type_key=key,
        source=source,
        format=SourceFormat.TABLE if body.table is not None else _format(body.format, where),
        columns=body.columns,
        id=body.id,
        ends=ends,
        csv=CsvOptions(
            delimiter=body.delimiter or ("\t" if source.endswith((".tsv", ".tsv.gz")) else ","),
            null=body.null or "",
            multiline=bool(body.multiline),
        ),
    )


def _format(name: str | None, where: str) -> SourceFormat | None:
    if name is None:
        return None
    try:
        return SourceFormat(name)
    except ValueError:
        known = ", ".join(item for item in SourceFormat if item is not SourceFormat.TABLE)
        raise BadRequestError(f"{where}: `{name}` is no format; known are {known}") from None


def format_of(file: InputFile, mapped: MappedType) -> SourceFormat:
    """The format of a file: as the mapping says, or by its ending.

    Raises:
        BadRequestError: neither tells.
    """
    found = mapped.format or _ENDINGS.get(file.ending)
    if found is None:
        raise BadRequestError(
            f"the format of {file.path} is unknown: give `format:` in the mapping"
        )
    return found


def endings_of(mapped: MappedType) -> tuple[str, ...] | None:
    """The endings that files of a directory have; None when the format was given."""
    return tuple(_ENDINGS) if mapped.format is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """How the columns of one source feed the columns of one type."""

    #: Property → column.
    properties: Mapping[str, str]
    id: str | None
    ends: tuple[str | Mapping[str, str], str | Mapping[str, str]] | None

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        wanted = list(self.properties.values())
        if self.id is not None:
            wanted.append(self.id)
        for end in self.ends or ():
            wanted += [end] if isinstance(end, str) else list(end.values())
        return list(dict.fromkeys(wanted))


def map_columns(
    mapped: MappedType, shape: EntityShape, present: list[str], where: str, *, is_strict: bool
) -> ColumnMap:
    """Which columns of a source are read as what.

    Raises:
        BadRequestError: a column does not exist, or a name is no property.
    """
    properties = shape.definition.properties
    special = set()
    if mapped.id is not None:
        special.add(mapped.id)
    for name, end, side in zip(("from", "to"), mapped.ends or (), shape.ends or (), strict=False):
        if isinstance(end, str):
            special.add(end)
            continue
        members = {member for member, _ in side.members}
        if set(end) != members:
            wanted = ", ".join(sorted(members)) or "no key members"
            raise BadRequestError(f"{where}: `{name}` has to map {wanted} of {side.name}")
        special |= set(end.values())
    if mapped.columns is not None:
        chosen = {name: column for column, name in mapped.columns.items()}
        if len(chosen) < len(mapped.columns):
            names = list(mapped.columns.values())
            twice = next(name for name in names if names.count(name) > 1)
            raise BadRequestError(f"{where}: two columns feed the property `{twice}`")
        for name in chosen:
            if name not in properties:
                hint = did_you_mean(name, list(properties))
                raise BadRequestError(
                    f"{where}: {shape.name} has no property `{name}`"
                    + (f": {hint}" if hint else "")
                )
    else:
        chosen = {name: name for name in present if name in properties}
        extra = [n for n in present if n not in properties and n not in special and n != "id"]
        if extra and is_strict:
            raise BadRequestError(
                f"{where}: {shape.name} has no property "
                f"{_listed(extra)}; name the columns to read in `columns:`"
            )
    explicit = mapped.id
    if explicit is None and "id" in present and "id" not in properties:
        explicit = "id" if mapped.columns is None else None
    found = ColumnMap(properties=chosen, id=explicit, ends=mapped.ends)
    repeated = [column for column in found.columns if present.count(column) > 1]
    if repeated:
        raise BadRequestError(f"{where}: there are two columns `{shown(repeated[0])}`")
    missing = [column for column in found.columns if column not in present]
    if missing:
        hint = did_you_mean(missing[0], present)
        raise BadRequestError(
            f"{where}: there is no column `{shown(missing[0])}`" + (f": {hint}" if hint else "")
        )
    return found


def _listed(names: list[str]) -> str:
    """Some names of columns: a file may have many, and long ones."""
    some = ", ".join(f"`{shown(name)}`" for name in names[:_SHOWN_NAMES])
    hidden = len(names) - _SHOWN_NAMES
    return f"{some} and {hidden:,} more" if hidden > 0 else some
