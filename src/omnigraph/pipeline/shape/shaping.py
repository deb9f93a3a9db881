"""Records of one type → rows of its table: types, required values, rules of values, ids. Columns in, columns out.

A record with any problem is left out and counted; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, Rows, arrow_type, pa, pc, stored_values
from omnigraph.core.ids import TableKey, derive_id, split_id
from omnigraph.core.types import BaseType, EnumType, PropertyType, Scalar, ScalarType
from omnigraph.core.values import parse_spelling
from omnigraph.lang.schema.catalog import EmbeddedVector
from omnigraph.lang.schema.rules import EndGiven, Example, Required, ValueRule, rule_field, rule_name, violation_text
from omnigraph.pipeline.keys import derived_ids, generated_ids, spelled
from omnigraph.pipeline.shape.columns import fast_column, positions, python_values, slow_column, stored_column
from omnigraph.pipeline.shape.embedding import TextEmbedder, filled, lacking
from omnigraph.pipeline.shape.plan import (
    EndType,
    EntityShape,
    LoadPlan,
    cell_values,
    external_texts,
    is_cell_parts,
    with_external,
)
from omnigraph.pipeline.shape.transforms import Given, MappedColumn, read_mapped
from omnigraph.pipeline.shape.values import AS_IS, Reading, Tolerance
from omnigraph.pipeline.violations import Place, Sink, ViolationCounts, shown
from omnigraph.writes.columns import table_schema
from omnigraph.writes.pending import check_cells
from omnigraph.writes.rules import shown_values, violating

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A column of ids, or columns of key members by name.
End: TypeAlias = "Given | MappedColumn | Mapping[str, Given | MappedColumn]"
_STRING = PropertyType(base=ScalarType(Scalar.STRING), nullable=True)
_BLOB = ScalarType(Scalar.BLOB)


@dataclass(slots=True, kw_only=True)
class RawRecords:
    """Records of one type as a source gives them: a column per property, as Arrow, as Python values or mapped."""

    shape: EntityShape
    #: Property → values; a property that is not here is missing in all records.
    columns: Mapping[str, Given | MappedColumn]
    #: Explicit ids, where the source has any.
    ids: Given | MappedColumn | None = None
    #: Source and target of edges.
    ends: tuple[End, End] | None = None
    #: Line or record of each record, counted from 1 within its part of the input.
    lines: NDArray[np.int64]
    reading: Reading = AS_IS
    #: Property, or end and member as in `from.code` → the one column of a mapping that feeds it.
    plain: Mapping[str, str] = field(default_factory=dict)
    #: Whether they are bad records already, and only their ids are of interest.
    is_refused: bool = False
    #: Whether several of them may come from one record of the source, as neighbours of the same line.
    shares_lines: bool = False
    #: Of a patch, property → which records bring it. One that is not here is brought by all records, or by none where
    #: it has no column.
    present: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.lines)

    @property
    def has_given_ids(self) -> bool:
        """Whether any record brings its id."""
        if self.ids is None:
            return False
        if isinstance(self.ids, list):
            return any(item is not None for item in self.ids)
        if isinstance(self.ids, MappedColumn):
            # Whether they are all null is known when they are read; assuming ids costs a comparison at most.
            return True
        return bool(self.ids.null_count < len(self.ids))

    def pieces(self, size: int) -> Iterator[RawRecords]:
        """The same records, about so many at a time; those of one line stay together."""
        end = 0
        while end < self.count:
            begin, end = end, min(end + size, self.count)
            if self.shares_lines:
                end = int(np.searchsorted(self.lines, self.lines[end - 1], side="right"))
            part = slice(begin, end)
            yield replace(
                self,
                columns={name: column[part] for name, column in self.columns.items()},
                ids=None if self.ids is None else self.ids[part],
                ends=None if self.ends is None else (_cut(self.ends[0], part), _cut(self.ends[1], part)),
                lines=self.lines[part],
                present={name: mask[part] for name, mask in self.present.items()},
            )

    def brings(self, name: str) -> NDArray[np.bool_]:
        """Which records of a patch bring a property."""
        known = self.present.get(name)
        return np.full(self.count, name in self.columns) if known is None else known


def _cut(end: End, part: slice) -> End:
    if isinstance(end, Mapping):
        return {name: column[part] for name, column in end.items()}
    return end[part]


class Shaped:
    """Good rows, where they came from, and what was wrong with the others; positions become lines."""

    rows: Rows
    #: The ids of bad records, of nodes and as far as they have any.
    bad_ids: Array

    def __init__(self, raw: RawRecords, plan: LoadPlan, source: str, sink: Sink = None) -> None:
        self.raw = raw
        self.plan = plan
        self.lines = raw.lines
        self.violations = ViolationCounts(sink=sink)
        self.bad = np.zeros(raw.count, dtype=bool)
        #: Old spellings of ids that were accepted, with the canonical ids.
        self.aliases: set[tuple[str, str]] = set()
        #: How many external blobs were brought.
        self.external_count = 0
        #: Property, as in `Paper.year` → values that the compatible grammar stored as null.
        self.nulled: dict[str, int] = {}
        #: Ids that records bring, of keyed nodes, whose keys may say something else.
        self.given_ids: Array | None = None
        #: Properties that are filled in later: whether they are missing is not known before.
        self.filled_later = frozenset(vector.property for vector in raw.shape.vectors)
        self._source = source

    def refuse(self, position: int, rule: str, name: str | None, value: object, message: str) -> None:
        """Count a violation; the record is left out."""
        self.bad[position] = True
        place = Place(self._source, int(self.raw.lines[position]))
        key = self.raw.shape.key
        self.violations.add(place, rule, message, type_key=key, field=name, value=value)

    def count_bad(self) -> None:
        """Count the bad records of the source. Where they are kept, all that comes from one of them is bad."""
        if not self.raw.shares_lines:
            self.violations.records = int(np.count_nonzero(self.bad))
            return
        bad = np.unique(self.raw.lines[self.bad])
        self.violations.records = len(bad)
        if self.plan.keeps_bad:
            self.bad = np.isin(self.raw.lines, bad)

    def violate(self, position: int, rule: ValueRule | EndGiven, value: object) -> None:
        """Count a violation of a rule; the entity has no id yet that a person knows."""
        text = violation_text(rule, Example(value))
        self.refuse(position, rule_name(rule), rule_field(rule), value, text)


def shape_records(
    raw: RawRecords,
    plan: LoadPlan,
    *,
    source: str,
    part: int,
    first_row: int,
    sink: Sink = None,
    embedder: TextEmbedder | None = None,
) -> Shaped:
    """The rows of some records; `first_row` counts the records of the type before them in the part.

    Where the plan embeds, `embedder` makes the vectors that good records lack.
    """
    judge = Shaped(raw, plan, source, sink)
    schema = table_schema(raw.shape.definition)
    columns = {name: _property_column(name, judge) for name in raw.shape.definition.properties}
    wanted = {vector: _to_embed(vector, columns, judge) for vector in raw.shape.vectors}
    for rule in raw.shape.value_rules:
        apply_rule(rule, columns[rule.property], judge)
    if raw.ends is not None and raw.shape.ends is not None:
        for side, name, given, end in zip(("src", "dst"), ("from", "to"), raw.ends, raw.shape.ends, strict=True):
            columns[side] = _end_column(name, given, end, judge)
    columns["id"] = _id_column(columns, judge, (part, first_row))
    rows = pa.table([columns[item.name] for item in schema], names=schema.names)
    judge.bad_ids = pa.nulls(0, pa.utf8())
    if judge.bad.any():
        judge.count_bad()
        if raw.shape.ends is None:
            judge.bad_ids = _names(columns["id"], judge).filter(pa.array(judge.bad)).drop_null()
        rows, judge.lines = rows.filter(pa.array(~judge.bad)), judge.lines[~judge.bad]
    judge.rows = embedded_rows(rows, wanted, judge, embedder).cast(schema)
    return judge


def _to_embed(vector: EmbeddedVector, columns: Mapping[str, Array], judge: Shaped) -> NDArray[np.bool_]:
    """The records that get a vector; those that need one and have no text are bad."""
    wanted = lacking(columns, vector)
    if not vector.is_nullable:
        required = Required(type_name=vector.type_name, property=vector.property)
        for position in np.flatnonzero(np.asarray(columns[vector.property].is_null()) & ~wanted & ~judge.bad).tolist():
            judge.violate(position, required, None)
    return wanted


def embedded_rows(
    rows: Rows, wanted: Mapping[EmbeddedVector, NDArray[np.bool_]], judge: Shaped, embedder: TextEmbedder | None
) -> Rows:
    """The good rows with the vectors that are wanted of all of them."""
    if embedder is None or not wanted:
        return rows
    raw, plan = judge.raw, judge.plan
    is_known = plan.keeps_vectors and (raw.has_given_ids or raw.shape.key_members)
    stored = plan.targets.get(raw.shape.key) if is_known else None
    return filled(rows, {vector: mask[~judge.bad] for vector, mask in wanted.items()}, embedder, stored)


def ids_of(raw: RawRecords, plan: LoadPlan, source: str) -> Array:
    """The ids of nodes as far as they can be read, whatever else is wrong with their records."""
    members = {name: raw.columns[name] for name in raw.shape.key_members if name in raw.columns}
    judge = Shaped(replace(raw, columns=members), plan, source)
    ids = _id_column({name: _property_column(name, judge) for name in raw.shape.key_members}, judge, (0, 0))
    return _names(ids, judge).drop_null()


def _names(ids: Array, judge: Shaped) -> Array:
    """The ids by which edges may name bad records: the one that is given before the one that the key makes."""
    names: Array = ids if judge.given_ids is None else pc.coalesce(judge.given_ids, ids)
    return names


def _property_column(name: str, judge: Shaped) -> Array:
    raw = judge.raw
    if name in raw.columns:
        return property_values(name, judge, np.ones(raw.count, dtype=bool))
    type_ = raw.shape.definition.properties[name].type
    if not type_.nullable and name not in judge.filled_later:
        required = Required(type_name=raw.shape.name, property=name)
        for position in range(raw.count):
            judge.violate(position, required, None)
    missing: Array = pa.nulls(raw.count, arrow_type(type_.base))
    return missing


def property_values(name: str, judge: Shaped, brought: NDArray[np.bool_]) -> Array:
    """The stored values of a property that has a column; records that bring a null where none is allowed are bad."""
    raw = judge.raw
    type_ = raw.shape.definition.properties[name].type
    given, owner = raw.columns[name], f"{raw.shape.name}.{name}"
    tolerance = None if judge.plan.is_strict else Tolerance()
    read = _blobs if type_.base == _BLOB else _stored
    stored, violations = read(type_, given, judge, tolerance)
    if tolerance is not None and tolerance.nulled:
        judge.nulled[owner] = tolerance.nulled
    hint = _text_hint(type_, name, raw.plain.get(name))
    _refuse_values(given, type_, violations, judge, rule=f"invalid value for {owner}", name=name, hint=hint)
    if not type_.nullable and stored.null_count and (judge.plan.is_patch or name not in judge.filled_later):
        required = Required(type_name=raw.shape.name, property=name)
        for position in positions(violating(required, stored)):
            if position not in violations and brought[position]:
                judge.violate(position, required, None)
    return stored


def _refuse_values(
    given: Given | MappedColumn,
    type_: PropertyType,
    violations: dict[int, str],
    judge: Shaped,
    *,
    rule: str,
    name: str,
    hint: str = "",
) -> None:
    """Report values that do not fit, as the source has them; the hint is about those that `concat` takes."""
    values = None
    for position, text in violations.items():
        if isinstance(given, MappedColumn):
            value = given.value(position)
        else:
            values = values if values is not None else python_values(type_, given)
            value = values[position]
        more = hint if isinstance(value, int | date) and not isinstance(value, datetime) else ""
        judge.refuse(position, rule, name, value, f"{rule}: {text}{more}")


def _text_hint(type_: PropertyType, name: str, column: str | None) -> str:
    """The hint for a column of numbers where texts are needed."""
    if column is None or not (type_.base == _STRING.base or isinstance(type_.base, EnumType)):
        return ""
    return f"; `{name}: {{concat: [{shown(column)}]}}` in a mapping makes a text of it"


def _stored(
    type_: PropertyType, given: Given | MappedColumn, judge: Shaped, tolerance: Tolerance | None = None
) -> tuple[Array, dict[int, str]]:
    """A stored column and the violations in it; ids and ends are read without tolerance."""
    reading = replace(judge.raw.reading, tolerance=tolerance)
    if isinstance(given, MappedColumn):
        return read_mapped(given, type_, reading)
    return stored_column(type_, given, reading)


def _blobs(
    type_: PropertyType, given: Given | MappedColumn, judge: Shaped, tolerance: Tolerance | None
) -> tuple[Array, dict[int, str]]:
    """The cells of a Blob column; addresses go their own way where any are allowed."""
    rule = judge.plan.external
    if isinstance(given, MappedColumn):
        # The name of a folder; any other column of a Blob is taken as it is.
        return _stored(type_, given, judge, tolerance)
    if not isinstance(given, list) and is_cell_parts(given.type):
        given = cell_values(given)
    is_binary = not isinstance(given, list) and pa.types.is_binary(given.type)
    if is_binary or not rule.policy.bases:
        return _stored(type_, given, judge, tolerance)
    values = python_values(type_, given)
    texts = external_texts(values)
    if not texts:
        return _stored(type_, given, judge, tolerance)
    judge.external_count += len(texts)
    check_cells(judge.external_count)
    rest = [None if place in texts else value for place, value in enumerate(values)]
    stored, violations = _stored(type_, rest, judge, tolerance)
    stored, refused = with_external(stored, texts, rule)
    return stored, violations | refused


def apply_rule(rule: ValueRule, column: Array, judge: Shaped) -> None:
    """Count the values of a column that violate a rule; their records are left out."""
    bad = violating(rule, column)
    if pc.any(bad).as_py():
        for position, value in zip(positions(bad), shown_values(column.filter(bad)), strict=True):
            judge.violate(position, rule, value)


# ---- ends and ids


def _end_column(name: str, given: End, end: EndType, judge: Shaped) -> Array:
    found = end_values(name, given, end, judge)
    if found.null_count:
        rule = EndGiven(edge_type=judge.raw.shape.name, end=name, node_type=end.name)
        for position in positions(found.is_null()):
            if not judge.bad[position]:
                judge.violate(position, rule, None)
    return found


def end_values(name: str, given: End, end: EndType, judge: Shaped) -> Array:
    """The ids of nodes at one end; null where a record does not give one."""
    if isinstance(given, Mapping):
        found = _composed(given, end, judge, name)
    else:
        found = id_texts(given, name, judge, [base for _, base in end.members])
    aliases = judge.plan.aliases.get(end.name)
    if aliases:
        found = pa.array([None if text is None else aliases.get(text, text) for text in found.to_pylist()], pa.utf8())
    return found


def _composed(given: Mapping[str, Given | MappedColumn], end: EndType, judge: Shaped, name: str) -> Array:
    """Ids of keyed nodes from columns of their key members; null where a member is null or does not fit."""
    rule = f"invalid `{name}` of {judge.raw.shape.name}"
    spellings = []
    for member, base in end.members:
        type_ = PropertyType(base=base, nullable=True)
        stored, violations = _stored(type_, given[member], judge)
        texts = {place: f"{member}: {text}" for place, text in violations.items()}
        hint = _text_hint(type_, member, judge.raw.plain.get(f"{name}.{member}"))
        _refuse_values(given[member], type_, texts, judge, rule=rule, name=name, hint=hint)
        spellings.append(spelled(base, stored))
    return derived_ids(spellings)


def id_texts(given: Given | MappedColumn, name: str, judge: Shaped, key: list[BaseType]) -> Array:
    """A column of ids as text: typed columns of a one-member key are spelled, integers are their digits."""
    rule = f"invalid `{name}` of {judge.raw.shape.name}"
    if isinstance(given, MappedColumn):
        if given.source.transforms.is_typed:
            type_ = PropertyType(base=key[0], nullable=True)
            stored, violations = _stored(type_, given, judge)
            _refuse_values(given, type_, violations, judge, rule=rule, name=name)
            return spelled(key[0], stored)
        mapped, (given, violations) = given, given.prepare()
        _refuse_values(mapped, _STRING, violations, judge, rule=rule, name=name)
    if isinstance(given, list):
        stored, violations = slow_column(_STRING, given)
        for position, text in violations.items():
            judge.refuse(position, rule, name, given[position], f"{rule}: {text}")
        return stored
    texts = fast_column(_STRING, given)
    if texts is not None:
        return texts
    if len(key) == 1:
        typed = fast_column(PropertyType(base=key[0], nullable=True), given, replace(judge.raw.reading, is_text=False))
        if typed is not None:
            return spelled(key[0], typed)
    if pa.types.is_integer(given.type):
        return given.cast(pa.utf8())
    for position, value in enumerate(python_values(_STRING, given)):
        if value is not None:
            judge.refuse(position, rule, name, value, f"{rule}: {shown(value)} is not an id")
    found: Array = pa.nulls(len(given), pa.utf8())
    return found


def _id_column(columns: Mapping[str, Array], judge: Shaped, place: tuple[int, int]) -> Array:
    raw = judge.raw
    given = None if raw.ids is None else id_texts(raw.ids, "id", judge, raw.shape.key_bases)
    if not raw.shape.key_members:
        fresh = generated_ids(judge.plan.id_prefix, *place, raw.count)
        return fresh if given is None else pc.coalesce(given, fresh)
    derived = ids_of_keys(columns, raw.shape)
    if given is not None:
        judge.given_ids = given
        compare_ids(given, derived, judge)
    return derived


def ids_of_keys(columns: Mapping[str, Array], shape: EntityShape) -> Array:
    """The ids that keys make; null where a member is null."""
    members = zip(shape.key_bases, shape.key_members, strict=True)
    return derived_ids([spelled(base, columns[name]) for base, name in members])


def compare_ids(given: Array, derived: Array, judge: Shaped) -> None:
    """An explicit id of a keyed node or edge says what its key says."""
    shape = judge.raw.shape
    for position in positions(pc.fill_null(pc.not_equal(given, derived), False)):
        old, canonical = given[position].as_py(), derived[position].as_py()
        if not judge.plan.is_strict and shape.ends is not None and _with_new_ends(old, shape.ends, judge) == canonical:
            continue
        if not judge.plan.is_strict and shape.ends is None and _means_same(shape, old, canonical):
            judge.aliases.add((old, canonical))
            continue
        rule = f"id of {shape.name} is not its key"
        text = f"{rule}: the id is {old!r}, the key makes {canonical!r}"
        judge.refuse(position, rule, "id", old, text)


def _with_new_ends(old: str, ends: tuple[EndType, EndType], judge: Shaped) -> str | None:
    """The id of a keyed edge with canonical ids of its ends; None where it is no such id."""
    try:
        parts = split_id(old, len(judge.raw.shape.key_members))
    except ValueError:
        return None
    aliases = [judge.plan.aliases.get(end.name, {}) for end in ends]
    return derive_id([*(known.get(part, part) for known, part in zip(aliases, parts, strict=False)), *parts[2:]])


def _means_same(shape: EntityShape, old: str, canonical: str) -> bool:
    """Whether an old spelling stands for the typed value of a key member."""
    parts = split_id(canonical, len(shape.key_members))
    for name, part in zip(shape.key_members, parts, strict=True):
        type_ = PropertyType(base=shape.definition.properties[name].type.base, nullable=True)
        stored, violations = slow_column(type_, [old], Reading(is_text=True))
        if not violations:
            value = stored_values(pa.chunked_array([stored]))[0]
            if value == parse_spelling(type_.base, part):
                return True
    return False


def alias_conflicts(found: list[tuple[TableKey, dict[str, str]]]) -> dict[str, dict[str, str]]:
    """All accepted old spellings per node type.

    Raises:
        ValueError: one old spelling stands for two nodes.
    """
    merged: dict[str, dict[str, str]] = {}
    for key, aliases in found:
        known = merged.setdefault(key.name, {})
        for old, canonical in aliases.items():
            if known.setdefault(old, canonical) != canonical:
                raise ValueError(f"the id {old!r} stands for {known[old]!r} and for {canonical!r}")
    return merged
