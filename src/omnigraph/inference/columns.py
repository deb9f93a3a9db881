"""One column of a table: its type, how it is read, and the keys in it.

A guess is made from the distinct values and then tried with the reader of loads, so that what is proposed is what a
load accepts. The canonical spellings that come out of it are the ids of the values: columns are compared by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow
from numpy.typing import NDArray

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING, Notation, Texts
from omnigraph.inference.dates import is_ambiguous
from omnigraph.inference.names import words_of
from omnigraph.inference.notations import choices, is_vector, notations, numbers_seen, vector_seen, whole_scalar
from omnigraph.pipeline.keys import spelled
from omnigraph.pipeline.shape.columns import is_list_type, is_text_type, stored_column
from omnigraph.pipeline.shape.transforms import MappedColumn, read_mapped
from omnigraph.pipeline.shape.value_sources import value_source
from omnigraph.pipeline.shape.values import Reading, Timestamps

#: Longer texts on average are no keys.
_LONGEST_KEY = 64


@frozen(kw_only=True)
class SampledColumn:
    """The values of a column that were read."""

    name: str
    #: Its place among the columns, from 1.
    number: int
    values: Array
    #: Whether the source has no types, as CSV.
    is_text: bool = False
    #: Whether the types of the source are meant, as in Parquet; texts of pandas and JSON may be anything.
    is_declared: bool = False
    #: Whether some values are texts and others numbers or truth values, here all as texts.
    is_mixed: bool = False


@frozen(kw_only=True)
class Keys:
    """The values of a column as ids: per row the place of its text, and -1 for null."""

    places: NDArray[np.int64]
    texts: Array

    @property
    def is_unique(self) -> bool:
        """Whether no value occurs twice."""
        return len(self.texts) == int((self.places >= 0).sum())


@frozen(kw_only=True)
class Column:
    """A column and what was guessed about it."""

    name: str
    number: int
    base: BaseType
    #: Keys of a value in `properties` of a mapping, without `column`.
    steps: Mapping[str, object] = field(default_factory=dict)
    #: What was seen, as a comment says it.
    seen: str
    rows: int
    #: Rows without a value, texts for null included.
    nulls: int = 0
    #: None where values cannot be ids.
    keys: Keys | None = None
    #: The values of a closed set, where it may be one, and what speaks for it.
    choices: tuple[str, ...] = ()
    choices_seen: str = ""
    #: The rule for moments finer than a millisecond, where there are such.
    timestamps: str | None = None
    #: `day` or `month`: what comes first in its dates, where its texts tell it.
    order: str | None = None
    #: Whether its texts are dates in which day and month could be exchanged.
    is_ambiguous: bool = False
    #: The least and the greatest of its numbers.
    bounds: tuple[float, float] | None = None
    #: Whether an id may be made of its values together with others.
    is_joinable: bool = False
    #: What it is compared as, where it is made of several columns.
    called: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name."""
        return words_of(self.called or self.name)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the table that its values come from."""
        made = self.steps.get("first")
        return tuple(map(str, made)) if isinstance(made, list) else (self.name,)

    @property
    def distinct(self) -> int:
        """How many different values it has, where they can be ids."""
        return 0 if self.keys is None else len(self.keys.texts)

    @property
    def is_complete(self) -> bool:
        """Whether every row has a value."""
        return self.rows > 0 and self.nulls == 0

    def as_choices(self) -> Column:
        """The column as a closed set, where it may be one."""
        if not self.choices:
            return self
        return replace(self, base=EnumType(self.choices), seen=self.choices_seen)

    def as_texts(self) -> Column:
        """The column without a guess about its values."""
        return replace(self, base=STRING, steps={"concat": [self.name]})


def look_at(column: SampledColumn, *, order: str | None = None) -> Column | None:
    """Guess the type of a column; None where no property can hold its values.

    `order` says whether days or months come first in dates of this input, where the column itself does not tell it.
    """
    kind = column.values.type
    if pa.types.is_null(kind) or column.values.null_count == len(column.values):
        return _column(column, Notation(base=STRING, seen="no values"), keys=None)
    if column.is_mixed:
        return _look_at_mixed(column)
    if is_text_type(kind):
        return _look_at_texts(column, order)
    if is_list_type(kind):
        return _look_at_lists(column)
    return _look_at_typed(column)


def _column(column: SampledColumn, notation: Notation, keys: Keys | None, *, nulls: int | None = None) -> Column:
    return Column(
        name=column.name,
        number=column.number,
        base=notation.base,
        steps=notation.steps,
        seen=notation.seen,
        rows=len(column.values),
        nulls=column.values.null_count if nulls is None else nulls,
        keys=keys,
        order=notation.order,
        bounds=notation.bounds,
        is_joinable=_is_joinable(column.values.type, notation),
    )


def _is_joinable(kind: pyarrow.DataType, notation: Notation) -> bool:
    """Whether `concat` takes the values as they are."""
    return (is_text_type(kind) or bool(pa.types.is_integer(kind))) and set(notation.steps) <= {"trim", "null"}


# ---- Texts


def _look_at_texts(column: SampledColumn, order: str | None) -> Column:
    encoded = column.values.cast(pa.utf8()).dictionary_encode()
    distinct: Array = encoded.dictionary
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    trimmed = pc.utf8_trim_whitespace(distinct)
    is_padded = not trimmed.equals(distinct)
    counts = np.bincount(places[places >= 0], minlength=len(distinct))
    texts = _merged(column, trimmed, counts, order)
    for notation, nulls in notations(texts, has_nulls=bool((places < 0).any())):
        steps = _with_cleaning(notation, nulls, is_padded=is_padded)
        found = replace(notation, steps=steps)
        stored = _read(distinct, found, column)
        if stored is None:
            continue
        values, timestamps = stored
        missing = int((places < 0).sum()) + int(counts[np.asarray(values.is_null())].sum())
        keys = None if _is_long(values) else _keys(found.base, values, places)
        guess = _column(column, found, keys, nulls=missing)
        some, why = choices(texts) if found.base == STRING else ((), "")
        return replace(
            guess,
            choices=some,
            choices_seen=why,
            timestamps=timestamps,
            is_ambiguous=found.base == STRING and is_ambiguous(texts),
        )
    raise AssertionError("every text is a text")


def _look_at_mixed(column: SampledColumn) -> Column:
    """Texts beside numbers: all of them as texts."""
    encoded = column.values.dictionary_encode()
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    seen = f"texts and numbers, {len(encoded.dictionary):,} different ones"
    notation = Notation(base=STRING, steps={"concat": [column.name]}, seen=seen)
    return _column(column, notation, _keys(STRING, encoded.dictionary, places))


def _merged(column: SampledColumn, trimmed: Array, counts: NDArray[np.int64], order: str | None) -> Texts:
    """Distinct texts: some are equal only without the white space around them."""
    groups = pa.table({"text": trimmed, "count": counts}).group_by("text").aggregate([("count", "sum")])
    return Texts(
        column=column.name,
        distinct=groups["text"].combine_chunks(),
        counts=groups["count_sum"].combine_chunks(),
        is_text=column.is_text,
        is_declared=column.is_declared,
        order=order,
    )


def _with_cleaning(notation: Notation, nulls: Sequence[str], *, is_padded: bool) -> dict[str, object]:
    steps: dict[str, object] = {}
    if is_padded:
        steps["trim"] = True
    if nulls:
        steps["null"] = nulls[0] if len(nulls) == 1 else list(nulls)
    return steps | dict(notation.steps)


def _read(values: Array, notation: Notation, column: SampledColumn) -> tuple[Array, str | None] | None:
    """The values as they are stored, and the rule for fine moments that they need; None if one does not fit."""
    type_ = PropertyType(base=notation.base, nullable=True)
    for timestamps in (Timestamps.REFUSE, Timestamps.TRUNCATE):
        reading = Reading(is_text=column.is_text, timestamps=timestamps)
        if notation.steps:
            source = value_source({"column": column.name, **notation.steps}, column.name)
            mapped = MappedColumn(
                source=source, columns={column.name: values}, count=len(values), is_text=column.is_text
            )
            stored, violations = read_mapped(mapped, type_, reading)
        else:
            stored, violations = stored_column(type_, values, reading)
        if not violations:
            return stored, None if timestamps is Timestamps.REFUSE else str(timestamps)
        if type_.base != ScalarType(Scalar.DATETIME):
            break
    return None


def _is_long(values: Array) -> bool:
    return pa.types.is_string(values.type) and (pc.mean(pc.utf8_length(values)).as_py() or 0) > _LONGEST_KEY


_KEYS = (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE)


def _keys(base: BaseType, values: Array, places: NDArray[np.int64]) -> Keys | None:
    """Values at places as ids, where their type is that of a key."""
    if not isinstance(base, ScalarType) or base.scalar not in _KEYS:
        return None
    encoded = spelled(base, values).dictionary_encode()
    # One place more, which null has.
    moved = np.append(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), -1)
    return Keys(places=moved[places], texts=encoded.dictionary)


# ---- Values with types


_TYPES: tuple[tuple[str, Scalar], ...] = (
    ("is_boolean", Scalar.BOOL),
    ("is_int8", Scalar.I32),
    ("is_int16", Scalar.I32),
    ("is_uint8", Scalar.I32),
    ("is_uint16", Scalar.I32),
    ("is_int32", Scalar.I32),
    ("is_int64", Scalar.I64),
    ("is_uint32", Scalar.U32),
    ("is_uint64", Scalar.U64),
    ("is_float16", Scalar.F32),
    ("is_float32", Scalar.F32),
    ("is_float64", Scalar.F64),
    ("is_decimal", Scalar.F64),
    ("is_date", Scalar.DATE),
    ("is_timestamp", Scalar.DATETIME),
    ("is_binary", Scalar.BLOB),
    ("is_large_binary", Scalar.BLOB),
)


def _scalar_of(kind: pyarrow.DataType) -> Scalar | None:
    return next((scalar for test, scalar in _TYPES if getattr(pa.types, test)(kind)), None)


def _look_at_typed(column: SampledColumn) -> Column | None:
    values = column.values
    if isinstance(values, pyarrow.DictionaryArray):
        return look_at(replace(column, values=values.dictionary_decode()))
    scalar = _scalar_of(values.type)
    if scalar is None:
        return None
    if scalar is Scalar.BLOB:
        return _column(column, Notation(base=ScalarType(scalar), seen="bytes"), keys=None)
    encoded = values.dictionary_encode()
    distinct, places = encoded.dictionary, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    for notation in _typed_notations(column, scalar, distinct):
        stored = _read(distinct, notation, column)
        if stored is not None:
            kept, timestamps = stored
            return replace(_column(column, notation, _keys(notation.base, kept, places)), timestamps=timestamps)
    return None


def _typed_notations(column: SampledColumn, scalar: Scalar, distinct: Array) -> list[Notation]:
    words = words_of(column.name)
    bounds = pc.min_max(distinct.cast(pa.float64()) if scalar in (Scalar.F32, Scalar.F64) else distinct).as_py()
    least, most = bounds["min"], bounds["max"]
    match scalar:
        case Scalar.BOOL:
            return [Notation(base=ScalarType(scalar), seen="true or false")]
        case Scalar.DATE:
            return [Notation(base=ScalarType(scalar), seen=f"days {least:%Y-%m-%d} to {most:%Y-%m-%d}")]
        case Scalar.DATETIME:
            seen = f"{str(least)[:10]} to {str(most)[:10]}"
            days = Notation(base=ScalarType(Scalar.DATE), seen=f"days {seen}, all at midnight")
            return [days, Notation(base=ScalarType(scalar), seen=f"times {seen}")]
        case Scalar.F32 | Scalar.F64:
            found = [Notation(base=ScalarType(scalar), seen=numbers_seen("numbers", least, most))]
            if not column.is_declared and column.values.null_count and abs(least) < 2**53 and abs(most) < 2**53:
                whole = ScalarType(whole_scalar(words, int(least), int(most)))
                seen = f"whole numbers {least:.0f} to {most:.0f}; a column with empty rows holds them as fractions"
                found.insert(0, Notation(base=whole, seen=seen))
            return found
        case _:
            kept = scalar if column.is_declared else whole_scalar(words, least, most)
            if scalar is Scalar.U64 and not column.is_declared:
                kept = scalar
            return [Notation(base=ScalarType(kept), seen=numbers_seen("whole numbers", least, most))]


# ---- Lists


def _look_at_lists(column: SampledColumn) -> Column | None:
    values = column.values
    items = pc.list_flatten(values)
    item = items.type
    is_number = pa.types.is_floating(item) or pa.types.is_decimal(item)
    lengths = {length for length in pc.unique(pc.list_value_length(values)).to_pylist() if length is not None}
    found: BaseType | None = None
    seen = "lists"
    if (is_number or pa.types.is_integer(item)) and pa.types.is_fixed_size_list(values.type):
        found, seen = VectorType(values.type.list_size), vector_seen(values.type.list_size)
    elif is_number and is_vector(lengths, words_of(column.name)):
        (length,) = lengths
        found, seen = VectorType(length), vector_seen(length)
    elif pa.types.is_null(item) or is_text_type(item):
        found, seen = ListType(Scalar.STRING), f"lists of texts, {len(pc.unique(items)):,} different ones"
    elif (scalar := _scalar_of(item)) is not None and scalar is not Scalar.BLOB:
        found, seen = ListType(scalar), f"lists of up to {max(lengths, default=0):,} values"
    if found is None:
        return None
    notation = Notation(base=found, seen=seen)
    stored = _read(values, notation, column)
    return None if stored is None else _column(column, notation, keys=None)
