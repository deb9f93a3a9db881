"""Lines of the graph format as columns, and streams of JSON objects."""

from __future__ import annotations

import codecs
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.json as _json

from omnigraph.core.arrow import Rows, pa, pc
from omnigraph.core.ids import node_table_key
from omnigraph.core.types import BaseType, EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.pipeline.shape.plan import EntityShape, LoadPlan
from omnigraph.pipeline.shape.shaping import RawRecords
from omnigraph.pipeline.sources.inputs import ByteStream, InputFile, open_text
from omnigraph.pipeline.sources.records import (
    MAX_LINE_BYTES,
    BadRecordError,
    Record,
    RecordViolation,
    decode_line,
    is_too_complex,
    is_too_long,
    not_utf8,
)
from omnigraph.pipeline.violations import Place, ViolationCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Records from lines of the graph format
#
# The fast reading is a shortcut of `records`: it is taken for a group of lines only when every one of them is a plain
# record of its type, and then it gives the same values.


pj: Any = _json
_Numbers: TypeAlias = "NDArray[np.int64]"

_KIND = pa.schema([("type", pa.utf8()), ("edge", pa.utf8())])
#: What C++ and Python read differently: an integer minus zero keeps its sign there, and NaN is a number.
_MINUS_ZERO = re.compile(rb"-0[\s,}\]]")
_CONSTANT = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")
#: How dates of a type were written last: nearly always as before.
_moments_seen: dict[str, int] = {}


def read_lines(
    lines: Sequence[bytes], numbers: _Numbers, plan: LoadPlan, violations: ViolationCounts, source: str
) -> Iterator[RawRecords]:
    """The records of some lines, one group per type; lines that are not a record are counted in `violations`."""
    if not _are_plain(lines):
        keep = [position for position, line in enumerate(lines) if _is_record(line)]
        if len(keep) < len(lines):
            lines, numbers = [lines[position] for position in keep], numbers[keep]
    if not lines:
        return
    slow: list[int] = []
    for shape, positions in _groups(lines, plan):
        found = None
        if shape is not None:
            chosen = lines if len(positions) == len(lines) else [lines[p] for p in positions]
            found = _fast_group(shape, chosen, numbers[positions], is_patch=plan.is_patch)
        if found is None:
            slow += positions.tolist()
        else:
            yield found
    if slow:
        slow.sort()
        yield from _slow_records([lines[p] for p in slow], numbers[slow], plan, violations, source)


def types_of(lines: Sequence[bytes], plan: LoadPlan) -> set[str]:
    """The table keys that appear in some lines; lines that are not a record are passed over."""
    lines = [line for line in lines if _is_record(line)]
    found: set[str] = set()
    for shape, positions in _groups(lines, plan) if lines else ():
        if shape is not None:
            found.add(shape.key)
            continue
        for position in positions:
            try:
                found.add(decode_line(lines[position], plan).shape.key)
            except BadRecordError:
                continue
    return found


def _is_record(line: bytes) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith(b"//")


def _are_plain(lines: Sequence[bytes]) -> bool:
    """Whether every line is one object as far as its first and last character tell. Counts instead of looking."""
    blob = b"\n".join(lines)
    begins = blob.count(b"\n{") + blob.startswith(b"{")
    ends = blob.count(b"}\n") + blob.endswith(b"}")
    return begins == ends == len(lines)


def _groups(lines: Sequence[bytes], plan: LoadPlan) -> Iterator[tuple[EntityShape | None, _Numbers]]:
    """Positions of lines by type; None for lines that need a closer look."""
    everything = np.arange(len(lines))
    plain = _are_plain(lines) or all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines)
    kinds = None
    if plain and not any(is_too_long(line) or is_too_complex(line) for line in lines):
        kinds = _parse(b"\n".join(lines), _KIND, "ignore")
    if kinds is None or kinds.num_rows != len(lines):
        yield None, everything
        return
    nodes, edges = (kinds[name].combine_chunks() for name in ("type", "edge"))
    both = pc.and_(nodes.is_valid(), edges.is_valid()).to_numpy(zero_copy_only=False)
    left = np.ones(len(lines), dtype=bool)
    found: dict[str, tuple[EntityShape, NDArray[np.bool_]]] = {}
    for column, is_edge in ((nodes, False), (edges, True)):
        for name in column.unique().to_pylist():
            shape = None if name is None else _shape(name, is_edge, plan)
            if shape is None:
                continue
            mask = pc.fill_null(pc.equal(column, name), False).to_numpy(zero_copy_only=False)
            mask = mask & ~both
            left &= ~mask
            # One group per type: edge types have several spellings, and their records one order.
            _, known = found.get(shape.key, (shape, np.zeros(len(lines), dtype=bool)))
            found[shape.key] = (shape, known | mask)
    for shape, mask in found.values():
        if mask.any():
            yield shape, np.flatnonzero(mask)
    if left.any():
        yield None, np.flatnonzero(left)


