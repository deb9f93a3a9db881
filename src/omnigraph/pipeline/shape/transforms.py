"""Transforms of mapped columns: whole columns of any source → columns as they are stored.

    columns → trim → null → concat | first → split → bool | date_format | number → the type of the property

Each step has one meaning for files, frames and tables. It works on texts, in one pass of Arrow kernels; a value that is
not a text goes on as it is, and the type of the property judges it. What no step accepts is a violation, never a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import BaseType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.shape.columns import decoded, is_list_type, is_text_type, positions, stored_column
from omnigraph.pipeline.shape.value_sources import BoolWords, FixedText, NumberForm, Transforms, ValueSource, notation
from omnigraph.pipeline.shape.values import AS_IS, Reading, Timestamps, read_moments, too_fine
from omnigraph.pipeline.violations import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The values of a source: as Arrow, or as Python values.
Given: TypeAlias = "Array | list[object]"
#: What is wrong with values, by position.
ViolationTexts = dict[int, str]

_NANOSECONDS_PER_MILLISECOND = 1_000_000
_LEAST, _MOST = integer_range(Scalar.I64)


# ---- the columns of a batch


@frozen(kw_only=True)
class MappedColumn:
    """Values of some records that are still to be read."""

    source: ValueSource
    #: The columns of the source.
    columns: Mapping[str, Given]
    count: int
    #: Whether the source has no types.
    is_text: bool = False

    def __getitem__(self, part: slice) -> MappedColumn:
        return replace(
            self,
            columns={name: column[part] for name, column in self.columns.items()},
            count=len(range(self.count)[part]),
        )

    def __len__(self) -> int:
        return self.count

    @property
    def only_column(self) -> Given | None:
        """The values of the column, where there is one and no text is made of it."""
        name = self.source.only_column
        return None if name is None else self.columns[name]

    def value(self, position: int) -> object:
        """One value as a report shows it: as the source has it, what is joined as one text."""
        values = [
            part.text if isinstance(part, FixedText) else _value(self.columns[part], position)
            for part in self.source.parts
        ]
        if len(values) == 1:
            return values[0]
        if self.source.is_first:
            return next((item for item in values if item is not None), None)
        return self.source.separator.join("" if item is None else shown(item) for item in values)

    def prepare(self) -> tuple[Array, ViolationTexts]:
        """The values after `trim`, `null`, `concat` and `first`, and what is wrong with some; those are null."""
        violations: ViolationTexts = {}
        if self.only_column is not None:
            return self._cleaned(self.only_column, violations), violations
        texts = [
            pa.repeat(pa.scalar(part.text, pa.utf8()), self.count)
            if isinstance(part, FixedText)
            else _joinable(self._cleaned(self.columns[part], violations), violations)
            for part in self.source.parts
        ]
        if self.source.is_first:
            return pc.coalesce(*texts), violations
        separator = pa.scalar(self.source.separator, pa.utf8())
        return pc.binary_join_element_wise(*texts, separator), violations

    def _cleaned(self, column: Given, violations: ViolationTexts) -> Array:
        if isinstance(column, list):
            column = _texts_of_values(column, violations)
        return _cleaned(column, self.source.transforms, violations)


def read_mapped(given: MappedColumn, type_: PropertyType, reading: Reading = AS_IS) -> tuple[Array, ViolationTexts]:
    """The stored column of mapped values, and violation texts about bad ones, by position; those are null."""
    if isinstance(given.only_column, list):
        return _read_values(given, given.only_column, type_, reading)
    column, violations = given.prepare()
    step = _Step(transforms=given.source.transforms, violations=violations, timestamps=reading.timestamps)
    # A fixed text has no type either.
    is_text = given.is_text or not given.source.columns
    column, is_text = step.read(column, type_.base, is_text=is_text)
    stored, more = stored_column(type_, column, replace(reading, is_text=is_text))
    return stored, dict(sorted((more | violations).items()))


def _read_values(
    given: MappedColumn, values: list[object], type_: PropertyType, reading: Reading
) -> tuple[Array, ViolationTexts]:
    """Python values of several types, as JSON has them: those of one type are read together."""
    stored: list[Array] = []
    order: list[int] = []
    violations: ViolationTexts = {}
    (name,) = given.columns
    # The items of lists are read as the mapping says, where it does.
    has_items = isinstance(type_.base, ListType | VectorType) and given.source.transforms.is_typed
    for places, column in _by_type(values):
        lists = [item for item in column if isinstance(item, list)] if has_items and isinstance(column, list) else []
        if lists:
            some, found = _read_lists(given, lists, type_, reading)
        elif isinstance(column, list):
            some, found = stored_column(type_, column, reading)
        else:
            some, found = read_mapped(replace(given, columns={name: column}, count=len(column)), type_, reading)
        stored.append(some)
        order += places
        violations |= {places[position]: text for position, text in found.items()}
    if not stored:
        return stored_column(type_, [])
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(stored).take(pa.array(back)), dict(sorted(violations.items()))


def _read_lists(
    given: MappedColumn, lists: list[list[object]], type_: PropertyType, reading: Reading
) -> tuple[Array, ViolationTexts]:
    """Python lists: their items are read as single values are."""
    (name,) = given.columns
    items = [item for some in lists for item in some]
    steps = replace(given.source.transforms, null=(), split=None)
    part = MappedColumn(source=replace(given.source, transforms=steps), columns={name: items}, count=len(items))
    item_type = PropertyType(base=_item_type(type_.base), nullable=True)
    stored, found = read_mapped(part, item_type, replace(reading, tolerance=None))
    violations: ViolationTexts = {}
    lengths = np.array([len(some) for some in lists], dtype=np.int64)
    missing = np.zeros(len(lists), dtype=bool)
    column = _lists_of(stored, lengths, missing, found, violations)
    whole, more = stored_column(type_, column, reading)
    return whole, more | violations


def _item_type(base: BaseType) -> ScalarType:
    # The numbers of a vector are rounded to 32 bits when they are stored, as single values are.
    return ScalarType(base.item) if isinstance(base, ListType) else ScalarType(Scalar.F64)


def _by_type(values: list[object]) -> Iterator[tuple[list[int], Given]]:
    """Values with their positions: texts, truth values and numbers as Arrow, lists and everything else as they are."""
    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    groups: dict[type | None, list[int]] = {}
    for position, value in enumerate(values):
        kind: type = str if value is None else type(value)
        is_known = kind in (*kinds, str, list) and not (type(value) is int and not _LEAST <= value <= _MOST)
        groups.setdefault(kind if is_known else None, []).append(position)
    for found, places in groups.items():
        some = [values[place] for place in places]
        if found is str:
            yield places, _text_array(some)
        else:
            yield places, pa.array(some, kinds[found]) if found is not None and found in kinds else some


def _text_array(texts: Sequence[object]) -> Array:
    try:
        found: Array = pa.array(texts, pa.utf8())
    except UnicodeEncodeError:
        # Half a surrogate pair: the check of texts finds it.
        encoded = [None if text is None else str(text).encode("utf-8", "surrogatepass") for text in texts]
        found = pa.array(encoded, pa.binary()).view(pa.utf8())
    return found


def _value(column: Given, position: int) -> object:
    if isinstance(column, list):
        return column[position]
    try:
        return column[position].as_py()
    except (UnicodeDecodeError, OverflowError, ValueError):
        return str(column[position])


# ---- trim, null, concat, first


def _cleaned(column: Array, transforms: Transforms, violations: ViolationTexts) -> Array:
    column = decoded(column)
    if is_text_type(column.type):
        column = _checked(column, violations)
        if transforms.trim:
            column = pc.utf8_trim_whitespace(column)
    column = comparable(column)
    nulls = [item for text in transforms.null for item in as_values(text, column.type)]
    if nulls:
        is_null = pc.is_in(column, pa.concat_arrays(nulls))
        column = pc.if_else(is_null, pa.scalar(None, column.type), column)
    return column


def _checked(column: Array, violations: ViolationTexts) -> Array:
    """A column of texts that are UTF-8: files are trusted about their texts when they are opened."""
    column = column.cast(pa.utf8())
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for position, item in enumerate(column.cast(pa.binary()).to_pylist()):
            try:
                texts.append(None if item is None else item.decode())
            except UnicodeDecodeError:
                texts.append(None)
                violations[position] = "the text is not UTF-8"
        found: Array = pa.array(texts, pa.utf8())
        return found
    return column


def _texts_of_values(values: list[object], violations: ViolationTexts) -> Array:
    """Python values as texts, where they have one notation."""
    texts: list[str | None] = []
    for position, value in enumerate(values):
        if value is None or isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bool | int):
            texts.append(notation(value))
        else:
            texts.append(None)
            violations[position] = _not_joinable(value)
    return _text_array(texts)


def _joinable(column: Array, violations: ViolationTexts) -> Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return column.cast(pa.utf8())
    for position in positions(column.is_valid()):
        violations.setdefault(position, _not_joinable(_value(column, position)))
    found: Array = pa.nulls(len(column), pa.utf8())
    return found


def _not_joinable(value: object) -> str:
    return f"{shown(value)} is not a text, a whole number or a date, which can be joined"


# ---- split, bool, date_format, number


@frozen(kw_only=True)
class _Step:
    """The steps that make something else of texts; violations are collected."""

    transforms: Transforms
    violations: ViolationTexts
    timestamps: Timestamps | None

    def read(self, column: Array, base: BaseType, *, is_text: bool) -> tuple[Array, bool]:
        """The column for the type of a property, and whether its texts are those of a source without types."""
        match base:
            case ListType() | VectorType():
                return self._read_list(column, _item_type(base), is_text=is_text)
        return self._read_scalar(column, base, is_text=is_text)

    def _read_scalar(self, column: Array, base: BaseType, *, is_text: bool) -> tuple[Array, bool]:
        steps, kind = self.transforms, column.type
        if pa.types.is_integer(kind) and (steps.words is not None or steps.date_formats):
            # 20240131 is a date in the notation %Y%m%d, not a number of days.
            column = column.cast(pa.utf8())
        if not pa.types.is_string(column.type):
            return column, is_text
        if steps.words is not None:
            return self._truths(column, steps.words), is_text
        if steps.date_formats:
            return self._moments(column, base), is_text
        if steps.number is not None:
            return self._numbers(column, steps.number), True
        return column, is_text

    def _truths(self, texts: Array, words: BoolWords) -> Array:
        is_true = pc.is_in(texts, pa.array(words.true, pa.utf8()))
        is_false = pc.is_in(texts, pa.array(words.false, pa.utf8()))
        told = " nor ".join(
            f"{name} ({', '.join(some)})" for name, some in (("true", words.true), ("false", words.false))
        )
        is_good = pc.or_(is_true, is_false)
        self._refuse(texts, is_good, lambda text: f"{text!r} is neither {told}")
        found: Array = pc.if_else(is_good, is_true, pa.scalar(None, pa.bool_()))
        return found

    def _numbers(self, texts: Array, form: NumberForm) -> Array:
        is_good = pc.match_substring_regex(texts, form.pattern)
        self._refuse(texts, is_good, lambda text: f"{text!r} is not {form.description}")
        texts = pc.if_else(is_good, texts, pa.scalar(None, pa.utf8()))
        if form.thousands is not None:
            texts = pc.replace_substring(texts, form.thousands, "")
        return texts if form.decimal == "." else pc.replace_substring(texts, form.decimal, ".")

    def _moments(self, texts: Array, base: BaseType) -> Array:
        formats = self.transforms.date_formats
        found = read_moments(formats, texts)
        forms = " or ".join(item.text for item in formats)
        is_good = found.is_read
        self._refuse(texts, is_good, lambda text: f"{text!r} is not a date of the form {forms}")
        if base == ScalarType(Scalar.DATE):
            is_day = ~found.has_time
            self._refuse(texts, is_day, lambda text: f"{text!r} has a time of day, and a Date has none")
            days: Array = pa.array(found.days, pa.int64(), mask=~(is_good & is_day))
            return days.cast(pa.int32()).cast(pa.date32())
        whole, finer = np.divmod(found.nanoseconds, _NANOSECONDS_PER_MILLISECOND)
        if self.timestamps is Timestamps.ROUND:
            whole = whole + (2 * finer >= _NANOSECONDS_PER_MILLISECOND)
        elif self.timestamps is not Timestamps.TRUNCATE:
            is_whole = finer == 0
            self._refuse(texts, is_whole, lambda text: too_fine(repr(text), self.timestamps))
            is_good = is_good & is_whole
        moments: Array = pa.array(found.seconds * 1000 + whole, pa.int64(), mask=~is_good)
        return moments

    def _refuse(self, texts: Array, is_good: Array | NDArray[np.bool_], say: Callable[[str], str]) -> None:
        """Refuse the texts that are not good; a null is neither."""
        bad = pc.and_not(texts.is_valid(), pa.array(is_good))
        if not pc.any(bad).as_py():
            return
        for position in positions(bad):
            self.violations.setdefault(position, say(shown(texts[position].as_py())))

    def _read_list(self, column: Array, item: ScalarType, *, is_text: bool) -> tuple[Array, bool]:
        split = self.transforms.split
        is_split = pa.types.is_string(column.type) and split is not None
        if is_split:
            column = _split(column, split)
        elif not self.transforms.is_typed:
            return column, is_text
        elif not is_list_type(column.type):
            for position in positions(column.is_valid()):
                text = f"{shown(_value(column, position))} is not a list; `split` makes one of a text"
                self.violations.setdefault(position, text)
            return pa.nulls(len(column), pa.list_(pa.utf8())), False
        return self._read_items(column, item, is_split=is_split), False

    def _read_items(self, column: Array, item: ScalarType, *, is_split: bool) -> Array:
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        found: ViolationTexts = {}
        # Texts for null are about the whole value.
        items = _cleaned(pc.list_flatten(column), replace(self.transforms, null=()), found)
        inner = replace(self, violations=found)
        items, is_text = inner._read_scalar(items, item, is_text=is_split)
        reading = Reading(is_text=is_text, timestamps=self.timestamps)
        stored, more = stored_column(PropertyType(base=item, nullable=True), items, reading)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return _lists_of(stored, lengths, missing, more | found, self.violations)


def _lists_of(
    items: Array,
    lengths: NDArray[np.int64],
    missing: NDArray[np.bool_],
    found: ViolationTexts,
    violations: ViolationTexts,
) -> Array:
    """Lists of stored items. What was found about items is a violation of their list, which is null then."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    if pa.types.is_date64(items.type):
        # A moment is its number from here on: as a calendar day it would lose its time.
        items = items.view(pa.int64())
    for place, text in sorted(found.items()):
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        violations.setdefault(row, f"item {place - int(offsets[row]) + 1}: {text}")
    missing = missing.copy()
    missing[list(violations)] = True
    result: Array = pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(missing))
    return result


