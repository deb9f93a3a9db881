"""Columns of sources and the columns of a type that they feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.core.source import did_you_mean, nearest
from omnigraph.core.types import BaseType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.shape.items import KEY, VALUE, unfolded
from omnigraph.pipeline.shape.shaping import End, RawRecords
from omnigraph.pipeline.shape.transforms import Given, MappedColumn, read_mapped, refuse_null_texts
from omnigraph.pipeline.shape.value_sources import EndSource, ItemSource, Transforms, ValueSource, column_source
from omnigraph.pipeline.shape.values import Reading, Timestamps
from omnigraph.pipeline.violations import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from omnigraph.pipeline.shape.plan import EntityShape
    from omnigraph.pipeline.sources.mapping import MappedType


# ---- The columns that a source has


#: How many members of a struct a message names.
_SHOWN_MEMBERS = 8
STRUCT, MAP = "struct", "map"
_LISTS = (pyarrow.ListType, pyarrow.LargeListType, pyarrow.FixedSizeListType)


@frozen(kw_only=True)
class Nested:
    """A column with values inside of its values: a struct with members, a map, or a list of such."""

    #: As a message calls it.
    kind: str
    #: The members of a struct; None for one that holds a single value.
    members: Mapping[str, Nested | None] = field(default_factory=dict)
    #: What is inside of the items of a list, or of a map; None for single values.
    items: Nested | None = None


@frozen(kw_only=True)
class SourceColumns:
    """The columns of a file or a frame. A member of a struct has a path: `address.city`."""

    names: tuple[str, ...]
    #: None for a column of single values, as for one that is not here.
    nested: Mapping[str, Nested | None] = field(default_factory=dict)
    #: Columns that have one text, or null, in all records: they are in the names of folders.
    constants: Mapping[str, str | None] = field(default_factory=dict)
    #: The names of the index of a pandas frame, which is not read.
    index: tuple[str, ...] = ()
    #: Whether records may have further columns than these, as objects of JSON may.
    is_open: bool = False

    def with_partitions(self, partitions: Sequence[tuple[str, str | None]]) -> SourceColumns:
        """These columns and those of folders; what is in the file itself goes first."""
        more = {name: value for name, value in partitions if name not in self.names}
        return replace(self, names=(*self.names, *more), constants=more) if more else self

    def with_items(self, column: str) -> SourceColumns:
        """These columns with an item where one of them has lists."""
        nested = self.nested.get(column)
        return self if nested is None else replace(self, nested={**self.nested, column: nested.items})

    def index_hint(self, names: Sequence[str]) -> str:
        """The hint for missing columns that are the index of a pandas frame."""
        found = next((name for name in names if name in self.index), None)
        return "" if found is None else f"; `{shown(found)}` is the index of the frame: give `frame.reset_index()`"

    @property
    def paths(self) -> list[str]:
        """All columns, and the members of structs."""
        return [path for name in self.names for path in _paths(name, self.nested.get(name))]

    def find(self, path: str) -> tuple[str, ...] | None:
        """The steps to a column or a member; the name of a column goes before the path of a member."""
        return _find({name: self.nested.get(name) for name in self.names}, path)

    def nested_at(self, steps: Sequence[str]) -> Nested | None:
        """The columns nested in the values of a path; None for single values."""
        found = self.nested.get(steps[0])
        for step in steps[1:]:
            found = None if found is None else found.members.get(step)
        return found

    def text_about(self, path: str, nested: Nested) -> str:
        """The violation text of a nested column used as a value, with the two ways to fix it."""
        beside = next((name for name in self.names if self.nested.get(name) is None), None)
        chosen = [] if beside is None else [f'"{shown(beside)}"']
        text = f"the column `{shown(path)}` is a {nested.kind}, and a property holds one value"
        if not nested.members:
            inside = f'F.col("{path}")["key"]' if nested.kind == MAP else f'F.col("{path}.member")'
            chosen.append(f'{inside}.alias("name")')
            return f"{text}: select what you need before, as in df.select({', '.join(chosen)})"
        members = [shown(member) for member in nested.members]
        leaf = path
        inner: Nested | None = nested
        while inner is not None and inner.members:
            member, inner = next(iter(inner.members.items()))
            leaf += f".{member}"
        name = leaf.rpartition(".")[2]
        some = ", ".join(members[:_SHOWN_MEMBERS]) + (", …" if len(members) > _SHOWN_MEMBERS else "")
        chosen.append(f'F.col("{leaf}").alias("{name}")')
        return (
            f"{text}. Its members are {some}: name them in the mapping, as in `columns: {{{leaf}: {name}}}`, "
            f"or select them before, as in df.select({', '.join(chosen)})"
        )


def plain_columns(names: Sequence[str]) -> SourceColumns:
    """Columns of single values, or of values that nothing is known about."""
    return SourceColumns(names=tuple(names))


def arrow_columns(schema: pyarrow.Schema) -> SourceColumns:
    """The columns of Arrow data."""
    nested = {item.name: _nested_arrow(item.type) for item in schema}
    return SourceColumns(names=tuple(schema.names), nested=nested)


def _nested_arrow(kind: pyarrow.DataType) -> Nested | None:
    if isinstance(kind, pyarrow.StructType):
        return Nested(kind=STRUCT, members={item.name: _nested_arrow(item.type) for item in kind})
    if pa.types.is_map(kind):
        value: Any = kind
        return map_of(None, _nested_arrow(value.item_type))
    inner = _nested_arrow(kind.value_type) if isinstance(kind, _LISTS) else None
    return None if inner is None else list_of(inner)


def list_of(inner: Nested) -> Nested:
    """A list with values inside of its items."""
    return Nested(kind=f"list of {inner.kind}s", items=inner)


def map_of(keys: Nested | None, values: Nested | None) -> Nested:
    """A map; its items are structs of a key and a value."""
    return Nested(kind=MAP, items=Nested(kind=STRUCT, members={KEY: keys, VALUE: values}))


def _find(members: Mapping[str, Nested | None], path: str) -> tuple[str, ...] | None:
    if path in members:
        return (path,)
    for name, inner in members.items():
        if inner is not None and path.startswith(f"{name}."):
            rest = _find(inner.members, path.removeprefix(f"{name}."))
            if rest is not None:
                return (name, *rest)
    return None


def _paths(path: str, nested: Nested | None) -> Iterator[str]:
    yield path
    for name, inner in ({} if nested is None else nested.members).items():
        yield from _paths(f"{path}.{name}", inner)


# ---- Binding a mapping to the columns of a source


#: How many columns a message names.
_SHOWN_NAMES = 20
_BLOB = ScalarType(Scalar.BLOB)


@frozen(kw_only=True)
class ColumnMap:
    """The mapping from columns of one source to columns of one type."""

    properties: Mapping[str, ValueSource]
    id: ValueSource | None
    ends: tuple[EndSource, EndSource] | None
    #: The steps to members of structs, by path.
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timestamps: Timestamps = Timestamps.REFUSE
    #: Columns that are not read: they have one text, or null, in all records.
    constants: Mapping[str, str | None] = field(default_factory=dict)
    #: Whether records without a key, or without an end, are passed over.
    skips_null: bool = False
    #: The column of which each item is a record.
    each: ItemSource | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that values come from, members of structs by their path."""
        found = _columns_of([*self.properties.values(), *_special(self.id, self.ends)])
        return [name for name in found if name not in self.constants]

    @property
    def stored_columns(self) -> list[str]:
        """The columns that are read: those of values, and whole lists where each item is a record."""
        if self.each is None:
            return self.columns
        own = [self.each.column]
        return [*(name for name in self.columns if self.steps.get(name, (name,))[0] not in own), *own]


