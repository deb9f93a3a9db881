"""The identify stage of a merge: which new rows replace which old ones, and which are replaced by later ones.

A replaced row keeps its row id: the fragment that brings its successor is written again, with those rows apart, and the
fragment that held it gets a deletion mark. Fragments without either stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.keys import find_keys, key_scans, scan_keys, text_key
from omnigraph.pipeline.progress import Silent
from omnigraph.pipeline.workers import LocalWorkers
from omnigraph.storage.fragments import delete_offsets, fragment_rows, write_replacing
from omnigraph.storage.ledgers import Ledger
from omnigraph.storage.partitions import open_address, scan_fragments, table_address
from omnigraph.storage.row_columns import CREATED_AT, ROW_ID
from omnigraph.storage.row_ids import KeptIds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.private import PrivateVersion
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

_OFFSET_MASK = 0xFFFFFFFF
_IN_PROCESS_ROWS = 500_000


class LoadMode(StrEnum):
    """What a load does with rows that exist."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a merge does to one table."""

    #: Fragments that are committed, as JSON.
    fragments: tuple[str, ...]
    #: Old fragment → what is left of it.
    shrunk: Mapping[int, str | None]
    #: Fragments that were written again and are not needed any more.
    discarded: tuple[str, ...]
    #: Records of the input that a later one replaced.
    superseded: int
    #: Sources of the old edges that are replaced.
    old_sources: Sequence[str] = ()
    #: The attempts of tasks that wrote all of this.
    ledgers: frozenset[str] = frozenset()


