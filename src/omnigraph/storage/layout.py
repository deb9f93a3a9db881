"""Which fragments of a table are worth being written anew: pure decisions, and the facts that they need."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.storage.failures import translated
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import parse_location
from omnigraph.storage.row_ids import has_long_sequences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.storage.tables import Table

#: Rows of a fragment as compaction likes it.
TARGET_ROWS = 1_048_576
#: In a table of at most so many rows all indexes are built anew in a moment, so everything may be written anew.
SMALL_TABLE_ROWS = 262_144
#: Small fragments with indexes that a large table may have: exchanging one of them costs its indexes a full build.
MAX_INDEXED_FRAGMENTS = 8
#: A fragment is worn when one row in so many is deleted.
WORN_SHARE = 10
#: A fold takes an older fragment only when it has at most so many times the rows of all newer ones together: every row
#: is then written anew a few times only, however many folds there are.
_FOLD_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentFacts:
    """What decides about one fragment."""

    number: int
    #: Rows that are not deleted.
    rows: int
    deleted: int
    size_bytes: int
    #: Whether any index covers it.
    is_indexed: bool
    #: Whether the ids of its rows make the manifest large: earlier releases left them there.
    has_long_ids: bool = False

    @property
    def is_worn(self) -> bool:
        """Whether so many rows are deleted, or so many ids are in the manifest, that writing it anew pays."""
        is_holed = self.deleted * WORN_SHARE >= self.rows + self.deleted and self.deleted > 0
        return is_holed or self.has_long_ids


def newest_rows(table: Table, fragments: int) -> int | None:
    """How many rows the newest so many fragments hold; None when there are fewer. Looks at metadata in memory only."""
    with translated(f"looking at the fragments of {table.path}"):
        newest = table._dataset.get_fragments()[-fragments:]
        if len(newest) < fragments:
            return None
        return sum(fragment.metadata.num_rows for fragment in newest)


def fragment_facts(table: Table, *, with_blobs: bool = False) -> list[FragmentFacts]:
    """The fragments of a table, in storage order; looks at metadata only.

    Large blobs lie beside the data files, and no metadata knows their size: `with_blobs` lists them.
    """
    blobs = _blob_bytes(table) if with_blobs and table.blob_columns else {}
    with translated(f"looking at the fragments of {table.path}"):
        indexed = {
            number
            for index in table._dataset.describe_indices()
            for segment in index.segments
            for number in segment.fragment_ids
        }
        found = []
        for fragment in table._dataset.get_fragments():
            metadata = fragment.metadata
            found.append(
                FragmentFacts(
                    number=fragment.fragment_id,
                    rows=metadata.num_rows,
                    deleted=metadata.num_deletions,
                    size_bytes=sum(
                        (file.file_size_bytes or 0) + blobs.get(Path(file.path).stem, 0)
                        for file in metadata.files
                    ),
                    is_indexed=fragment.fragment_id in indexed,
                    has_long_ids=has_long_sequences(metadata),
                )
            )
        return found


def _blob_bytes(table: Table) -> dict[str, int]:
    """The size of the blobs beside each data file, by the stem of its name."""
    found: dict[str, int] = defaultdict(int)
    for file in list_files(parse_location(table._dataset.uri), "data"):
        folder, _, _ = file.name.removeprefix("data/").rpartition("/")
        if folder:
            found[folder.partition("/")[0]] += file.size_bytes
    return found


def choose_rewrites(
    fragments: Sequence[FragmentFacts], *, target_rows: int = TARGET_ROWS
) -> list[tuple[int, ...]]:
    """Groups of neighbouring fragments that become one fragment each; asking again afterwards gives none.

    A fragment with less than half of the target joins its neighbours. One that an index covers is spared in a large
    table, until there are many of them or one of them is worn: then all indexes are built anew, and all take part.
    """
    small_rows = target_rows // 2
    takes_indexed = _takes_indexed(fragments, small_rows, min(SMALL_TABLE_ROWS, target_rows))

    def takes_part(fragment: FragmentFacts) -> bool:
        if fragment.is_indexed and not takes_indexed:
            return False
        return fragment.rows < small_rows or fragment.is_worn

    groups: list[list[FragmentFacts]] = [[]]
    held = 0
    for fragment in fragments:
        if not takes_part(fragment):
            groups.append([])
            held = 0
            continue
        if groups[-1] and held + fragment.rows > target_rows:
            # Two neighbours that do not fit into one fragment: the first is more than half full.
            groups.append([])
            held = 0
        groups[-1].append(fragment)
        held += fragment.rows
    return [_numbers(group) for group in groups if len(group) > 1 or _has_worn(group)]


def choose_fold(
    fragments: Sequence[FragmentFacts], *, more_than: int, max_rows: int, max_bytes: int
) -> tuple[int, ...]:
    """The newest fragments that no index covers, when there are more than so many; otherwise nothing.

    The work is bounded by rows and bytes, and fragments that an index covers stay: nothing else has to change.
    """
    taken: list[FragmentFacts] = []
    rows = size = 0
    for fragment in reversed(fragments):
        if fragment.is_indexed or rows + fragment.rows > max_rows:
            break
        if size + fragment.size_bytes > max_bytes:
            break
        if len(taken) >= more_than and fragment.rows > _FOLD_GROWTH * rows:
            break
        taken.append(fragment)
        rows += fragment.rows
        size += fragment.size_bytes
    return _numbers(reversed(taken)) if len(taken) > more_than else ()


def _takes_indexed(
    fragments: Sequence[FragmentFacts], small_rows: int, small_table_rows: int
) -> bool:
    if sum(fragment.rows for fragment in fragments) <= small_table_rows:
        return True
    indexed = [fragment for fragment in fragments if fragment.is_indexed]
    small = sum(1 for fragment in indexed if fragment.rows < small_rows)
    # The new fragments become one small fragment with indexes in this very run.
    coming = any(not item.is_indexed and item.rows < small_rows for item in fragments)
    return small + coming >= MAX_INDEXED_FRAGMENTS or _has_worn(indexed)


def _has_worn(fragments: Iterable[FragmentFacts]) -> bool:
    return any(fragment.is_worn for fragment in fragments)


def _numbers(fragments: Iterable[FragmentFacts]) -> tuple[int, ...]:
    return tuple(fragment.number for fragment in fragments)
