"""Which row each record of a patch is about, decided here or in tasks, and the records that change none.

Where the records are few, their ids are held here, and those of the table stream by or are looked up. Otherwise both
meet in tasks, in buckets of their hashes, and what is decided goes into files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.lang.schema.rules import DistinctIds, EndGiven, Example, Required, RowExists, Rule, SameEnds
from omnigraph.pipeline.exchange import BUCKET, Exchange, hash_buckets, run_exchange, text_hashes
from omnigraph.pipeline.keys import KeyScan, cut_scans, find_keys, is_few, key_scans, scan_keys, text_key, total_rows
from omnigraph.pipeline.patch.files import LACKS, PatchFile, patch_keys
from omnigraph.pipeline.rejects import REASON, REJECTS, located_rejects, reason_columns
from omnigraph.pipeline.shape.leniency import Duplicates
from omnigraph.pipeline.sources.provenance import RowSource
from omnigraph.pipeline.violations import ViolationCounts
from omnigraph.pipeline.workers import Message, Workers
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.columns import texts
from omnigraph.writes.rules import Violation

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A record and the row that it changes; of a record that becomes a row of its own only the address.
DECIDED = pa.schema([(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT, "old_address")])
#: An id of a bad record, and why it is bad.
REFUSALS = pa.schema([("key", pa.utf8()), *REASON])
#: Ids on their way to their bucket; those of records have no row id, and only those of refusals a rule.
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
        *REASON,
    ]
)
#: Ids of records and rows together that one task matches.
_BUCKET_ROWS = 1_000_000
_ENDS = ("src", "dst")


@frozen(kw_only=True)
class Judge:
    """Decides which records of a type change which rows, and tells what is wrong with the others. Travels to tasks."""

    definition: NodeDef | EdgeDef
    #: Where records come from, by their addresses.
    source: RowSource
    folder: AnswerFolder
    #: Whether a record may be a new row.
    inserts: bool
    #: Which record of an id counts.
    duplicates: Duplicates
    #: Whether everything that is wrong with records goes into files.
    keeps_bad: bool

    @property
    def ends(self) -> tuple[str, ...]:
        """The columns of the ends, of edges."""
        return _ENDS if isinstance(self.definition, EdgeDef) else ()

    def decide(self, number: int, new: Rows, old: Rows, refusals: Rows) -> tuple[Rows, Message]:
        """The records that change a row each, with these rows; and what became of the others, in counts and files.

        `refusals` say why records of some ids are left out. All rows of an id are here; `number` tells calls apart.
        """
        verdict = _Verdict(self, new)
        coded = new["key"].cast(pa.large_utf8()).combine_chunks().dictionary_encode()
        names, codes = coded.dictionary, np.asarray(coded.indices)
        verdict.keep_one(codes, len(names))
        row = np.asarray(pc.fill_null(pc.index_in(names, old["key"].cast(pa.large_utf8()).combine_chunks()), -1))[codes]
        is_known = row >= 0
        if self.inserts:
            verdict.refuse_lacking(~is_known)
        else:
            verdict.refuse(RowExists(kind=self.definition.table_key.kind, type_name=self.definition.name), ~is_known)
        rows = old.take(pa.array(np.where(is_known, row, 0), mask=~is_known))
        moved = np.zeros(len(codes), dtype=bool)
        for side in self.ends:
            if side in new.column_names:
                moved |= np.asarray(pc.fill_null(pc.not_equal(new[side], rows[side]), False))
        verdict.refuse(SameEnds(edge_type=self.definition.name), moved)
        verdict.refuse_again(refusals, names, codes)
        columns = [new["address"], *(rows[name] for name in (ROW_ID, CREATED_AT, "address"))]
        decided = pa.Table.from_arrays(columns, schema=DECIDED).filter(pa.array(verdict.is_good))
        return decided, verdict.message(number)


class _Verdict:
    """What becomes of some records."""

    def __init__(self, judge: Judge, new: Rows) -> None:
        self._judge = judge
        self._new = new
        self._keys = new["key"].combine_chunks()
        self._addresses = np.asarray(new["address"])
        #: Those that nothing is wrong with so far, and that are not superseded.
        self.is_good = np.ones(new.num_rows, dtype=bool)
        self._is_superseded = np.zeros(new.num_rows, dtype=bool)
        self._counts = ViolationCounts()
        self._rejects: list[Batch] = []

    def keep_one(self, codes: NDArray[np.int32], ids: int) -> None:
        """Of equal ids keep the first or the last record, or refuse all of them."""
        counts = np.bincount(codes, minlength=ids)[codes]
        if self._judge.duplicates is Duplicates.ERROR:
            self.refuse(DistinctIds(type_name=self._judge.definition.name), counts > 1, counts)
            return
        is_first = self._judge.duplicates is Duplicates.FIRST
        kept = np.full(ids, np.iinfo(np.int64).max if is_first else -1)
        (np.minimum if is_first else np.maximum).at(kept, codes, self._addresses)
        self._is_superseded = self._addresses != kept[codes]
        self.is_good &= ~self._is_superseded

    def refuse_lacking(self, is_new: NDArray[np.bool_]) -> None:
        """Refuse new rows without something that they need."""
        lacks = self._new[LACKS].combine_chunks()
        lacking = self.is_good & is_new & (np.asarray(pc.list_value_length(lacks)) > 0)
        some = lacks.filter(pa.array(lacking))
        places = np.flatnonzero(lacking)[np.asarray(pc.list_parent_indices(some))]
        flat = pc.list_flatten(some)
        for name in flat.unique().to_pylist():
            mask = np.zeros(len(lacking), dtype=bool)
            mask[places[np.asarray(pc.equal(flat, name))]] = True
            # A record may lack several things.
            self._add(_lacking_rule(self._judge.definition, str(name)), mask)
        self.is_good &= ~lacking

    def refuse(self, rule: Rule, mask: NDArray[np.bool_], counts: NDArray[np.int64] | None = None) -> None:
        """Refuse the good ones of some records."""
        self._add(rule, self.is_good & mask, counts)
        self.is_good &= ~mask

    def _add(self, rule: Rule, mask: NDArray[np.bool_], counts: NDArray[np.int64] | None = None) -> None:
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        chosen = chosen[np.argsort(self._addresses[chosen], kind="stable")]
        total = len(chosen)
        chosen = chosen if self._judge.keeps_bad else chosen[:MAX_EXAMPLES]
        names = texts(self._keys.take(pa.array(chosen)))
        numbers = [1] * len(names) if counts is None else counts[chosen].tolist()
        # What is missing has no value; the id says where.
        is_about_value = isinstance(rule, Required | EndGiven)
        examples = [
            Example(None, ids=(name,)) if is_about_value else Example(name, count=count)
            for name, count in zip(names, numbers, strict=True)
        ]
        found = Violation(self._judge.definition.table_key, rule, total, examples)
        pieces, records = self._judge.source.numbers(self._addresses[chosen])
        self._counts.add_all(
            replace(found, examples=examples[:MAX_EXAMPLES]),
            self._judge.source.places(pieces[:MAX_EXAMPLES], records[:MAX_EXAMPLES]),
        )
        if self._judge.keeps_bad:
            self._rejects.append(located_rejects(reason_columns(found), pieces, records))

    def refuse_again(self, refusals: Rows, names: Array, codes: NDArray[np.int32]) -> None:
        """Refuse the records of the ids of some rows that break rules between rows."""
        record = np.full(len(names), -1)
        good = np.flatnonzero(self.is_good)
        record[codes[good]] = good
        found = pc.index_in(refusals["key"].cast(pa.large_utf8()).combine_chunks(), names)
        places = np.where(np.asarray(found.is_valid()), record[np.asarray(pc.fill_null(found, 0))], -1)
        # The rows that are not about a record of the patch suffer from one that is.
        reasons = refusals.filter(pa.array(places >= 0)).combine_chunks()
        places = places[places >= 0]
        if not len(places):
            return
        pieces, records = self._judge.source.numbers(self._addresses[places])
        columns = {name: reasons[name].combine_chunks() for name in reasons.column_names if name != "key"}
        self._counts.add_rows(columns, self._judge.source.places(pieces, records))
        self._rejects.append(located_rejects(columns, pieces, records))
        self.is_good[places] = False

    def message(self, number: int) -> Message:
        """What became of the records that change nothing, as plain JSON values."""
        rejects = []
        if self._rejects:
            rejects.append(attempt_name("rejects", number))
            write_answer(self._judge.folder, rejects[0], REJECTS, self._rejects)
        superseded = int(np.count_nonzero(self._is_superseded))
        return {
            "superseded": superseded,
            "bad": int(np.count_nonzero(~self.is_good)) - superseded,
            "violations": self._counts.to_message(),
            "rejects": rejects,
        }


def _lacking_rule(definition: NodeDef | EdgeDef, name: str) -> Rule:
    if isinstance(definition, EdgeDef) and name in ("from", "to"):
        node = definition.source if name == "from" else definition.target
        return EndGiven(edge_type=definition.name, end=name, node_type=node)
    return Required(type_name=definition.name, property=name)


@frozen(kw_only=True)
class MatchedPatch:
    """The records of a patch with their rows."""

    #: In memory, or the names of files with them.
    decided: Rows | list[str]
    #: Records of rows that exist, and of rows to come.
    known: int = 0
    new: int = 0
    #: Known rows by their fragment.
    by_fragment: Mapping[int, int]
    #: Records that others of the same id replace, and bad ones.
    superseded: int = 0
    bad: int = 0
    #: What is wrong with the bad ones, and the files with all of it where they are kept.
    counts: ViolationCounts = field(default_factory=ViolationCounts)
    rejects: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All records that change something."""
        return self.known + self.new


