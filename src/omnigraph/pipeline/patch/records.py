"""Records of a patch → columns of a patch file: which row each is about, and the properties that it changes.

What a record brings is read and judged as in every load. What it leaves out is neither required nor null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.arrow import Array, arrow_type, has_text, pa, pc
from omnigraph.core.types import VectorType
from omnigraph.lang.schema.catalog import EDGE_ENDS, EmbeddedVector
from omnigraph.pipeline.keys import generated_ids
from omnigraph.pipeline.patch.files import LACKS, brought_column
from omnigraph.pipeline.shape.columns import positions
from omnigraph.pipeline.shape.embedding import TextEmbedder
from omnigraph.pipeline.shape.plan import LoadPlan
from omnigraph.pipeline.shape.shaping import (
    RawRecords,
    Shaped,
    apply_rule,
    compare_ids,
    embedded_rows,
    end_values,
    id_texts,
    ids_of_keys,
    property_values,
)
from omnigraph.pipeline.violations import Sink

if TYPE_CHECKING:
    from numpy.typing import NDArray


def shape_patch(
    raw: RawRecords,
    plan: LoadPlan,
    *,
    source: str,
    part: int,
    first_row: int,
    sink: Sink = None,
    embedder: TextEmbedder | None = None,
) -> Shaped:
    """The columns of some records; `first_row` counts the records of the type before them in the part.

    Where the plan embeds, a text that comes without its vector brings one; no text takes it away, if it may be null.
    """
    judge = Shaped(raw, plan, source, sink)
    brought = {name: raw.brings(name) for name in raw.shape.definition.properties if name in raw.columns}
    values = {name: property_values(name, judge, mask) for name, mask in brought.items()}
    for rule in raw.shape.value_rules:
        if rule.property in values:
            apply_rule(rule, values[rule.property], judge)
    wanted = {}
    for vector in raw.shape.vectors:
        if vector.source in values:
            wanted[vector] = _bring_vector(vector, values, brought)
    ends = _ends(judge)
    columns = {"id": _ids(ends | values, judge, (part, first_row)), **ends, **values}
    columns |= {brought_column(name): pa.array(mask) for name, mask in brought.items()}
    if plan.inserts_unknown:
        columns[LACKS] = _lacking(columns, brought, raw, {item.property: mask for item, mask in wanted.items()})
    rows = pa.table(columns)
    judge.bad_ids = pa.nulls(0, pa.utf8())
    if judge.bad.any():
        judge.count_bad()
        rows, judge.lines = rows.filter(pa.array(~judge.bad)), judge.lines[~judge.bad]
    judge.rows = embedded_rows(rows, wanted, judge, embedder)
    return judge


def _bring_vector(
    vector: EmbeddedVector, values: dict[str, Array], brought: dict[str, NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Let records that bring a text, and not its vector, bring both; those of them that get a vector."""
    count = len(values[vector.source])
    values.setdefault(vector.property, pa.nulls(count, arrow_type(VectorType(vector.dimension))))
    mine = brought.setdefault(vector.property, np.zeros(count, dtype=bool))
    without = brought[vector.source] & ~mine
    wanted: NDArray[np.bool_] = without & np.asarray(has_text(values[vector.source]))
    brought[vector.property] = mine | (without if vector.is_nullable else wanted)
    return wanted


def _ends(judge: Shaped) -> dict[str, Array]:
    """The ends that records of edges give; they are compared, not changed."""
    raw = judge.raw
    if raw.ends is None or raw.shape.ends is None:
        return {}
    sides = zip(EDGE_ENDS, ("from", "to"), raw.ends, raw.shape.ends, strict=True)
    return {side: end_values(name, given, end, judge) for side, name, given, end in sides}


def _ids(values: Mapping[str, Array], judge: Shaped, place: tuple[int, int]) -> Array:
    """The id of the row that each record is about: given, or made of its key."""
    raw, shape = judge.raw, judge.raw.shape
    given: Array = pa.nulls(raw.count, pa.utf8())
    if raw.ids is not None:
        given = id_texts(raw.ids, "id", judge, shape.key_bases)
    if not shape.key_members:
        if judge.plan.inserts_unknown:
            filled: Array = pc.coalesce(given, generated_ids(judge.plan.id_prefix, *place, raw.count))
            return filled
        _refuse_nameless(given, judge, f"missing id of {shape.name}", "give its `id`")
        return given
    ends = {} if shape.ends is None else dict(zip(EDGE_ENDS, ("from", "to"), strict=True))
    members = [name for name in shape.key_members if name in values]
    if len(members) == len(shape.key_members):
        derived = ids_of_keys(values, shape)
        compare_ids(given, derived, judge)
    else:
        derived = pa.nulls(raw.count, pa.utf8())
    # Ends beside an id are compared with those of the row.
    _refuse_half_keys([values[name] for name in members if name not in ends], given, derived, judge)
    found: Array = pc.coalesce(derived, given)
    key = ", ".join(ends.get(name, name) for name in shape.key_members)
    _refuse_nameless(found, judge, f"missing key of {shape.name}", f"give its key ({key}) or its `id`")
    return found


def _refuse_nameless(ids: Array, judge: Shaped, rule: str, advice: str) -> None:
    for position in positions(ids.is_null()) if ids.null_count else ():
        if not judge.bad[position]:
            text = f"{rule}: nothing says which {judge.raw.shape.name} the record is about: {advice}"
            judge.refuse(position, rule, "id", None, text)


def _refuse_half_keys(members: Sequence[Array], given: Array, derived: Array, judge: Shaped) -> None:
    """A part of a key beside an id: nothing could tell whether they belong together."""
    name = judge.raw.shape.name
    for column in members:
        half = pc.and_(pc.and_(given.is_valid(), derived.is_null()), column.is_valid())
        for position in positions(half):
            rule = f"id of {name} is not its key"
            text = f"{rule}: the record has the id {given[position].as_py()!r} and a part of the key: give one of them"
            judge.refuse(position, rule, "id", given[position].as_py(), text)


def _lacking(
    columns: Mapping[str, Array],
    brought: Mapping[str, NDArray[np.bool_]],
    raw: RawRecords,
    made: Mapping[str, NDArray[np.bool_]],
) -> Array:
    """What each record lacks to be a row of its own; some get values that are `made` for them."""
    nothing = np.ones(raw.count, dtype=bool)
    lacking: dict[str, NDArray[np.bool_]] = {}
    for name, item in raw.shape.definition.properties.items():
        if not item.type.nullable:
            lacking[name] = nothing
            if name in brought:
                lacking[name] = ~brought[name] | columns[name].is_null().to_numpy(zero_copy_only=False)
            if name in made:
                lacking[name] = lacking[name] & ~made[name]
    if raw.shape.ends is not None:
        for side, name in (("src", "from"), ("dst", "to")):
            missing = nothing
            if side in columns:
                missing = columns[side].is_null().to_numpy(zero_copy_only=False)
            lacking[name] = missing
    if not lacking:
        whole: Array = pa.array([[]] * raw.count, pa.list_(pa.utf8()))
        return whole
    table = np.column_stack(list(lacking.values()))
    names = pa.array(list(lacking), pa.utf8()).take(pa.array(np.nonzero(table)[1]))
    offsets = np.concatenate([[0], np.cumsum(table.sum(axis=1))]).astype(np.int32)
    found: Array = pa.ListArray.from_arrays(pa.array(offsets), names)
    return found
