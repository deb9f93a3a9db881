"""Which row each record of a patch is about, decided here or in tasks, and the records that are about none.

Where the records are few, their ids are held here, and those of the table stream by or are looked up. Otherwise both
meet in tasks, in buckets of their hashes, and what is decided goes into files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.core.ids import TableKey
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.lang.schema.rules import DistinctIds, EndGiven, Example, Required, RowExists, Rule, SameEnds
from omnigraph.pipeline.exchange import BUCKET, Exchange, hash_buckets, run_exchange, text_hashes
from omnigraph.pipeline.keys import KeyScan, cut_scans, find_keys, is_few, key_scans, scan_keys, text_key, total_rows
from omnigraph.pipeline.patch.files import LACKS, PatchFile, patch_keys
from omnigraph.pipeline.workers import Message, Workers
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.rules import Violation

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A record and the row that it changes; of a record that becomes a row of its own only the address.
DECIDED = pa.schema([(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT, "old_address")])
#: Ids on their way to their bucket; those of records have no row id.
_IDS = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("key", pa.utf8()),
        ("address", pa.int64()),
        (ROW_ID, pa.int64()),
        (CREATED_AT, pa.int64()),
        ("src", pa.utf8()),
        ("dst", pa.utf8()),
        (LACKS, pa.list_(pa.utf8())),
    ]
)
#: Ids of records and rows together that one task matches.
_BUCKET_ROWS = 1_000_000
_ENDS = ("src", "dst")


class Fault(StrEnum):
    """What is wrong with a record of a patch."""

    REPEATED = "repeated"
    UNKNOWN = "unknown"
    OTHER_ENDS = "other_ends"
    LACKING = "lacking"


@dataclass(slots=True)
class Faults:
    """Records that name no row or several times the same one, counted, with examples."""

    #: Kind of fault and what a record lacks → how many records.
    totals: dict[tuple[Fault, str], int] = field(default_factory=dict)
    #: Id, address of the record, and how many records have the id.
    examples: dict[tuple[Fault, str], list[tuple[str, int, int]]] = field(default_factory=dict)

    def add(
        self, fault: Fault, keys: Array, addresses: NDArray[np.int64], counts: Sequence[int] = (), about: str = ""
    ) -> None:
        """Count records; the first ones are examples."""
        if not len(addresses):
            return
        kind = (fault, about)
        total = sum(counts) - len(counts) if fault is Fault.REPEATED else len(addresses)
        self.totals[kind] = self.totals.get(kind, 0) + total
        first = np.argsort(addresses, kind="stable")[:MAX_EXAMPLES]
        names = keys.take(pa.array(first)).to_pylist()
        self._keep(
            kind, [(str(names[n]), int(addresses[at]), counts[at] if counts else 1) for n, at in enumerate(first)]
        )

    def _keep(self, kind: tuple[Fault, str], some: Sequence[tuple[str, int, int]]) -> None:
        known = self.examples.setdefault(kind, [])
        known[:] = sorted([*known, *some], key=lambda item: item[1])[:MAX_EXAMPLES]

    def merge(self, message: Message) -> None:
        """Add what a task found."""
        for fault, about, total, examples in message["faults"]:
            kind = (Fault(fault), str(about))
            self.totals[kind] = self.totals.get(kind, 0) + int(total)
            self._keep(kind, [(str(key), int(address), int(count)) for key, address, count in examples])

    def to_message(self) -> Message:
        """The counts as plain JSON values."""
        return {"faults": [[*kind, total, self.examples[kind]] for kind, total in self.totals.items()]}

    def violations(self, definition: NodeDef | EdgeDef) -> Iterator[Violation]:
        """The rules that the records violate; addresses of examples are those of records."""
        key = definition.table_key
        for (fault, about), total in self.totals.items():
            rule = _rule(fault, about, key, definition)
            named = isinstance(rule, Required)
            examples = [
                Example(None if named else name, (address,), count, ids=(name,) if named else ())
                for name, address, count in self.examples[fault, about]
            ]
            yield Violation(key, rule, total, examples)


def _rule(fault: Fault, about: str, key: TableKey, definition: NodeDef | EdgeDef) -> Rule:
    if fault is Fault.REPEATED:
        return DistinctIds(type_name=key.name)
    if fault is Fault.UNKNOWN:
        return RowExists(kind=key.kind, type_name=key.name)
    if fault is Fault.OTHER_ENDS:
        return SameEnds(edge_type=key.name)
    if isinstance(definition, EdgeDef) and about in ("from", "to"):
        node = definition.source if about == "from" else definition.target
        return EndGiven(edge_type=key.name, end=about, node_type=node)
    return Required(type_name=key.name, property=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPatch:
    """The records of a patch with their rows."""

    #: In memory, or the names of files with them.
    decided: Rows | list[str]
    #: Records of rows that exist, and of rows to come.
    known: int
    new: int
    #: Known rows by their fragment.
    by_fragment: Mapping[int, int]
    faults: Faults

    @property
    def total(self) -> int:
        """All records that change something."""
        return self.known + self.new


def match_patch(
    table: Table,
    files: Sequence[PatchFile],
    folder: AnswerFolder,
    workers: Workers,
    *,
    small_rows: int | None,
    is_edge: bool,
    inserts: bool,
) -> MatchedPatch:
    """Find the row of each record. Records with a fault are left out; of equal ids the first one is taken.

    `small_rows` says how many records this process compares by itself; None: any number.
    """
    ends = _ENDS if is_edge else ()
    there = key_scans(table, None, text_key("id"), extra=(ROW_ID, CREATED_AT, *ends))
    rows = sum(file.rows for file in files)
    if small_rows is None or is_few(rows, there, small_rows):
        new = pa.concat_tables(
            [_empty(), *(keys for number, file in enumerate(files) for keys in patch_keys(folder, number, file))],
            promote_options="default",
        )
        distinct = pa.array(new["key"].unique(), pa.utf8())
        nothing = _IDS.empty_table().select(["key", "address", ROW_ID, CREATED_AT, *ends])
        old = pa.concat_tables([nothing, *find_keys(there, distinct, distinct)])
        decided, faults = compare_ids(new, old, inserts=inserts)
        known, known_in = _counts(decided)
        return MatchedPatch(
            decided=decided, known=known, new=decided.num_rows - known, by_fragment=known_in, faults=faults
        )
    parallelism = workers.parallelism
    buckets = max(parallelism, (rows + total_rows(there)) // _BUCKET_ROWS + 1)
    items: list[_Ids] = [*enumerate(files), *cut_scans(there, 2 * parallelism)]
    exchange = Exchange(
        stage="match ids",
        items=items,
        read=_ReadIds(folder, buckets),
        schema=_IDS,
        buckets=buckets,
        handle=_Decide(folder, is_edge=is_edge, inserts=inserts),
    )
    answers = run_exchange(exchange, workers, folder)
    faults = Faults()
    by_fragment: dict[int, int] = {}
    for answer in answers:
        faults.merge(answer)
        for number, count in answer["by_fragment"]:
            by_fragment[number] = by_fragment.get(number, 0) + count
    return MatchedPatch(
        decided=[answer["name"] for answer in answers],
        known=sum(answer["known"] for answer in answers),
        new=sum(answer["new"] for answer in answers),
        by_fragment=by_fragment,
        faults=faults,
    )


def _empty() -> Rows:
    nothing: Rows = _IDS.empty_table().select(["key", "address"])
    return nothing


def _counts(decided: Rows) -> tuple[int, dict[int, int]]:
    """How many records are about rows that exist, and how many of these rows each fragment has."""
    addresses = np.asarray(decided["old_address"].drop_null())
    numbers, counts = np.unique(addresses >> 32, return_counts=True)
    return len(addresses), dict(zip(numbers.tolist(), counts.tolist(), strict=True))


#: A file of records with its number, or a part of the table.
_Ids: TypeAlias = "tuple[int, PatchFile] | KeyScan"


@dataclass(frozen=True, slots=True)
class _ReadIds:
    """Reads the ids of a file of records, or of a part of the table."""

    folder: AnswerFolder
    buckets: int

    def __call__(self, item: _Ids) -> Iterator[Batch]:
        tables = scan_keys(item) if isinstance(item, KeyScan) else patch_keys(self.folder, *item)
        for table in tables:
            rows = {name: table[name].combine_chunks() for name in table.column_names}
            rows[BUCKET] = hash_buckets(text_hashes(rows["key"]), self.buckets)
            columns = [rows[item.name] if item.name in rows else pa.nulls(table.num_rows, item.type) for item in _IDS]
            yield pa.RecordBatch.from_arrays(columns, schema=_IDS)


@dataclass(frozen=True, slots=True)
class _Decide:
    """Decides about the records of one bucket of ids."""

    folder: AnswerFolder
    is_edge: bool
    inserts: bool

    def __call__(self, bucket: int, rows: Rows) -> Message:
        is_record = rows[ROW_ID].is_null()
        new, old = rows.filter(is_record), rows.filter(pc.invert(is_record))
        names = ["key", "address", *(_ENDS if self.is_edge else ()), LACKS]
        decided, faults = compare_ids(new.select(names), old, inserts=self.inserts)
        name = attempt_name("decided", bucket)
        write_answer(self.folder, name, DECIDED, decided.to_batches())
        known, by_fragment = _counts(decided)
        counts = {"known": known, "new": decided.num_rows - known, "by_fragment": list(by_fragment.items())}
        return {"name": name, "rows": rows.num_rows, **counts, **faults.to_message()}


def compare_ids(new: Rows, old: Rows, *, inserts: bool) -> tuple[Rows, Faults]:
    """The records that name one row each, with these rows, and what is wrong with the others."""
    faults = Faults()
    coded = new["key"].cast(pa.large_utf8()).combine_chunks().dictionary_encode()
    names, codes = coded.dictionary, np.asarray(coded.indices)
    addresses = np.asarray(new["address"])
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, codes, addresses)
    counts = np.bincount(codes, minlength=len(names))
    repeated = np.flatnonzero(counts > 1)
    faults.add(Fault.REPEATED, names.take(pa.array(repeated)), first[repeated], counts[repeated].tolist())
    found = pc.index_in(names, old["key"].cast(pa.large_utf8()).combine_chunks())
    row = np.asarray(pc.fill_null(found, -1))[codes]
    is_good = addresses == first[codes]
    keys = new["key"].combine_chunks()

    def fault(kind: Fault, mask: NDArray[np.bool_], about: str = "") -> None:
        places = np.flatnonzero(mask)
        faults.add(kind, keys.take(pa.array(places)), addresses[places], about=about)

    is_known = row >= 0
    if not inserts:
        fault(Fault.UNKNOWN, is_good & ~is_known)
        is_good &= is_known
    else:
        lacks = new[LACKS].combine_chunks()
        lacking = is_good & ~is_known & (np.asarray(pc.list_value_length(lacks)) > 0)
        for name in pc.list_flatten(lacks.filter(pa.array(lacking))).unique().to_pylist():
            here = [name in (some or ()) for some in lacks.filter(pa.array(lacking)).to_pylist()]
            mask = np.zeros(len(is_good), dtype=bool)
            mask[np.flatnonzero(lacking)] = here
            fault(Fault.LACKING, mask, str(name))
        is_good &= ~lacking
    rows = old.take(pa.array(np.where(is_known, row, 0), mask=~is_known))
    moved = np.zeros(len(is_good), dtype=bool)
    for side in _ENDS:
        if side in new.column_names and side in old.column_names:
            moved |= np.asarray(pc.fill_null(pc.not_equal(new[side], rows[side]), False))
    fault(Fault.OTHER_ENDS, is_good & moved)
    is_good &= ~moved
    columns = [new["address"], *(rows[name] for name in (ROW_ID, CREATED_AT, "address"))]
    return pa.Table.from_arrays(columns, schema=DECIDED).filter(pa.array(is_good)), faults