def match_patch(
    table: Table,
    files: Sequence[PatchFile],
    judge: Judge,
    workers: Workers,
    *,
    refusals: Sequence[str],
    small_rows: int | None,
) -> MatchedPatch:
    """Find the row of each record; bad ones are left out, and of equal ids all but one.

    `refusals` are files of ids of more bad ones, with the reasons. `small_rows` says how many records this process
    compares by itself; None: any number.
    """
    folder, ends = judge.folder, judge.ends
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
        why = [pa.Table.from_batches([batch]) for name in refusals for batch in read_answer(folder, name)]
        decided, told = judge.decide(0, new, old, pa.concat_tables([REFUSALS.empty_table(), *why]))
        known, by_fragment = _counts(decided)
        counted = {"known": known, "new": decided.num_rows - known, "by_fragment": by_fragment.items()}
        return _joined(decided, [counted | told])
    parallelism = workers.parallelism
    buckets = max(parallelism, (rows + total_rows(there)) // _BUCKET_ROWS + 1)
    items: list[_Ids] = [*enumerate(files), *cut_scans(there, 2 * parallelism), *refusals]
    exchange = Exchange(
        stage="match ids",
        items=items,
        read=_ReadIds(folder, buckets),
        schema=_IDS,
        buckets=buckets,
        handle=_Decide(judge),
    )
    answers = run_exchange(exchange, workers, folder)
    return _joined([answer["name"] for answer in answers], answers)


def _joined(decided: Rows | list[str], answers: Sequence[Message]) -> MatchedPatch:
    counts = ViolationCounts()
    by_fragment: Counter[int] = Counter()
    for answer in answers:
        counts.merge(ViolationCounts.from_message(answer["violations"]))
        by_fragment.update(dict(answer["by_fragment"]))
    counts.sort()
    sums = {name: sum(int(answer[name]) for answer in answers) for name in ("known", "new", "superseded", "bad")}
    rejects = [str(name) for answer in answers for name in answer["rejects"]]
    return MatchedPatch(decided=decided, by_fragment=by_fragment, counts=counts, rejects=rejects, **sums)


def _empty() -> Rows:
    nothing: Rows = _IDS.empty_table().select(["key", "address"])
    return nothing


def _counts(decided: Rows) -> tuple[int, dict[int, int]]:
    """How many records are about rows that exist, and how many of these rows each fragment has."""
    addresses = np.asarray(decided["old_address"].drop_null())
    numbers, counts = np.unique(addresses >> 32, return_counts=True)
    return len(addresses), dict(zip(numbers.tolist(), counts.tolist(), strict=True))


#: A file of records with its number, a part of the table, or a file of refusals.
_Ids: TypeAlias = "tuple[int, PatchFile] | KeyScan | str"


@frozen
class _ReadIds:
    """Reads the ids of a file of records, of a part of the table, or of a file of refusals."""

    folder: AnswerFolder
    buckets: int

    def __call__(self, item: _Ids) -> Iterator[Batch]:
        for table in self._tables(item):
            rows = {name: table[name].combine_chunks() for name in table.column_names}
            rows[BUCKET] = hash_buckets(text_hashes(rows["key"]), self.buckets)
            columns = [rows[item.name] if item.name in rows else pa.nulls(table.num_rows, item.type) for item in _IDS]
            yield pa.RecordBatch.from_arrays(columns, schema=_IDS)

    def _tables(self, item: _Ids) -> Iterator[Rows]:
        if isinstance(item, KeyScan):
            yield from scan_keys(item)
        elif isinstance(item, str):
            yield from (pa.Table.from_batches([batch]) for batch in read_answer(self.folder, item))
        else:
            yield from patch_keys(self.folder, *item)


@frozen
class _Decide:
    """Decides about the records of one bucket of ids."""

    judge: Judge

    def __call__(self, bucket: int, rows: Rows) -> Message:
        is_refusal, is_row = rows["rule"].is_valid(), rows[ROW_ID].is_valid()
        new = rows.filter(pc.invert(pc.or_(is_refusal, is_row))).select(["key", "address", *self.judge.ends, LACKS])
        refusals = rows.filter(is_refusal).select(REFUSALS.names)
        decided, told = self.judge.decide(bucket, new, rows.filter(is_row), refusals)
        name = attempt_name("decided", bucket)
        write_answer(self.judge.folder, name, DECIDED, decided.to_batches())
        known, by_fragment = _counts(decided)
        counts = {"known": known, "new": decided.num_rows - known, "by_fragment": list(by_fragment.items())}
        return {"name": name, "rows": rows.num_rows, **counts, **told}
