"""Questions about keys, answered in this process: the few ways in which rows of different tables are compared.

The side that a load brings is held in memory; the other one streams by. `spark.joins` answers the same questions
for any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.core.arrow import Rows, pa, pc
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.lang.schema.rules import Example
from omnigraph.pipeline.keys import KeyScan, find_keys, first_members, scan_keys
from omnigraph.writes.rules import Found

_EMPTY = pa.table({"key": pa.array([], pa.utf8()), "address": pa.array([], pa.int64())})


class Joins:
    """Key lookups of a load, answered in memory. Scans of the first argument are what the load brings."""

    def duplicated(self, rows: Sequence[KeyScan], owner: str | None = None) -> Found:
        """Keys that several rows have: each row beyond the first of its key counts.

        With the column of an owner: keys that several owners have. Each owner beyond the first counts, and the rows
        are the first of each.
        """
        found = _repeated(_keys(rows))
        if owner is None or not found.total:
            return found
        # Owners are read only when there is something to tell.
        return _repeated(_first_of_owners(_keys(owned(rows, owner), owner), owner))

    @override
    def shared(self, rows: Sequence[KeyScan], others: Sequence[KeyScan], owner: str | None = None) -> Found:
        """Rows whose key some other row has; the addresses are of the row and of the other one.

        With the column of an owner: rows whose key an other row of another owner has. All of them count, the first of
        each owner are examples.
        """
        mine = _keys(rows)
        wanted = mine["key"].combine_chunks()
        firsts = first_members(rows)
        pieces = [t.select(["key", "address"]) for t in find_keys(others, wanted, firsts)]
        if not pieces:
            return Found()
        theirs = pa.concat_tables(pieces)
        other_of = dict(zip(theirs["key"].to_pylist(), theirs["address"].to_pylist(), strict=True))
        bad = mine.filter(pc.is_in(mine["key"], pa.array(list(other_of), pa.utf8())))
        if owner is not None and bad.num_rows:
            found = list(find_keys(owned(others, owner), wanted, firsts))
            return _of_others(_keys(owned(rows, owner), owner), pa.concat_tables(found), owner)
        shown = bad.sort_by([("key", "ascending"), ("address", "ascending")]).slice(0, MAX_EXAMPLES).to_pylist()
        return Found(bad.num_rows, [Example(row["key"], (row["address"], other_of[row["key"]])) for row in shown])

    @override
    def missing(self, references: Sequence[KeyScan], ids: Sequence[KeyScan]) -> Found:
        """Rows whose key is none of the ids."""
        mine = _keys(references)
        left = wanted = pa.array(mine["key"].unique(), pa.utf8())
        for table in find_keys(ids, wanted, wanted):
            left = left.filter(pc.invert(pc.is_in(left, table["key"].combine_chunks())))
            if not len(left):
                return Found()
        return _first_rows(mine.filter(pc.is_in(mine["key"], left)))

    @override
    def named(self, rows: Sequence[KeyScan], keys: Sequence[str]) -> Found:
        """Rows whose key is one of the given ones. Here the keys are what is brought; the rows are a table's."""
        wanted = pa.array(list(keys), pa.utf8())
        pieces = [t.select(["key", "address"]) for t in find_keys(rows, wanted, wanted)]
        return _first_rows(pa.concat_tables([_EMPTY, *pieces]))

    @override
    def outside(
        self,
        counted: Sequence[KeyScan],
        touched: Sequence[KeyScan],
        low: int,
        high: int | None,
        more: Sequence[str] = (),
    ) -> Found:
        """Touched keys whose number of counted rows is not between the bounds; keys without any row are exempt."""
        keys = pa.concat_arrays([_keys(touched)["key"].combine_chunks(), pa.array(list(more), pa.utf8())]).unique()
        pieces = [t.select(["key", "address"]) for t in find_keys(counted, keys, keys)]
        rows = pa.concat_tables([_EMPTY, *pieces])
        counts = rows.group_by("key").aggregate([("address", "count"), ("address", "max")])
        bad_mask = pc.less(counts["address_count"], low)
        if high is not None:
            bad_mask = pc.or_(bad_mask, pc.greater(counts["address_count"], high))
        bad = counts.filter(bad_mask).sort_by("key")
        examples = [
            Example(row["key"], (row["address_max"],), row["address_count"])
            for row in bad.slice(0, MAX_EXAMPLES).to_pylist()
        ]
        return Found(bad.num_rows, examples)


def row_examples(rows_of: Mapping[str, Sequence[int]], other_of: Mapping[str, int] | None = None) -> list[Example]:
    """Rows that have one of some keys, as examples: the first rows, or by key where each has a counterpart."""
    rows = [(address, key) for key, some in rows_of.items() for address in some]
    if other_of is None:
        return [Example(key, (address,)) for address, key in sorted(rows)[:MAX_EXAMPLES]]
    rows.sort(key=lambda row: (row[1], row[0]))
    return [Example(key, (address, other_of[key])) for address, key in rows[:MAX_EXAMPLES]]


def owned(scans: Sequence[KeyScan], owner: str) -> list[KeyScan]:
    """The same rows with the column of their owner."""
    return [replace(scan, extra=(owner,)) for scan in scans]


def _repeated(table: Rows) -> Found:
    """Keys that several rows have; each row beyond the first counts."""
    grouped = table.group_by("key").aggregate([("address", "count")])
    several = grouped.filter(pc.greater(grouped["address_count"], 1))
    total = pc.sum(pc.subtract(several["address_count"], 1)).as_py() or 0
    examples = []
    for row in several.sort_by("key").slice(0, MAX_EXAMPLES).to_pylist():
        first = table.filter(pc.equal(table["key"], row["key"])).sort_by("address").slice(0, MAX_EXAMPLES)
        addresses = tuple(one["address"] for one in first.to_pylist())
        examples.append(Example(row["key"], addresses, row["address_count"]))
    return Found(total, examples)


def _first_of_owners(rows: Rows, owner: str) -> Rows:
    """The first row of each owner of a key."""
    found = rows.group_by(["key", owner]).aggregate([("address", "min")])
    return found.select(["key", "address_min", owner]).rename_columns(["key", "address", owner])


def _of_others(mine: Rows, theirs: Rows, owner: str) -> Found:
    """Rows whose key belongs to another owner among the other rows."""
    first = _first_of_owners(theirs, owner)
    joined = mine.join(first.rename_columns(["key", "other", "other_owner"]), "key", join_type="inner")
    bad = joined.filter(pc.not_equal(joined[owner], joined["other_owner"]))
    total = pc.count_distinct(bad["address"]).as_py()
    shown = bad.group_by(["key", owner]).aggregate([("address", "min"), ("other", "min")])
    shown = shown.sort_by([("key", "ascending"), ("address_min", "ascending")]).slice(0, MAX_EXAMPLES)
    return Found(total, [Example(row["key"], (row["address_min"], row["other_min"])) for row in shown.to_pylist()])


def _first_rows(rows: Rows) -> Found:
    """All rows are violations; the first by address are shown."""
    shown = rows.sort_by("address").slice(0, MAX_EXAMPLES).to_pylist()
    return Found(rows.num_rows, [Example(row["key"], (row["address"],)) for row in shown])


def _keys(scans: Sequence[KeyScan], *extra: str) -> Rows:
    names = ["key", "address", *extra]
    found: Rows = pa.concat_tables([t.select(names) for scan in scans for t in scan_keys(scan)] or [_EMPTY])
    return found