def map_columns(
    mapped: MappedType, shape: EntityShape, source: SourceColumns, where: str, *, is_strict: bool, is_patch: bool
) -> ColumnMap:
    """Bind the columns of a source to those of a type; a patch needs no column of a required property.

    Raises:
        BadRequestError: a column does not exist or holds several values, a name is not a property, or a transform
            does not fit the type of its property.
    """
    if mapped.each is not None:
        source = _unfolded_columns(mapped.each, source, where)
    chosen = _properties(mapped, shape, source, where)
    _check_ends(mapped, shape, where)
    special = _columns_of([*chosen.values(), *_special(mapped.id, mapped.ends)])
    special += [] if mapped.each is None else [mapped.each.column]
    if mapped.columns is None and is_strict:
        _refuse_extra(mapped, shape, source, special, where)
    if not is_patch:
        _check_required(mapped, shape, source, chosen, where)
    explicit = mapped.id
    if mapped.columns is None and explicit is None and "id" in source.names:
        explicit = column_source("id")
    found = ColumnMap(
        properties=chosen,
        id=explicit,
        ends=mapped.ends,
        timestamps=mapped.timestamps,
        constants=source.constants,
        skips_null=mapped.skips_null,
        each=mapped.each,
    )
    repeated = [column for column in found.columns if source.names.count(column) > 1]
    if repeated:
        raise BadRequestError(f"{where}: there are two columns `{shown(repeated[0])}`")
    steps = _steps(found, source, where)
    _refuse_nested(found, steps, shape, source, where)
    _check_values(found, shape, where)
    return replace(found, steps={path: some for path, some in steps.items() if len(some) > 1})