def _shape(name: str, is_edge: bool, plan: LoadPlan) -> EntityShape | None:
    key = plan.edge_words.get(name.casefold()) if is_edge else node_table_key(name)
    return None if key is None else plan.shapes.get(key)


def _parse(blob: bytes, schema: pyarrow.Schema, unexpected: str) -> Rows | None:
    """Lines as a table, or None when one of them does not fit."""
    try:
        table: Rows = pj.read_json(
            pa.BufferReader(blob),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(blob) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table


# ---- a group of plain lines


def _fast_group(shape: EntityShape, lines: Sequence[bytes], numbers: _Numbers, *, is_patch: bool) -> RawRecords | None:
    blob = b"\n".join(lines)
    if _has_odd_numbers(blob):
        return None
    if is_patch and b"null" in blob:
        # Left out, or null? Here both look alike.
        return None
    if not is_utf8(blob):
        return None
    forms = (pa.int64(), pa.utf8())
    first = _moments_seen.get(shape.key, 0)
    table = None
    for form in (first, 1 - first)[: 2 if _has_moments(shape) else 1]:
        schema = _line_schema(shape, forms[form])
        table = _parse(blob, schema, "error")
        if table is not None:
            _moments_seen[shape.key] = form
            break
    if table is None or table.num_rows != len(lines):
        return None
    data = table["data"].combine_chunks()
    if data.null_count:
        # Left out, or null? A null is an error that the closer look finds.
        empty = np.flatnonzero(data.is_null().to_numpy(zero_copy_only=False)).tolist()
        if any(b'"data"' in lines[p] or b"\\u" in lines[p] for p in empty):
            return None
    columns = {
        name: pc.struct_field(data, name)
        for name in shape.definition.properties
        if name in schema.field("data").type.names
    }
    lists = (column for column in columns.values() if pa.types.is_list(column.type))
    if any(pc.list_flatten(column).null_count for column in lists):
        return None
    ends = None
    if shape.ends is not None:
        ends = (table["from"].combine_chunks(), table["to"].combine_chunks())
    ids, inner = table["id"].combine_chunks(), pc.struct_field(data, "id")
    if pc.any(pc.not_equal(ids, inner)).as_py():
        return None
    ids = pc.coalesce(ids, inner)
    if not is_patch:
        return RawRecords(shape=shape, columns=columns, ids=ids, ends=ends, lines=numbers)
    given = {name: column.is_valid().to_numpy(zero_copy_only=False) for name, column in columns.items()}
    columns = {name: column for name, column in columns.items() if given[name].any()}
    present = {name: given[name] for name in columns if not given[name].all()}
    return RawRecords(shape=shape, columns=columns, ids=ids, ends=ends, lines=numbers, present=present)


def is_utf8(blob: bytes) -> bool:
    """Whether bytes are a text, without making a text of up to four times their size of them."""
    if blob.isascii():
        return True
    ends = pa.array([0, len(blob)], pa.int64()).buffers()[1]
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(blob)])
    try:
        whole.cast(pa.large_utf8())
    except pa.ArrowInvalid:
        return False
    return True


def _has_odd_numbers(blob: bytes) -> bool:
    # Substrings first: they are found many times faster, and mostly there are none.
    if b"-0" in blob and _MINUS_ZERO.search(blob):
        return True
    has_constant = b"NaN" in blob or b"Inf" in blob
    return has_constant and _CONSTANT.search(blob) is not None


def _line_schema(shape: EntityShape, moments: pyarrow.DataType) -> pyarrow.Schema:
    properties = shape.definition.properties
    members = {name: _json_type(prop.type.base, moments) for name, prop in properties.items()}
    members["id"] = pa.utf8()
    head = ("type", "id") if shape.ends is None else ("edge", "from", "to", "id")
    data = pyarrow.struct(list(members.items()))
    return pyarrow.schema([*(pyarrow.field(name, pyarrow.utf8()) for name in head), pyarrow.field("data", data)])


def _json_type(base: BaseType, moments: pyarrow.DataType) -> pyarrow.DataType:
    match base:
        case ListType(item):
            return pyarrow.list_(_json_type(ScalarType(item), moments))
        case VectorType():
            return pyarrow.list_(pyarrow.float64())
        case EnumType() | ScalarType(Scalar.STRING | Scalar.BLOB):
            return pyarrow.utf8()
        case ScalarType(Scalar.BOOL):
            return pyarrow.bool_()
        case ScalarType(Scalar.DATE | Scalar.DATETIME):
            return moments
        case ScalarType(Scalar.F32 | Scalar.F64):
            return pyarrow.float64()
        case ScalarType(Scalar.U64):
            return pyarrow.uint64()
        case _:
            return pyarrow.int64()