def _split(texts: Array, separator: str | None) -> Array:
    """Lists of texts; an empty text is an empty list."""
    lists = pc.split_pattern(texts, separator)
    is_empty = pc.equal(texts, "")
    found: Array = pc.if_else(is_empty, pa.scalar([], lists.type), lists)
    return found


# ---- texts for null in typed columns


_DIGIT = re.compile("[0-9]")
#: Zeros behind the digits that count of a fraction of a second, and a point that they leave alone.
_ZEROS = re.compile(r"(?:[.]|([.][0-9]*[1-9]))0+(?=(?:Z|[+-][0-9:]+)?$)", re.ASCII)
#: Types whose values have a notation of their own, with one of it.
_EXAMPLES: tuple[tuple[Callable[[pyarrow.DataType], bool], str], ...] = (
    (pa.types.is_integer, "-1"),
    (pa.types.is_floating, "-1.5"),
    (pa.types.is_decimal, "-1.5"),
    (pa.types.is_date, "1970-01-01"),
    (pa.types.is_timestamp, "1970-01-01T00:00:00Z"),
)


def comparable(column: Array) -> Array:
    """The same values in a type that Arrow compares."""
    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else column


def as_values(text: str, kind: pyarrow.DataType) -> list[Array]:
    """A text for null as a value of a typed column; none where it is not the notation of one."""
    is_hexadecimal = pa.types.is_integer(kind) and "x" in text.lower()
    is_other_word = pa.types.is_boolean(kind) and text not in ("true", "false")
    if is_hexadecimal or is_other_word:
        return []
    if pa.types.is_timestamp(kind):
        return _as_moments(text, kind)
    try:
        return [pa.array([text]).cast(kind)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return []


def _as_moments(text: str, kind: Any) -> list[Array]:
    """A text as a moment; one without a zone is in UTC."""
    plain = pa.array([_ZEROS.sub(r"\1", text)])
    for zone in (None, "UTC"):
        try:
            # Arrow takes texts with a zone for one type, and those without for the other.
            return [plain.cast(pa.timestamp(kind.unit, zone)).view(kind)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return []


def refuse_null_texts(source: ValueSource, column: str, kind: pyarrow.DataType, owner: str) -> None:
    """Make sure that texts for null say something about a column of numbers, days or moments.

    A word such as `N/A` is meant for other sources of the same mapping. A text with digits is meant for a value; if a
    column has none that any of the texts could be, the mapping does not do what it seems to do.

    Raises:
        BadRequestError: no text is a value of the column, and one has digits.
    """
    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    example = next((text for is_such, text in _EXAMPLES if is_such(kind)), None)
    numeric = [text for text in source.transforms.null if _DIGIT.search(text)]
    if example is None or not numeric:
        return
    if not any(as_values(text, kind) for text in source.transforms.null):
        raise BadRequestError(
            f"{owner}: `null: {shown(numeric[0])}` is not a value of the column `{shown(column)}`, which holds {kind}: "
            f"write it as such a value, as in `{example}`, beside texts for other sources"
        )