def _unfolded_columns(each: ItemSource, source: SourceColumns, where: str) -> SourceColumns:
    """The columns of a source after each item of a list became a record; objects of JSON come so."""
    if source.is_open:
        return source
    if each.column not in source.names or each.column in source.constants:
        hint = did_you_mean(each.column, source.names)
        raise BadRequestError(f"{where}: there is no column `{shown(each.column)}`" + (f": {hint}" if hint else ""))
    return source.with_items(each.column)


def _special(id_source: ValueSource | None, ends: tuple[EndSource, EndSource] | None) -> list[ValueSource]:
    """The sources of the id and the ends."""
    found = [] if id_source is None else [id_source]
    for end in ends or ():
        found += [end] if isinstance(end, ValueSource) else list(end.values())
    return found


def _columns_of(sources: Iterable[ValueSource]) -> list[str]:
    return list(dict.fromkeys(name for source in sources for name in source.columns))


def _properties(mapped: MappedType, shape: EntityShape, source: SourceColumns, where: str) -> dict[str, ValueSource]:
    """The source of each property: columns by their names in the mapping or in the source."""
    known = shape.definition.properties
    renamed = {name: column for column, name in (mapped.columns or {}).items()}
    if len(renamed) < len(mapped.columns or {}):
        names = list((mapped.columns or {}).values())
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequestError(f"{where}: two columns feed the property `{twice}`")
    for name in (*renamed, *mapped.properties):
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise BadRequestError(f"{where}: {shape.name} has no property `{name}`" + (f": {hint}" if hint else ""))
    if mapped.columns is None:
        renamed = {name: name for name in source.names if name in known}
    chosen = {name: column_source(column) for name, column in renamed.items()}
    for name, given in mapped.properties.items():
        if given.parts:
            if name in renamed and mapped.columns is not None:
                raise BadRequestError(f"{where}: `columns` and `properties` both say what feeds the property `{name}`")
            chosen[name] = given
        else:
            chosen[name] = replace(given, parts=(renamed.get(name, name),))
    return chosen


def _check_ends(mapped: MappedType, shape: EntityShape, where: str) -> None:
    for name, end, side in zip(("from", "to"), mapped.ends or (), shape.ends or (), strict=False):
        if isinstance(end, ValueSource):
            continue
        members = {member for member, _ in side.members}
        if set(end) != members:
            wanted = ", ".join(sorted(members)) or "no key members"
            raise BadRequestError(f"{where}: `{name}` has to map {wanted} of {side.name}")


