"""Text conditions of a query, and where the terms of a text column come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256

from omnigraph.core.arrow import Array, pa
from omnigraph.engine.rows import IntArray, read_batches
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import Entities
from omnigraph.engine.tables.text_analysis import ANALYSIS_VERSION, analyse_query, query_terms
from omnigraph.engine.tables.text_columns import (
    NO_ROWS,
    SEGMENT_ROWS,
    LiveSegment,
    Segments,
    TextColumn,
    build_segment,
    close_rows,
    pack_segments,
    tokenize,
    unpack_segments,
)
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import value_of
from omnigraph.storage.datasets.reads import ColumnPart, column_parts, part_row_ids, scan_column_part
from omnigraph.storage.derived import text_group_name

# ---- Sources of the terms of a column: memory, a file mapped from disk, or one scan of the texts
#
# They are kept per fragment and follow from its file alone, so a commit costs the analysis of the rows that it wrote.


#: Words of a text, about: analysing texts is work per word.
TEXT_WORDS = 64
#: Fewer texts are analysed faster than their terms are found on disk.
PERSIST_MIN_ROWS = 4096


def find_text_column(context: Context, entities: Entities, column: str) -> TextColumn:
    """The terms of a column at the snapshot; those of large fragments are kept on disk."""
    key = (entities.fingerprint, column)
    return context.caches.text_columns.get_or_build(
        key, lambda: _assemble(context, entities, column), context.budget.check
    )


def keep_text_column(context: Context, entities: Entities, column: str) -> None:
    """Analyse a column and keep its terms on disk, if it is large enough to be worth it."""
    if entities.row_count >= PERSIST_MIN_ROWS:
        find_text_column(context, entities, column)


def is_text_ready(context: Context, entities: Entities, column: str) -> bool:
    """Whether no text of a column has to be analysed, apart from what is done at once."""
    caches = context.caches
    if caches.text_columns.get((entities.fingerprint, column)) is not None:
        return True
    return all(
        part.physical_rows < PERSIST_MIN_ROWS
        or caches.text_segments.get(part.values) is not None
        or any(caches.derived.has(group, _name(part)) for group in _groups(entities))
        for part in column_parts(entities.table, column)
    )


def _assemble(context: Context, entities: Entities, column: str) -> TextColumn:
    caches = context.caches
    parts = column_parts(entities.table, column)
    live: list[LiveSegment] = []
    budget = context.budget
    for part in budget.steps(parts):
        segments = caches.text_segments.get_or_build(
            part.values, partial(_load_or_build, context, entities, column, part, parts), budget.check
        )
        read = partial(part_row_ids, entities.table, part)
        row_ids = caches.part_rows.get_or_build(
            part.rows, partial(budget.patiently, read, part.physical_rows), budget.check
        )
        for number, segment in enumerate(segments.items):
            start = number * SEGMENT_ROWS
            live.append(LiveSegment(segment, row_ids[start : start + SEGMENT_ROWS]))
    return TextColumn(live)


def _load_or_build(
    context: Context, entities: Entities, column: str, part: ColumnPart, parts: Sequence[ColumnPart]
) -> Segments:
    is_large = part.physical_rows >= PERSIST_MIN_ROWS
    found = _load(context, entities, part) if is_large else None
    if found is None:
        budget = context.budget
        built = tuple(
            budget.patiently(partial(build_segment, texts), len(texts) * TEXT_WORDS)
            for texts in _texts(context, entities, column, part)
        )
        found = Segments(built, is_mapped=False)
        if is_large and context.is_head:
            own, *_ = _groups(entities)
            names = {_name(item) for item in parts}
            context.caches.derived.save(
                own,
                _name(part),
                pack_segments(built),
                replaces=lambda name: name.startswith(_prefix(part)) and name not in names,
            )
    return found


def _texts(context: Context, entities: Entities, column: str, part: ColumnPart) -> Iterator[Array]:
    """The texts of a part, as many at a time as a segment has."""
    held: list[Array] = []
    count = 0
    scanned = scan_column_part(entities.table, column, part, SEGMENT_ROWS)
    for batch in read_batches(context.budget, scanned, entities.row_count):
        array = batch.column(0)
        while count + len(array) >= SEGMENT_ROWS:
            taken = SEGMENT_ROWS - count
            yield pa.concat_arrays([*held, array.slice(0, taken)])
            held, count, array = [], 0, array.slice(taken)
        held.append(array)
        count += len(array)
    if count:
        yield pa.concat_arrays(held)


def _groups(entities: Entities) -> list[str]:
    """The groups that may have terms of a table: its own, and for a fork that of the main line as well."""
    table = entities.table
    return [text_group_name(table.path, name) for name in dict.fromkeys((table.branch, None))]


def _prefix(part: ColumnPart) -> str:
    return f"{part.field_id}-"


def _name(part: ColumnPart) -> str:
    identity = f"{ANALYSIS_VERSION}/{SEGMENT_ROWS}/{part.values}"
    return f"{_prefix(part)}{sha256(identity.encode()).hexdigest()[:24]}"


def _load(context: Context, entities: Entities, part: ColumnPart) -> Segments | None:
    for group in _groups(entities):
        arrays = context.caches.derived.load(group, _name(part))
        if arrays is None:
            continue
        found = unpack_segments(arrays)
        if found is not None and sum(len(item.lengths) for item in found) == part.physical_rows:
            return Segments(found, is_mapped=True)
        # Its checksums are right: something else than a search wrote it.
        context.caches.derived.forget(group, _name(part))
    return None


# ---- Text conditions: which rows of a type match


def text_matches(context: Context, condition: ir.TextMatch) -> IntArray:
    """The sorted row ids of all rows that match."""
    key = (context.tables[condition.field.variable], condition)
    known = context.matches.get(key)
    if known is None:
        known = context.matches[key] = _find(context, condition)
    return known


def _find(context: Context, condition: ir.TextMatch) -> IntArray:
    text = value_of(condition.query, context.values)
    if not isinstance(text, str):
        return NO_ROWS
    entities = context.entities(condition.field.variable)
    column = condition.field.property
    match condition.kind:
        case ir.TextKind.SEARCH:
            texts = find_text_column(context, entities, column)
            return texts.rows_with_any(query_terms(text), context.budget)
        case ir.TextKind.MATCH_TEXT:
            texts = find_text_column(context, entities, column)
            return texts.rows_with_phrase(analyse_query(text), context.budget)
        case ir.TextKind.FUZZY:
            edits = ir.FUZZY_DEFAULT_EDITS
            if condition.edits is not None:
                given = value_of(condition.edits, context.values)
                if not isinstance(given, int):
                    return NO_ROWS
                edits = given
            key = (entities.fingerprint, column)
            budget = context.budget
            tokens = context.caches.tokens.get_or_build(
                key,
                lambda: budget.patiently(lambda: tokenize(entities, column), entities.row_count * TEXT_WORDS),
                budget.check,
            )
            return close_rows(tokens, text, edits, budget)
