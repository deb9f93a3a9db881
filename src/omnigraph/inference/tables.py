"""The tables among files, folders and patterns: what each file is, and which files belong together."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.inference.csv_dialect import BYTE_ORDER_MARK, Dialect, sniff
from omnigraph.inference.names import words_of
from omnigraph.pipeline.sources.inputs import InputFile, find_files, open_text, readable
from omnigraph.pipeline.sources.parts import open_table

#: Bytes of a file that are looked at to see what it is.
_LOOK_BYTES = 256 * 1024
_TABLE_ENDINGS = ("csv", "tsv", "json", "jsonl", "ndjson", "parquet", "pq", "orc")
#: Endings of texts that may be tables of any kind.
_TEXT_ENDINGS = ("txt", "dat", "data", "tab", "psv", "")
_JSON_ENDINGS = ("json", "jsonl", "ndjson")
_COLUMNAR_ENDINGS = ("parquet", "pq", "orc")


@frozen(kw_only=True)
class LeftOut:
    """A file or a column that nothing is proposed for, and why."""

    name: str
    reason: str


# ---- Finding tables among files


@frozen(kw_only=True)
class FileTable:
    """Files that hold one table, looked at but not read."""

    files: tuple[InputFile, ...]
    #: `csv`, `json`, `parquet` or `orc`.
    kind: str
    columns: tuple[str, ...]
    dialect: Dialect | None = None
    #: What a mapping names to find exactly these files.
    source: str
    stem: str
    shown: str

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def find_tables(sources: Iterable[str | os.PathLike[str]]) -> tuple[list[FileTable], list[LeftOut]]:
    """The tables among files, folders and patterns, and the files that are none.

    Raises:
        InputFileError: a source does not exist or cannot be read.
        BadRequestError: a source that is a file is not a table, or there is no table at all.
    """
    tables: list[FileTable] = []
    left_out: list[LeftOut] = []
    for given in sources:
        source = os.fspath(given)
        files = find_files(source)
        is_named = len(files) == 1 and PurePosixPath(files[0].path).name == PurePosixPath(source).name
        root = str(PurePosixPath(files[0].path).parent) if is_named else _common_folder(files, source)
        looked: list[FileTable] = []
        for file in files:
            found = _look(file, root, is_named=is_named)
            if isinstance(found, FileTable):
                looked.append(found)
            elif is_named:
                raise BadRequestError(f"{source} is not a table: {found.reason}")
            else:
                left_out.append(found)
        tables += _together(looked, root)
    if not tables:
        reasons = "".join(f"; {item.name}: {item.reason}" for item in left_out[:5])
        raise BadRequestError(
            "there is no table to look at: give folders, files or patterns of CSV, Parquet, ORC or JSON" + reasons
        )
    return tables, left_out


def _common_folder(files: Sequence[InputFile], source: str) -> str:
    folders = [PurePosixPath(file.path).parent for file in files]
    named = PurePosixPath(os.path.abspath(source)) if "://" not in source else PurePosixPath(source)
    if all(named == folder or named in folder.parents for folder in folders):
        return str(named)
    return os.path.commonpath([str(folder) for folder in folders])


#: Files of other programs, by their endings, with what to do about them.
_ADVICE = {
    "xlsx": "a spreadsheet: save its sheets as CSV",
    "xls": "a spreadsheet: save its sheets as CSV",
    "ods": "a spreadsheet: save its sheets as CSV",
    "zip": "an archive: unpack it first",
    "tar": "an archive: unpack it first",
    "db": "a database: export its tables as CSV or Parquet",
    "sqlite": "a database: export its tables as CSV or Parquet",
    "xml": "XML, which no load reads",
}


def _look(file: InputFile, root: str, *, is_named: bool) -> FileTable | LeftOut:
    """What a file holds, by its ending and its beginning."""
    name = os.path.relpath(file.path, root) if "://" not in file.path else file.path.removeprefix(f"{root}/")
    ending = file.ending
    if ending in _ADVICE:
        return LeftOut(name=name, reason=_ADVICE[ending])
    if ending not in (*_TABLE_ENDINGS, *_TEXT_ENDINGS) and not is_named:
        return LeftOut(name=name, reason="not a table")
    path = PurePosixPath(file.path)
    plain = path.name.removesuffix(path.suffix) if file.compression is not None else path.name
    found = FileTable(
        files=(file,), kind="csv", columns=(), source=file.path, stem=PurePosixPath(plain).stem, shown=name
    )
    with readable(file):
        if ending in _COLUMNAR_ENDINGS:
            kind = "orc" if ending == "orc" else "parquet"
            with open_table(file, is_parquet=kind == "parquet") as table:
                return replace(found, kind=kind, columns=tuple(table.schema.names))
        with open_text(file) as stream:
            begun = read_up_to(stream, _LOOK_BYTES)
    if not begun.removeprefix(BYTE_ORDER_MARK).strip():
        return LeftOut(name=name, reason="empty")
    if ending in _JSON_ENDINGS:
        return _look_at_json(found, begun)
    if b"\0" in begun:
        return LeftOut(name=name, reason="not a text")
    dialect = sniff(begun, ending=ending, is_whole=len(begun) < _LOOK_BYTES)
    if dialect is None:
        return LeftOut(name=name, reason="not a table: its lines have no common delimiter of one character")
    return replace(found, dialect=dialect, columns=dialect.names)


def read_up_to(stream: Any, size: int) -> bytes:
    """So many bytes of a stream, or all that it has."""
    found = b""
    while len(found) < size and (more := stream.read(size - len(found))):
        found += more
    return found


def _look_at_json(found: FileTable, begun: bytes) -> FileTable | LeftOut:
    text = begun.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text[:1] == b"[":
        return replace(found, kind="json")
    line = text.split(b"\n", 1)[0]
    try:
        first = json.loads(line) if len(line) < _LOOK_BYTES else {}
    except (ValueError, RecursionError):
        reason = "a load reads one object per line, or one list of objects, and this is neither"
        return LeftOut(name=found.shown, reason=reason)
    if not isinstance(first, dict):
        return LeftOut(name=found.shown, reason="its lines are not objects")
    if ("edge" in first and {"from", "to"} <= set(first)) or set(first) in ({"type", "data"}, {"type", "data", "id"}):
        return LeftOut(
            name=found.shown, reason="graph records name their types: load them with `load --data` and a schema"
        )
    return replace(found, kind="json", columns=tuple(sorted(first)))


# ---- Files that are one table


_PART = re.compile(r"part-[0-9]+.*")
_DIGITS = re.compile(r"[0-9]+")


def _together(tables: Sequence[FileTable], root: str) -> Iterator[FileTable]:
    """Tables; files whose paths differ in numbers only, and whose columns do not, are one."""
    groups: dict[tuple[str, ...], list[FileTable]] = defaultdict(list)
    for table in tables:
        groups[_pattern(table, root), table.kind, *(() if table.kind == "json" else table.columns)].append(table)
    for (pattern, *_), members in groups.items():
        joined = _joined(pattern, members) if len(members) > 1 or members[0].files[0].partitions else None
        if joined is None:
            yield from members
        else:
            yield joined


def _pattern(table: FileTable, root: str) -> str:
    """What a mapping would name for the table and for others of the same form; a folder for those in partitions."""
    file = table.files[0]
    path = PurePosixPath(file.path)
    if file.partitions:
        return str(next(folder for folder in path.parents if "=" not in folder.name))
    name = f"part-*.{file.path.split('.', 1)[-1]}" if _PART.fullmatch(path.name) else _DIGITS.sub("*", path.name)
    inside = path.parent.relative_to(root)
    return str(PurePosixPath(root) / _DIGITS.sub("*", str(inside)) / name)


def _joined(pattern: str, members: Sequence[FileTable]) -> FileTable | None:
    """One table of all members, if the pattern names exactly them."""
    files = tuple(sorted((file for table in members for file in table.files), key=lambda file: file.path))
    found = find_files(pattern, _TABLE_ENDINGS)
    if [file.path for file in found] != [file.path for file in files]:
        return None
    path = PurePosixPath(pattern)
    name = _DIGITS.sub(" ", members[0].stem) if path.name != PurePosixPath(files[0].path).name else members[0].stem
    has_name = bool(words_of(name)) and not path.name.startswith("part-") and not files[0].partitions
    folder = path if files[0].partitions else path.parent
    shown = path.name if folder == path or path.parent.name.isascii() else pattern
    return replace(members[0], files=files, source=pattern, stem=name if has_name else folder.stem, shown=shown)