def _refuse_extra(mapped: MappedType, shape: EntityShape, source: SourceColumns, used: list[str], where: str) -> None:
    """Without a list of columns, each one has to be something."""
    known = {steps[0] for name in used if (steps := source.find(name)) is not None}
    if mapped.id is None:
        known.add("id")
    extra = [name for name in source.names if name not in known]
    if not extra:
        return
    if extra[0] == "id" or extra[0] in shape.definition.properties:
        fed = "the id" if extra[0] == "id" else f"the property `{extra[0]}`"
        raise BadRequestError(
            f"{where}: nothing reads the column `{extra[0]}`: {fed} of {shape.name} comes from another one; "
            "name the columns to read in `columns:`"
        )
    nested = source.nested.get(extra[0])
    if nested is not None:
        text = source.text_about(extra[0], nested)
        raise BadRequestError(f"{where}: {shape.name} has no property `{extra[0]}`; {text}")
    # A property that a column feeds already is not what was meant by another one.
    free = [name for name in shape.definition.properties if name not in source.names]
    near = next((found for name in extra if (found := nearest(name, free)) is not None), None)
    way_out = "; name" if near is None else f": did you mean `{near}`? Otherwise name"
    way_out += " the columns to read in `columns:`"
    if extra[0] in source.constants:
        raise BadRequestError(
            f"{where}: {shape.name} has no property `{shown(extra[0])}`, which a folder of the file stands for{way_out}"
        )
    raise BadRequestError(f"{where}: {shape.name} has no property {_listed(extra)}{way_out}")


def _check_required(
    mapped: MappedType, shape: EntityShape, source: SourceColumns, chosen: Mapping[str, ValueSource], where: str
) -> None:
    """Refuse a required property without a source once, before any record is read."""
    properties = shape.definition.properties
    made = {vector.property for vector in shape.vectors if vector.source in chosen}
    missing = [
        name for name in properties if name not in chosen and name not in made and not properties[name].type.nullable
    ]
    # Of objects only some are known here: others may have it.
    if not missing or source.is_open:
        return
    if mapped.columns is not None:
        raise BadRequestError(
            f"{where}: nothing feeds {_listed(missing)}, which {shape.name} requires; name the columns of all required "
            "properties in `columns:`, or say in `properties:` what feeds them"
        )
    names = f"column{'' if len(missing) == 1 else 's'} {_listed(missing)}"
    raise BadRequestError(
        f"{where}: the source has no {names}, which {shape.name} requires{source.index_hint(missing)}"
    )


def _steps(found: ColumnMap, source: SourceColumns, where: str) -> dict[str, tuple[str, ...]]:
    known = {}
    for path in found.columns:
        steps = source.find(path)
        if steps is None:
            hint = did_you_mean(path, source.paths)
            more = source.index_hint([path]) or (f": {hint}" if hint else "")
            raise BadRequestError(f"{where}: there is no column `{shown(path)}`{more}")
        known[path] = steps
    return known


def _refuse_nested(
    found: ColumnMap, steps: Mapping[str, tuple[str, ...]], shape: EntityShape, source: SourceColumns, where: str
) -> None:
    types = shape.definition.properties
    # The bytes and the address of a blob may come as a struct.
    others = [item for name, item in found.properties.items() if types[name].type.base != _BLOB]
    for path in _columns_of([*others, *_special(found.id, found.ends)]):
        nested = None if path in found.constants else source.nested_at(steps[path])
        if nested is not None:
            raise BadRequestError(f"{where}: {source.text_about(path, nested)}")


# ---- transforms and the types of properties


def _check_values(found: ColumnMap, shape: EntityShape, where: str) -> None:
    for name, item in found.properties.items():
        type_ = shape.definition.properties[name].type
        _check_transforms(item, type_.base, f"{shape.name}.{name}", where)
        _check_constant(item, type_, f"{shape.name}.{name}", found.timestamps, where)
    if found.id is not None:
        _check_id(found.id, shape.key_bases, f"the id of {shape.name}", where)
    for name, end, side in zip(("from", "to"), found.ends or (), shape.ends or (), strict=False):
        if isinstance(end, ValueSource):
            key = [base for _, base in side.members]
            _check_id(end, key, f"`{name}` of {shape.name}", where)
            continue
        for member, base in side.members:
            owner = f"{side.name}.{member}"
            _check_transforms(end[member], base, owner, where)
            type_ = PropertyType(base=base, nullable=True)
            _check_constant(end[member], type_, owner, found.timestamps, where)