class Matcher(Protocol):
    """Finds out what a merge replaces."""

    def merge(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Merged:
        """Decide about all new rows; `fragments` are those of the staged version, in order.

        `with_sources` also finds the sources of replaced edges, for a rule that counts edges per source. Tasks note in
        `ledgers` what they write, so that nothing stays when this fails.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteItem:
    """One fragment of new rows that has to be written again."""

    staged: TableAddress
    target: TableAddress
    fragment: int
    #: Positions of rows that replace an old row, and the ids that they keep.
    matched: NDArray[np.int64]
    kept: KeptIds
    #: Positions of rows that a later record replaced.
    dropped: NDArray[np.int64]
    ledgers: AnswerFolder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkItem:
    """Rows of one old fragment that are replaced."""

    target: TableAddress
    fragment: int
    offsets: NDArray[np.int64]
    ledgers: AnswerFolder | None = None


def rewrite_fragment(item: RewriteItem) -> Message:
    """Write a fragment again: replacing rows in the order of their ids, then new ones, without superseded ones."""
    target = open_address(item.target)
    names = [field_.name for field_ in target.schema]
    rows = pa.Table.from_batches(list(scan_fragments(item.staged, [item.fragment], names)))
    is_new = np.ones(rows.num_rows, dtype=bool)
    is_new[item.matched] = False
    is_new[item.dropped] = False
    order = np.argsort(item.kept.row_ids)
    written = write_replacing(
        target,
        rows.take(pa.array(item.matched[order])).combine_chunks(),
        rows.take(pa.array(np.flatnonzero(is_new))).combine_chunks(),
        KeptIds(item.kept.row_ids[order], item.kept.created[order]),
    )
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, written)
    count = len(item.matched) + int(np.count_nonzero(is_new))
    return {"fragments": written, "rows": count, "ledger": ledger.name}


def shrink_fragment(item: ShrinkItem) -> Message:
    """Mark the replaced rows of an old fragment."""
    target = open_address(item.target)
    left = delete_offsets(target, item.fragment, item.offsets)
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, [left])
    return {
        "fragment": item.fragment,
        "left": left,
        "rows": len(item.offsets),
        "ledger": ledger.name,
    }


@dataclass(frozen=True, slots=True)
class RowsOfFragment:
    """Rows of one fragment in their order, and where they were among all that were given."""

    offsets: NDArray[np.int64]
    places: NDArray[np.int64]


_NO_ROWS = RowsOfFragment(np.empty(0, np.int64), np.empty(0, np.int64))


class LocalMatcher:
    """Decides in this process: the ids of the load are held in memory, those of the table stream by."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def merge(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Merged:
        """As `Matcher.merge`."""
        new = _concatenated(
            scan_keys(scan)
            for scan in key_scans(staged.table, staged.new_fragments, text_key("id"))
        )
        last = new.group_by("key").aggregate([("address", "max")])
        superseded = new.num_rows - last.num_rows
        dropped: dict[int, RowsOfFragment] = {}
        if superseded:
            is_last = pc.is_in(new["address"], last["address_max"].combine_chunks())
            dropped = by_fragment(new.filter(pc.invert(is_last))["address"])
        old = self._matches(base, last["key"].combine_chunks(), with_sources=with_sources)
        joined = last.join(old, "key", join_type="inner")
        target = table_address(base)
        items = self._rewrites(staged, target, joined, dropped, ledgers)
        rows = sum(fragment_rows(text) for text in fragments)
        answers = self._choose(rows).run("replace rows", rewrite_fragment, items)
        rewritten = {item.fragment: answer for item, answer in zip(items, answers, strict=True)}
        marked = self._shrink(target, joined["address"], ledgers)
        kept: list[str] = []
        discarded: list[str] = []
        for number, text in zip(staged.new_fragments, fragments, strict=True):
            if number in rewritten:
                kept += rewritten[number]["fragments"]
                discarded.append(text)
            else:
                kept.append(text)
        sources = joined["src"].unique().to_pylist() if with_sources else []
        return Merged(
            fragments=tuple(kept),
            shrunk={answer["fragment"]: answer["left"] for answer in marked},
            discarded=tuple(discarded),
            superseded=superseded,
            old_sources=tuple(sources),
            ledgers=frozenset(answer["ledger"] for answer in (*rewritten.values(), *marked)),
        )

    def _choose(self, rows: int) -> Workers:
        """Little work is done here: handing it out would take longer."""
        return LocalWorkers(Silent()) if rows <= _IN_PROCESS_ROWS else self._workers

    def _matches(self, base: Table, ids: Any, *, with_sources: bool) -> Any:
        """Old rows with one of the ids: key, address, row id and creation, for edges their source too."""
        extra = (ROW_ID, CREATED_AT, "src") if with_sources else (ROW_ID, CREATED_AT)
        scans = key_scans(base, None, text_key("id"), extra=extra)
        pieces = list(find_keys(scans, ids, ids))
        fields = [("key", pa.utf8())]
        fields += [(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT)]
        if with_sources:
            fields.append(("src", pa.utf8()))
        return pa.concat_tables([pa.schema(fields).empty_table(), *pieces])

    def _rewrites(
        self,
        staged: PrivateVersion,
        target: TableAddress,
        joined: Any,
        dropped: Mapping[int, RowsOfFragment],
        ledgers: AnswerFolder,
    ) -> list[RewriteItem]:
        """Fragments of new rows that replace old ones, or were replaced by later records."""
        source = table_address(staged.table)
        matched = by_fragment(joined["address_max"])
        row_ids, created = _unsigned(joined[ROW_ID]), _unsigned(joined[CREATED_AT])
        items = []
        for number in staged.new_fragments:
            if number in matched or number in dropped:
                rows = matched.get(number, _NO_ROWS)
                item = RewriteItem(
                    staged=source,
                    target=target,
                    fragment=number,
                    matched=rows.offsets,
                    kept=KeptIds(row_ids[rows.places], created[rows.places]),
                    dropped=dropped.get(number, _NO_ROWS).offsets,
                    ledgers=ledgers,
                )
                items.append(item)
        return items

    def _shrink(self, target: TableAddress, addresses: Any, ledgers: AnswerFolder) -> list[Message]:
        items = shrink_items(target, addresses, ledgers)
        workers = self._choose(len(addresses))
        return workers.run("mark replaced rows", shrink_fragment, items)


def shrink_fragments(
    target: TableAddress, addresses: Any, ledgers: AnswerFolder | None
) -> list[Message]:
    """Mark the replaced rows at these addresses, one fragment after the other."""
    return [shrink_fragment(item) for item in shrink_items(target, addresses, ledgers)]


def shrink_items(
    target: TableAddress, addresses: Any, ledgers: AnswerFolder | None
) -> list[ShrinkItem]:
    """The replaced rows at these addresses, by the fragment that they lie in."""
    return [
        ShrinkItem(target=target, fragment=number, offsets=rows.offsets, ledgers=ledgers)
        for number, rows in by_fragment(addresses).items()
    ]


def by_fragment(addresses: Any) -> dict[int, RowsOfFragment]:
    """Addresses of rows as positions within their fragments."""
    numbers = np.asarray(addresses, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    cuts = np.flatnonzero(np.diff(numbers >> 32)) + 1
    return {
        int(part[0] >> 32): RowsOfFragment(part & _OFFSET_MASK, places)
        for part, places in zip(np.split(numbers, cuts), np.split(order, cuts), strict=True)
        if len(part)
    }


def _unsigned(column: Any) -> NDArray[np.uint64]:
    return np.asarray(column, dtype=np.uint64)


def _concatenated(streams: Any) -> Any:
    empty = pa.table({"key": pa.array([], pa.utf8()), "address": pa.array([], pa.int64())})
    return pa.concat_tables([empty, *(table for stream in streams for table in stream)])