def _has_moments(shape: EntityShape) -> bool:
    bases = [prop.type.base for prop in shape.definition.properties.values()]
    scalars = [
        base.item if isinstance(base, ListType) else base.scalar
        for base in bases
        if isinstance(base, ListType | ScalarType)
    ]
    return any(scalar in (Scalar.DATE, Scalar.DATETIME) for scalar in scalars)


# ---- lines one by one


def _slow_records(
    lines: Sequence[bytes], numbers: _Numbers, plan: LoadPlan, violations: ViolationCounts, source: str
) -> Iterator[RawRecords]:
    found: list[tuple[int, Record]] = []
    refused: list[tuple[int, Record]] = []
    for line, number in zip(lines, numbers.tolist(), strict=True):
        try:
            found.append((number, decode_line(line, plan)))
        except BadRecordError as bad:
            count_bad(bad, number, source, violations)
            if bad.record is not None:
                refused.append((number, bad.record))
    yield from group_records(found, plan)
    for raw in group_records(refused, plan):
        raw.is_refused = True
        yield raw


def count_bad(bad: BadRecordError, line: int, source: str, violations: ViolationCounts) -> None:
    """Count what is wrong with one record."""
    violations.records += 1
    for item in bad.violations:
        violations.add(
            Place(source, line),
            item.rule,
            f"{item.rule}: {item.message}",
            type_key=item.type_key,
            field=item.field,
            value=item.value,
        )


def group_records(found: list[tuple[int, Record]], plan: LoadPlan) -> Iterator[RawRecords]:
    """Records by type, as columns of Python values; of a patch with the properties that records bring."""
    groups: dict[str, list[tuple[int, Record]]] = defaultdict(list)
    for number, record in found:
        groups[record.shape.key].append((number, record))
    for members in groups.values():
        shape = members[0][1].shape
        names: Sequence[str] = list(shape.definition.properties)
        present: dict[str, NDArray[np.bool_]] = {}
        if plan.is_patch:
            present = {name: np.array([name in item.data for _, item in members]) for name in names}
            names = [name for name in names if present[name].any()]
        yield RawRecords(
            shape=shape,
            columns={name: [item.data.get(name) for _, item in members] for name in names},
            ids=[item.id for _, item in members],
            ends=None
            if shape.ends is None
            else ([item.source for _, item in members], [item.target for _, item in members]),
            lines=np.array([number for number, _ in members], dtype=np.int64),
            present={name: present[name] for name in names if plan.is_patch and not present[name].all()},
        )


# ---- Sequences of JSON values in one text
#
# A text of any size is read in bounded memory: one value, and the block that it ends in.


_BLOCK_BYTES = 8 * 1024 * 1024
#: Reads what a grammar refuses.
_ANY = json.JSONDecoder()
#: What may stand between objects, once or more often: blanks, and a comment with the end of its line. Only classes
#: are repeated possessively: before Python 3.11.5 a group that is keeps the beginning of a turn that failed.
_BETWEEN = re.compile(r"[\s\ufeff]*+(?://[^\n]*+\n)?")
_COMMENT_AT_END = re.compile(r"//[^\n]*+\Z")
_SPACE = re.compile(r"[ \t\n\r\ufeff]*+")


class BrokenOffError(BadRecordError):
    """The values of a text end before it does; never leaves the room."""

    def __init__(self, cause: BadRecordError, offset: int) -> None:
        super().__init__(*cause.violations)
        #: The characters before what cannot be read.
        self.offset = offset