def _check_id(source: ValueSource, key: list[BaseType], owner: str, where: str) -> None:
    steps = source.transforms
    if steps.split is not None:
        raise BadRequestError(f"{where}: {owner} is not a list: `split` does not fit")
    if not steps.is_typed:
        return
    if len(key) != 1:
        raise BadRequestError(
            f"{where}: {owner} is a text: `{_typed_step(steps)}` fits the members of a key, "
            "as in `to: {member: {column: …}}`"
        )
    _check_transforms(source, key[0], owner, where)


def _check_transforms(source: ValueSource, base: BaseType, owner: str, where: str) -> None:
    steps = source.transforms
    if base == _BLOB and source.plain_column is None:
        raise BadRequestError(f"{where}: {owner} is a Blob, which is read from a column as it is")
    if steps.split is not None and not isinstance(base, ListType | VectorType):
        raise BadRequestError(f"{where}: {owner} is a {base}: `split` makes lists")
    scalar = _scalar_of(base)
    wanted = {
        "bool": (scalar is Scalar.BOOL, "Bool properties"),
        "date_format": (scalar in (Scalar.DATE, Scalar.DATETIME), "Date and DateTime properties"),
        "number": (scalar in _NUMBERS, "numbers"),
    }
    if steps.is_typed:
        step = _typed_step(steps)
        fits, what = wanted[step]
        if not fits:
            raise BadRequestError(f"{where}: {owner} is a {base}: `{step}` is for {what}")
    if scalar is Scalar.DATE:
        zoned = [item.text for item in steps.date_formats if item.has_zone]
        if zoned:
            raise BadRequestError(f"{where}: {owner} is a Date, which has no time zone: `{zoned[0]}` has one")


_NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)


def _scalar_of(base: BaseType) -> Scalar | None:
    match base:
        case ScalarType(scalar) | ListType(scalar):
            return scalar
        case VectorType():
            return Scalar.F32
    return None


def _typed_step(steps: Transforms) -> str:
    return "bool" if steps.words is not None else "date_format" if steps.date_formats else "number"


def _check_constant(source: ValueSource, type_: PropertyType, owner: str, timestamps: Timestamps, where: str) -> None:
    """A fixed value is wrong for all records or for none."""
    if source.columns:
        return
    given = MappedColumn(source=source, columns={}, count=1)
    _, violations = read_mapped(given, type_, Reading(timestamps=timestamps))
    if violations:
        raise BadRequestError(f"{where}: the constant does not fit {owner}: {violations[0]}")


def _listed(names: list[str]) -> str:
    """Some names of columns: a file may have many, and long ones."""
    some = ", ".join(f"`{shown(name)}`" for name in names[:_SHOWN_NAMES])
    return f"{some} and {hidden:,} more" if (hidden := len(names) - _SHOWN_NAMES) > 0 else some


# ---- Records from mapped columns and rows


