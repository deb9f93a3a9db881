"""One JSON text → one record of the graph format, with everything that can be wrong about it.

This is the meaning of the format in both grammars; `jsonl` reads good lines faster and comes here for all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NoReturn

from omnigraph.core.ids import TableKey
from omnigraph.core.source import did_you_mean
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.pipeline.shape.plan import EntityShape, LoadPlan

MAX_LINE_BYTES = 32 * 1024 * 1024
#: The rule that a longer line violates.
LINE_TOO_LONG = "line too long"
MAX_STRUCTURAL_TOKENS = 131_072
_ENVELOPE = {"node": ("type", "id", "data"), "edge": ("edge", "id", "from", "to", "data")}
_RESERVED = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_distance",
        "_score",
        "_tombstone",
        "src",
        "dst",
    }
)
#: A text, closed or not, or a structural token. Possessive: nothing is remembered, and no byte is looked at twice.
_TEXT_OR_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\],:]', re.DOTALL)
_QUOTE = b'"'


@frozen(kw_only=True)
class RecordViolation:
    """A violation in one record."""

    rule: str
    message: str
    field: str | None = None
    value: object = None
    type_key: str | None = None


@frozen(kw_only=True)
class Record:
    """A record with known type; its values are not judged yet."""

    shape: EntityShape
    data: Mapping[str, object]
    id: object = None
    source: object = None
    target: object = None


class BadRecordError(Exception):
    """A record that is not one; never leaves the room."""

    def __init__(self, *violations: RecordViolation, record: Record | None = None) -> None:
        super().__init__("; ".join(item.message for item in violations))
        self.violations = violations
        #: As far as it can be read all the same: others may name it.
        self.record = record


def decode_line(line: bytes, plan: LoadPlan) -> Record:
    """The record of one line.

    Raises:
        BadRecordError: with everything that is wrong with its structure.
    """
    if is_too_long(line):
        _refuse(LINE_TOO_LONG, f"the line has more than {size_text(MAX_LINE_BYTES)}")
    if plan.is_strict and is_too_complex(line):
        _refuse(
            "line too complex",
            f"the line has more than {MAX_STRUCTURAL_TOKENS:,} structural tokens (braces, brackets, commas, colons)",
        )
    try:
        body = decoder(plan).decode(line.decode())
    except UnicodeDecodeError as error:
        _refuse("invalid JSON", f"the line {not_utf8(error)}")
    except json.JSONDecodeError as error:
        _refuse("invalid JSON", f"{error.msg} at column {error.colno}")
    except RecursionError:
        _refuse("invalid JSON", "the values are nested too deeply")
    except ValueError as error:
        # A constant that JSON lacks, a repeated member, a number of thousands of digits.
        rule = "duplicate member" if "twice" in str(error) else "invalid JSON"
        _refuse(rule, str(error))
    return read_record(body, plan)


def not_utf8(error: UnicodeDecodeError, before: int = 0) -> str:
    """The violation text of bytes that are not UTF-8; `before` bytes came before those that were read."""
    place = before + error.start + 1
    return f"is not UTF-8: {error.reason} at byte {place:,}; convert it, for example with iconv"


def is_too_long(line: bytes) -> bool:
    """Whether a line is longer than any record may be; it may be cut behind that length."""
    return len(line) > MAX_LINE_BYTES


def is_too_complex(line: bytes) -> bool:
    """Whether a line has more structural tokens than a record may have. Takes no memory, whatever the line is."""
    if len(line) <= MAX_STRUCTURAL_TOKENS:
        return False
    tokens = 0
    for found in _TEXT_OR_TOKEN.finditer(line):
        tokens += line[found.start() : found.start() + 1] != _QUOTE
        if tokens > MAX_STRUCTURAL_TOKENS:
            return True
    return False


def decoder(plan: LoadPlan) -> json.JSONDecoder:
    """A JSON decoder of the grammar: strict refuses a repeated member at any depth."""
    return json.JSONDecoder(object_pairs_hook=_distinct if plan.is_strict else None, parse_constant=_no_constant)


def read_record(body: object, plan: LoadPlan) -> Record:
    """The record that a JSON value describes.

    Raises:
        BadRecordError: with everything that is wrong with its structure.
    """
    if not isinstance(body, dict):
        _refuse("invalid record", "a record is a JSON object")
    if "type" in body and ("edge" not in body or not plan.is_strict):
        kind, shape = "node", _node_shape(body["type"], plan)
    elif "edge" in body and "type" not in body:
        kind, shape = "edge", _edge_shape(body["edge"], plan)
    elif "type" in body:
        _refuse("invalid record", "a record has `type` or `edge`, not both")
    else:
        _refuse("invalid record", "a record has a member `type` (node) or `edge`")
    data = body.get("data", {})
    if not isinstance(data, dict):
        _refuse("invalid record", "`data` is not an object", "data", data, shape)
    record = Record(
        shape=shape, data=data, id=_given_id(body, data, shape), source=body.get("from"), target=body.get("to")
    )
    violations = _unknown_members(body, data, kind, shape) if plan.is_strict else []
    if violations:
        raise BadRecordError(*violations, record=record)
    return record


def _given_id(body: Mapping[str, object], data: Mapping[str, object], shape: EntityShape) -> object:
    """The explicit id of a record: a member of its own, as newer exports have it, or one of its data."""
    outer, inner = body.get("id"), data.get("id")
    if outer is not None and inner is not None and outer != inner:
        text = "`id` and `data.id` are two ids of one record: leave one of them out"
        _refuse("invalid record", text, "id", outer, shape)
    return inner if outer is None else outer


def _node_shape(name: object, plan: LoadPlan) -> EntityShape:
    found = plan.shapes.get(TableKey(f"node:{name}")) if isinstance(name, str) else None
    if found is None:
        known = [key.name for key in plan.shapes if key.kind == "node"]
        _refuse("unknown type", f"there is no node type {_quoted(name, known)}", "type", name)
    return found


def _edge_shape(name: object, plan: LoadPlan) -> EntityShape:
    key = plan.edge_words.get(name.casefold()) if isinstance(name, str) else None
    if key is None:
        known = [item.name for item in plan.shapes if item.kind == "edge"]
        _refuse("unknown type", f"there is no edge type {_quoted(name, known)}", "edge", name)
    return plan.shapes[key]


def _quoted(name: object, known: list[str]) -> str:
    if not isinstance(name, str):
        return f"{name!r}: its name is a text"
    hint = did_you_mean(name, known)
    return f"`{name}`" + (f": {hint}" if hint else "")


def _unknown_members(
    body: Mapping[str, object], data: Mapping[str, object], kind: str, shape: EntityShape
) -> list[RecordViolation]:
    violations: list[RecordViolation] = []
    for name, value in body.items():
        if name not in _ENVELOPE[kind]:
            text = f"a record of {shape.name} has no member `{name}`"
            violations.append(
                RecordViolation(rule="unknown field", message=text, field=name, value=value, type_key=shape.key)
            )
    return violations + unknown_fields(shape, list(data), data)


def unknown_fields(
    shape: EntityShape, names: list[str], values: Mapping[str, object] | None = None
) -> list[RecordViolation]:
    """Names that are not a property of a type."""
    properties = shape.definition.properties
    violations = []
    for name in names:
        if name in properties or name == "id":
            continue
        is_reserved = name in _RESERVED
        rule = "reserved field" if is_reserved else "unknown field"
        hint = None if is_reserved else did_you_mean(name, list(properties))
        text = (
            f"`{name}` belongs to the storage and cannot be loaded"
            if is_reserved
            else f"{shape.name} has no property `{name}`" + (f": {hint}" if hint else "")
        )
        value = None if values is None else values[name]
        violations.append(RecordViolation(rule=rule, message=text, field=name, value=value, type_key=shape.key))
    return violations


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member `{twice}` is given twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def _refuse(
    rule: str, message: str, field: str | None = None, value: object = None, shape: EntityShape | None = None
) -> NoReturn:
    key = None if shape is None else shape.key
    violation = RecordViolation(rule=rule, message=message, field=field, value=value, type_key=key)
    raise BadRecordError(violation)
