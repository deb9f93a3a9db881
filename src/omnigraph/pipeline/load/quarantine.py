"""The quarantine of a load: every bad record as its source has it, with its reasons, ready to be loaded again.

Bad records are known by their piece of the input and their number in it, in files that tasks wrote. An exchange brings
those of a piece together, in ranges of numbers, so that no task holds more than a range; it reads the source again and
copies them. Files whose names begin with `_` are passed over when the folder is loaded.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np
import yaml

from omnigraph.core.arrow import Batch, Rows, pa
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors.writes import LINE, RECORD, ROW
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import BUCKET, Exchange, run_exchange
from omnigraph.pipeline.load.relations import Staged
from omnigraph.pipeline.rejects import REJECTS
from omnigraph.pipeline.sources.inputs import check_unchanged
from omnigraph.pipeline.sources.mapping import SourceFormat
from omnigraph.pipeline.sources.originals import KeptRows, ending_of, write_originals
from omnigraph.pipeline.sources.provenance import Piece
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, read_answer

#: Numbers of records of one piece that one task copies.
_RANGE = 500_000
_SENT = pa.schema([(BUCKET, pa.int32()), *REJECTS])
#: The mapping that loads a quarantine of tables and frames, and the folder of the reasons.
MAPPING = "mapping.yaml"
REASONS = "_reasons"
_TEXTS = (SourceFormat.CSV, SourceFormat.JSON)
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(kw_only=True)
class Quarantined:
    """How many records a quarantine holds."""

    files: list[Path] = field(default_factory=list)
    records: int = 0
    types: Counter[TableKey] = field(default_factory=Counter)
    #: Of each rule the records that violate it.
    rules: Counter[str] = field(default_factory=Counter)


@frozen
class _Range:
    """Some numbers of a piece, and the file for their records."""

    piece: int
    begin: int
    name: str


def write_quarantine(
    staged: Staged,
    rejects: Sequence[str],
    *,
    is_strict: bool,
    scratch: str,
    place: Callable[[str, str], Path],
    engine: WorkerSet,
    folder: AnswerFolder,
) -> Quarantined:
    """Write all bad records, with the mapping that loads them again if they are not graph records.

    `rejects` are the files about rows that rules between them refuse. Tasks write to `scratch`; `place` moves what
    counts to its name.

    Raises:
        InputFileError: a file is gone, damaged, or another one than when it was read.
    """
    pieces = staged.provenance.pieces
    entries = _entries(pieces)
    ranges = list(_ranges(pieces, entries))
    first = np.full(len(pieces), -1, np.int64)
    for number, one in enumerate(ranges):
        if first[one.piece] < 0:
            first[one.piece] = number
    items: list[tuple[int | None, str]] = [*staged.rejects, *((None, name) for name in rejects)]
    exchange = Exchange(
        stage="write the quarantine",
        items=items,
        read=_ReadRejects(folder, first),
        schema=_SENT,
        buckets=len(ranges),
        handle=_WriteRange(folder, tuple(ranges), tuple(pieces), scratch, is_strict),
    )
    found = Quarantined()
    used: set[int] = set()
    for answer in run_exchange(exchange, engine.quiet, folder):
        name = str(answer["name"])
        found.files += [place(answer["file"], name), place(answer["reasons"], f"{REASONS}/{name}.jsonl")]
        found.records += int(answer["records"])
        found.types.update({TableKey(key): count for key, count in answer["types"].items()})
        found.rules.update(answer["rules"])
        used.add(int(answer["piece"]))
    mapping = _mapping_text({entries[number] for number in used if entries[number] is not None}, entries, pieces)
    if mapping:
        path = os.path.join(scratch, new_ulid())
        Path(path).write_text(mapping, encoding="utf-8")
        found.files.append(place(path, MAPPING))
    return found


# ---- names of files


def _entries(pieces: Sequence[Piece]) -> dict[int, str | None]:
    """The folder of every piece: one for each entry of a mapping; none for graph records."""
    folders: dict[int, str] = {}
    found: dict[int, str | None] = {}
    taken: Counter[str] = Counter()
    for number, piece in enumerate(pieces):
        mapped = piece.mapped
        if mapped is None:
            found[number] = None
            continue
        if id(mapped) not in folders:
            name = f"{mapped.type_key.kind}s/{mapped.type_key.name}"
            taken[name] += 1
            folders[id(mapped)] = name if taken[name] == 1 else f"{name}-{taken[name]}"
        found[number] = folders[id(mapped)]
    return found


def _ranges(pieces: Sequence[Piece], entries: Mapping[int, str | None]) -> Iterator[_Range]:
    """The ranges of all pieces, each with a name of its own."""
    stems: dict[tuple[str | None, str], str] = {}
    counts: Counter[str] = Counter()
    taken: set[str] = set()
    sources = [piece.source if piece.part is None else piece.part.file.path for piece in pieces]
    # A file may feed several types.
    several = Counter((entries[number], source) for number, source in enumerate(sources))
    for number, piece in enumerate(pieces):
        key = (entries[number], sources[number])
        if key not in stems:
            stem = _stem(piece)
            base = f"{entries[number]}/{stem}" if entries[number] else stem
            unique, again = base, 1
            while unique in taken:
                again += 1
                unique = f"{base}-{again}"
            taken.add(unique)
            stems[key] = unique
        stem = stems[key]
        is_single = several[key] == 1 and piece.lines <= _RANGE
        for begin in range(1, max(piece.lines, 1) + 1, _RANGE):
            counts[stem] += 1
            name = stem if is_single else f"{stem}.part-{counts[stem]:05d}"
            yield _Range(number, begin, f"{name}.{ending_of(piece.part)}")


def _stem(piece: Piece) -> str:
    """The name of a file without its endings, below the folders that stand for columns."""
    if piece.part is None:
        return "rows"
    folders = [
        f"{quote(column, safe='')}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}"
        for column, value in piece.part.file.partitions
    ]
    name = PurePosixPath(piece.part.file.path).name
    stem = name.split(".", 1)[0] or "records"
    # What begins so would be passed over.
    return "/".join([*folders, stem.lstrip("._") or "records"])


# ---- tasks


@frozen
class _ReadRejects:
    folder: AnswerFolder
    #: The first range of each piece.
    first: Any

    def __call__(self, item: tuple[int | None, str]) -> Iterator[Batch]:
        piece, name = item
        for batch in read_answer(self.folder, name):
            pieces = batch.column(0) if piece is None else pa.array(np.full(batch.num_rows, piece, np.int32))
            numbers = np.asarray(batch.column(1))
            bucket = self.first[np.asarray(pieces)] + (numbers - 1) // _RANGE
            columns = [pa.array(bucket.astype(np.int32)), pieces, *batch.columns[1:]]
            yield pa.RecordBatch.from_arrays(columns, schema=_SENT)


@frozen
class _WriteRange:
    folder: AnswerFolder
    ranges: tuple[_Range, ...]
    pieces: tuple[Piece, ...]
    scratch: str
    is_strict: bool

    def __call__(self, bucket: int, rows: Rows) -> Message:
        one = self.ranges[bucket]
        piece = self.pieces[one.piece]
        ordered = rows.sort_by("number")
        numbers = np.unique(np.asarray(ordered["number"]))
        if piece.part is not None:
            check_unchanged(piece.part.file)
        source = piece.part or KeptRows(folder=self.folder, name=piece.kept)
        is_list = piece.part is not None and piece.part.format is SourceFormat.JSON and piece.unit == RECORD
        path, reasons = (os.path.join(self.scratch, new_ulid()) for _ in range(2))
        rest = None if piece.rest is None or numbers[-1] != piece.lines else piece.rest
        begin = write_originals(path, source, numbers, is_strict=self.is_strict, is_list=is_list, rest=rest)
        types: Counter[str] = Counter()
        rules: Counter[str] = Counter()
        with open(reasons, "x", encoding="utf-8") as file:
            last, at, said = 0, begin - 1, set[str]()
            for row in _plain_rows(ordered):
                number = int(row["number"])
                if number != last:
                    last, at, said = number, at + 1, set()
                    types[row["type_key"] or ""] += 1
                if row["rule"] not in said:
                    said.add(row["rule"])
                    rules[row["rule"]] += 1
                file.write(_encode(self._reason(one, piece, row, at)) + "\n")
        return {
            "piece": one.piece,
            "name": one.name,
            "file": path,
            "reasons": reasons,
            "records": len(numbers),
            "rows": len(numbers),
            "types": {key: count for key, count in types.items() if key},
            "rules": rules,
        }

    @staticmethod
    def _reason(one: _Range, piece: Piece, row: Mapping[str, Any], at: int) -> dict[str, object]:
        unit = RECORD if piece.unit in (RECORD, ROW) else LINE
        found = {
            "file": one.name,
            unit: at,
            "source": piece.source,
            f"source_{piece.unit}": piece.before + int(row["number"]),
        }
        told = {name: row[name] for name in ("type_key", "field", "value", "rule", "message")}
        return found | {name: value for name, value in told.items() if value is not None}


def _plain_rows(rows: Rows) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


# ---- the way back


def _mapping_text(folders: set[str | None], entries: Mapping[int, str | None], pieces: Sequence[Piece]) -> str:
    """The mapping that loads the files of some folders by the rules of the first load; empty without tables."""
    found: dict[str, dict[str, list[dict[str, object]]]] = {}
    seen: set[str] = set()
    for number, piece in enumerate(pieces):
        mapped, name = piece.mapped, entries[number]
        if mapped is None or name is None or name not in folders or name in seen:
            continue
        seen.add(name)
        kind = f"{mapped.type_key.kind}s"
        is_text = piece.part is not None and piece.part.format in _TEXTS
        body = mapped.said_again(name, is_parquet=not is_text)
        found.setdefault(kind, {}).setdefault(mapped.type_key.name, []).append(body)
    if not found:
        return ""
    return str(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=110))