def raw_records(
    shape: EntityShape,
    batch: Batch | Rows | Mapping[str, list[object]],
    chosen: ColumnMap,
    numbers: NDArray[np.int64],
    *,
    is_text: bool = False,
) -> RawRecords:
    """Mapped columns of a batch, or of a dictionary of lists, as records of a type.

    Raises:
        BadRequestError: the texts for null of a value cannot be values of its column.
    """
    if chosen.each is not None and not isinstance(batch, Mapping):
        # Rows of JSON came with one item each.
        batch, numbers = unfolded(batch, chosen.each, numbers)
    names = set(batch if isinstance(batch, Mapping) else batch.schema.names)

    def column(path: str) -> Given:
        if path in chosen.constants:
            constant: Array = pa.repeat(pa.scalar(chosen.constants[path], pa.utf8()), len(numbers))
            return constant
        steps = () if path in names else chosen.steps[path]
        found = batch[steps[0] if steps else path]
        if isinstance(found, pyarrow.ChunkedArray):
            found = found.combine_chunks()
        return pc.struct_field(found, list(steps[1:])) if steps else found

    def values(source: ValueSource) -> Given | MappedColumn:
        is_constant = bool(source.columns) and chosen.constants.keys() >= set(source.columns)
        if source.plain_column is not None and not is_constant:
            return column(source.plain_column)
        columns = {name: column(name) for name in source.columns}
        for name, found in columns.items():
            if not isinstance(found, list):
                refuse_null_texts(source, name, found.type, shape.name)
        return MappedColumn(
            source=source,
            columns=columns,
            count=len(numbers),
            # The names of folders have no types either.
            is_text=is_text or is_constant,
        )

    def ids(source: ValueSource) -> Given | MappedColumn:
        found = values(source)
        if not isinstance(found, list):
            return found
        # Numbers are ids in tables, whatever format they are written in.
        return [str(item) if type(item) is int else item for item in found]

    ends = [
        ids(end) if isinstance(end, ValueSource) else {member: values(source) for member, source in end.items()}
        for end in chosen.ends or ()
    ]
    plain = {name: source.only_column for name, source in chosen.properties.items()}
    for side, end in zip(("from", "to"), chosen.ends or (), strict=False):
        if not isinstance(end, ValueSource):
            plain |= {f"{side}.{member}": source.only_column for member, source in end.items()}
    found = RawRecords(
        shape=shape,
        columns={name: values(source) for name, source in chosen.properties.items()},
        ids=None if chosen.id is None else ids(chosen.id),
        ends=(ends[0], ends[1]) if ends else None,
        lines=numbers,
        reading=Reading(is_text=is_text, timestamps=chosen.timestamps),
        plain={name: column for name, column in plain.items() if column is not None},
        shares_lines=chosen.each is not None,
    )
    return _identified(found) if chosen.skips_null else found


# ---- Records that are passed over


def _identified(raw: RawRecords) -> RawRecords:
    """The records that have a key, and both ends if they are edges."""
    wanted = [raw.columns[name] for name in raw.shape.key_members if name in raw.columns]
    for end in raw.ends or ():
        wanted += end.values() if isinstance(end, Mapping) else [end]
    keep = np.ones(raw.count, dtype=bool)
    for values in wanted:
        keep &= _is_present(values)
    if keep.all():
        return raw
    return replace(
        raw,
        columns={name: _kept(values, keep) for name, values in raw.columns.items()},
        ids=None if raw.ids is None else _kept(raw.ids, keep),
        ends=None if raw.ends is None else (_kept_end(raw.ends[0], keep), _kept_end(raw.ends[1], keep)),
        lines=raw.lines[keep],
    )


def _is_present(values: Given | MappedColumn) -> NDArray[np.bool_]:
    if isinstance(values, list):
        return np.array([value is not None for value in values], dtype=bool)
    if not isinstance(values, MappedColumn):
        return np.asarray(values.is_valid())
    # What cannot be read is a bad value, not a missing one.
    read, violations = values.prepare()
    found = np.array(read.is_valid())
    found[list(violations)] = True
    return found


def _kept(values: Given | MappedColumn, keep: NDArray[np.bool_]) -> Given | MappedColumn:
    if isinstance(values, MappedColumn):
        columns = {name: _kept_values(column, keep) for name, column in values.columns.items()}
        return replace(values, columns=columns, count=int(keep.sum()))
    return _kept_values(values, keep)


def _kept_values(values: Given, keep: NDArray[np.bool_]) -> Given:
    if isinstance(values, list):
        return [value for value, is_kept in zip(values, keep.tolist(), strict=True) if is_kept]
    return values.filter(pa.array(keep))


def _kept_end(end: End, keep: NDArray[np.bool_]) -> End:
    if isinstance(end, Mapping):
        return {name: _kept(values, keep) for name, values in end.items()}
    return _kept(end, keep)