def read_objects(file: InputFile, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    """The JSON values of a file with their lengths; for a bad one the error about it.

    Behind a broken value nothing can be told apart any more, so the reading ends there with a `BrokenOffError`.
    """
    with open_text(file) as stream:
        yield from _objects(_Text(stream), decoder)


def read_items(file: InputFile, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    """The items of the list that a file holds, as `read_objects`."""
    with open_text(file) as stream:
        yield from _items(_Text(stream), decoder)


def value_texts(file: InputFile, decoder: json.JSONDecoder, *, is_list: bool) -> Iterator[str]:
    """The texts of the items of a list, or of the values of a file, as they stand there."""
    with open_text(file) as stream:
        text = _Text(stream)
        for _, length in (_items if is_list else _objects)(text, decoder):
            yield text.known[text.position - length : text.position]


def rest_of(file: InputFile, offset: int) -> Iterator[bytes]:
    """The bytes of a text behind so many characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with open_text(file) as stream:
        while offset and (block := stream.read(_BLOCK_BYTES)):
            begun = len(decoder.getstate()[0])
            found = decoder.decode(block)
            if len(found) >= offset:
                yield block[len(found[:offset].encode()) - begun :]
            offset = max(0, offset - len(found))
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _objects(text: _Text, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    try:
        while True:
            text.skip(_BETWEEN)
            if text.is_at_end or _COMMENT_AT_END.match(text.known, text.position):
                if not text.extend():
                    return
                continue
            yield text.value(decoder)
    except BadRecordError as broken:
        yield BrokenOffError(broken, text.offset), 0


def _items(text: _Text, decoder: json.JSONDecoder) -> Iterator[tuple[object, int]]:
    try:
        text.expect("[")
        if text.expect("]", ",", is_first=True) == ",":
            while True:
                text.next_character()
                yield text.value(decoder)
                if text.expect(",", "]") == "]":
                    break
        if text.next_character():
            raise _broken(f"Extra data at character {text.offset + 1:,}")
    except BadRecordError as broken:
        yield BrokenOffError(broken, text.offset), 0


class _Text:
    """The part of a text that is in memory, and where the reading stands in it."""

    def __init__(self, stream: ByteStream) -> None:
        self.known = ""
        self.position = 0
        #: Characters that were dropped before what is known.
        self._before = 0
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_complete = False
        self._bytes_read = 0
        #: What is wrong with the bytes behind what is known.
        self._failure: BadRecordError | None = None

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.known)

    @property
    def offset(self) -> int:
        """The position in the whole text."""
        return self._before + self.position

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Pass over what the pattern matches here, as often as it does."""
        while (found := pattern.match(self.known, self.position)) is not None and found.end() > self.position:
            self.position = found.end()

    def extend(self) -> bool:
        """Read on; False at the end of the text.

        Raises:
            BadRecordError: the value that began is too long, or the bytes are not a text.
        """
        if self._failure is not None:
            raise self._failure
        if self._is_complete:
            return False
        if len(self.known) - self.position > MAX_LINE_BYTES:
            raise _broken(f"the value at character {self.offset + 1:,} has more than {MAX_LINE_BYTES:,} characters")
        block = self._stream.read(_BLOCK_BYTES)
        self._is_complete = not block
        # The decoder keeps the bytes of a character that is not complete.
        before = self._bytes_read - len(self._decoder.getstate()[0])
        self._bytes_read += len(block)
        try:
            more = self._decoder.decode(block, final=self._is_complete)
        except UnicodeDecodeError as error:
            self._failure = _broken(f"the text {not_utf8(error, before)}")
            more = error.object[: error.start].decode()
        del block
        self._before += self.position
        self.known, self.position = self.known[self.position :] + more, 0
        return True

    def value(self, decoder: json.JSONDecoder) -> tuple[object, int]:
        """The JSON value that begins here, or the error about what the decoder refuses in it, with its length.

        Raises:
            BadRecordError: it is not one.
        """
        while True:
            try:
                body, end = decoder.raw_decode(self.known, self.position)
            except RecursionError as error:
                raise _broken("the values are nested too deeply") from error
            except ValueError as error:
                length = 0 if isinstance(error, json.JSONDecodeError) else self._pass_over()
                if length:
                    return _broken(str(error)), length
                if not self.extend():
                    raise _broken(str(error)) from error
            else:
                # A number may go on in the next block.
                if end < len(self.known) or not isinstance(body, int | float) or not self.extend():
                    length, self.position = end - self.position, end
                    return body, length

    def _pass_over(self) -> int:
        """Pass over a value that a grammar refuses; its length, 0 where it does not end here."""
        try:
            _, end = _ANY.raw_decode(self.known, self.position)
        except (ValueError, RecursionError):
            return 0
        length, self.position = end - self.position, end
        return length

    def next_character(self) -> str:
        """The next one that is not white space, which stays; nothing at the end."""
        while True:
            self.skip(_SPACE)
            if not self.is_at_end:
                return self.known[self.position]
            if not self.extend():
                return ""

    def expect(self, *wanted: str, is_first: bool = False) -> str:
        """Pass over the next character, which is one of these; before the first item a comma is understood.

        Raises:
            BadRecordError: it is another one.
        """
        found = self.next_character()
        if is_first and found != "]":
            return ","
        if found not in wanted or not found:
            names = " or ".join(f"'{name}'" for name in wanted)
            raise _broken(f"Expecting {names} at character {self.offset + 1:,}")
        self.position += 1
        return found


def _broken(message: str) -> BadRecordError:
    return BadRecordError(RecordViolation(rule="invalid JSON", message=message))
