"""The JSON form of classes. Members are declared once, as annotated fields: encoder, decoder and JSON schema follow.

It lies below every room, failures included, and knows nothing of them.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NotRequired,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from omnigraph.frozen import frozen

Json = dict[str, object]

# ---- How a field differs from its plain form


@frozen
class Key:
    """The member has another name than the field."""

    name: str


@frozen
class When:
    """The member is there only if its owner says so."""

    test: Callable[..., bool]


@frozen
class Absent:
    """What a body without the member means, from the fields that were read before it."""

    value: Callable[[Mapping[str, object]], object]


@frozen
class Through:
    """The value has the JSON form of another type, `form`: there is a way to it and back."""

    form: object
    encode: Callable[..., object]
    decode: Callable[..., object]


@frozen
class Spread:
    """The value is several members of the same object."""

    keys: tuple[str, ...]
    encode: Callable[..., Sequence[object]]
    decode: Callable[..., object]


#: A table key such as `node:Paper`, told as its two parts.
ENTITY_TYPE = Spread(
    ("entity_kind", "type_name"), lambda key: key.split(":", 1), lambda kind, name: f"{_text(kind)}:{_text(name)}"
)


@frozen
class Text:
    """A sentence about the member, for the JSON schema."""

    text: str


class Mark(Enum):
    """Marks without a value."""

    #: Left out when it is None.
    OMIT_NONE = "omit_none"
    #: Left out when it is None or empty.
    OMIT_EMPTY = "omit_empty"
    #: Only in complete documents, which servers send; what people look at is shorter.
    COMPLETE = "complete"
    #: Not a member.
    HIDDEN = "hidden"


OMIT_NONE, OMIT_EMPTY, COMPLETE, HIDDEN = Mark


class Document:
    """A class whose fields are members of a JSON object; `computed` adds properties behind named members."""

    __slots__ = ()
    #: Property → the member that it follows.
    computed: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> Json:
        """The JSON object that people see."""
        return encode(self)

    def document(self) -> Json:
        """The complete JSON object, as a server sends it."""
        return encode(self, complete=True)

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Self:
        """The inverse of `document`; members that this release does not know are ignored.

        Raises:
            KeyError, TypeError, ValueError: a member is missing, or is of another type.
        """
        return cls(**decode_members(members_of(cls), body))

    def _repr_html_(self) -> str:
        """The members that people see as a table, for notebooks."""
        from html import escape

        left = 'style="text-align:left"'
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(_cell(value))}</td></tr>"
            for name, value in self.to_json().items()
        )
        title = escape(type(self).__name__)
        return f"<table><caption {left}><b>{title}</b></caption><tbody>{rows}</tbody></table>"


#: Longest text of a member that a notebook shows.
_SHOWN = 300


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}… ({len(text):,} characters)"
    return text


# ---- Members of a class


class Form(NamedTuple):
    """One type: how its values become JSON and come back, and its JSON schema."""

    #: None where values are JSON already.
    encode: Callable[[Any, bool], object] | None
    decode: Callable[[object], object]
    schema: Callable[[Schemas], Json]


class Member(NamedTuple):
    """One declared field."""

    name: str
    key: str
    form: Form
    when: Callable[..., bool] | None
    marks: frozenset[Mark]
    spread: Spread | None
    absent: Absent | None
    default: object
    is_computed: bool
    text: str | None

    @property
    def is_required(self) -> bool:
        """Whether every complete document has it."""
        return self.when is None and not self.marks & {OMIT_NONE, OMIT_EMPTY}


def encode(owner: object, *, complete: bool = False) -> Json:
    """The JSON object of an instance."""
    return encode_members(owner, members_of(type(owner)), complete=complete)


def encode_members(owner: object, members: Sequence[Member], *, complete: bool) -> Json:
    """The JSON object of some members of an instance."""
    body: Json = {}
    for member in members:
        marks = member.marks
        if marks and not complete and COMPLETE in marks:
            continue
        value = getattr(owner, member.name)
        if marks and (
            (value is None and (OMIT_NONE in marks or OMIT_EMPTY in marks)) or (OMIT_EMPTY in marks and not value)
        ):
            continue
        if member.when is not None and not member.when(owner):
            continue
        if member.spread is not None:
            body |= zip(member.spread.keys, member.spread.encode(value), strict=True)
        elif value is None or member.form.encode is None:
            body[member.key] = value
        else:
            body[member.key] = member.form.encode(value, complete)
    return body


def decode_members(members: Sequence[Member], body: Mapping[str, object]) -> dict[str, Any]:
    """The fields that a JSON object gives to an instance.

    Raises:
        KeyError, TypeError, ValueError: a member is missing, or is of another type.
    """
    values: dict[str, object] = {}
    for member in members:
        if member.is_computed:
            continue
        if member.spread is not None:
            parts = (body[key] for key in member.spread.keys)
            values[member.name] = member.form.decode(member.spread.decode(*parts))
        elif member.key in body:
            values[member.name] = member.form.decode(body[member.key])
        elif member.absent is not None:
            values[member.name] = member.absent.value(values)
        elif member.default is MISSING:
            # What may be null is null where it is left out.
            values[member.name] = _decode_absent(member)
    return values


def _decode_absent(member: Member) -> object:
    try:
        return member.form.decode(None)
    except TypeError:
        raise KeyError(member.key) from None


def members_of(cls: type) -> tuple[Member, ...]:
    """The members of a class in their order."""
    found = _MEMBERS.get(cls)
    if found is None:
        found = _MEMBERS[cls] = _find_members(cls)
    return found


_MEMBERS: dict[type, tuple[Member, ...]] = {}


def _find_members(cls: type) -> tuple[Member, ...]:
    defaults = _defaults(cls)
    members = [
        _member(name, hint, defaults.get(name, MISSING))
        for name, hint in _hints(cls).items()
        if ClassVar not in (hint, get_origin(hint)) and HIDDEN not in _annotations(hint)
    ]
    for name, before in getattr(cls, "computed", {}).items():
        getter = inspect.getattr_static(cls, name).fget
        hint = get_type_hints(getter, include_extras=True)["return"]
        place = next((n for n, item in enumerate(members, 1) if item.name == before), 0)
        members.insert(place, _member(name, hint, MISSING)._replace(is_computed=True))
    return tuple(members)


def _hints(cls: type) -> dict[str, object]:
    """The annotations of a class and its bases; not by `get_type_hints`, which hides modules from functions in them."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        found |= inspect.get_annotations(base, eval_str=True)
    return found


def own_members(cls: type) -> tuple[Member, ...]:
    """The members that a class declares itself, without those of its bases."""
    names = inspect.get_annotations(cls)
    return tuple(member for member in members_of(cls) if member.name in names)


def _defaults(cls: type) -> dict[str, object]:
    if not is_dataclass(cls):
        return {}
    return {
        item.name: item.default if item.default_factory is MISSING else item.default_factory for item in fields(cls)
    }


def _member(name: str, hint: object, default: object) -> Member:
    marks: set[Mark] = set()
    options: dict[type, Any] = {}
    for mark in _annotations(hint):
        if isinstance(mark, Mark):
            marks.add(mark)
        else:
            options[type(mark)] = mark
    when, key, text = options.get(When), options.get(Key), options.get(Text)
    return Member(
        name=name,
        key=name if key is None else key.name,
        form=form_of(hint),
        when=None if when is None else when.test,
        marks=frozenset(marks),
        spread=options.get(Spread),
        absent=options.get(Absent),
        default=default,
        is_computed=False,
        text=None if text is None else text.text,
    )


def _annotations(hint: object) -> tuple[object, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


# ---- Types


@cache
def form_of(hint: object) -> Form:
    """The form of a type.

    Raises:
        TypeError: the type has no JSON form.
    """
    if get_origin(hint) is Annotated:
        through = next((mark for mark in _annotations(hint) if isinstance(mark, Through)), None)
        if through is None:
            return form_of(get_args(hint)[0])
        inner = form_of(through.form)
        return Form(
            lambda value, complete: _encoded(inner, through.encode(value), complete),
            lambda value: through.decode(inner.decode(value)),
            inner.schema,
        )
    if (inner_type := getattr(hint, "__supertype__", None)) is not None:
        return form_of(inner_type)
    if hint is Any or hint is object:
        return Form(None, lambda value: value, lambda _: {})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return Form(None, _one_of(arguments), lambda _: {"enum": list(arguments)})
    if isinstance(hint, type) and hint in _SCALARS:
        return _scalar(hint)
    if isinstance(origin, type) and arguments:
        if issubclass(origin, Mapping):
            return _mapping(form_of(arguments[1]))
        if issubclass(origin, Sequence | AbstractSet):
            return _array(origin, form_of(arguments[0]))
    if is_typeddict(hint):
        return _typed_dict(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [item.value for item in hint]
        return Form(lambda value, _: value.value, hint, lambda _: {"type": "string", "enum": values})
    if isinstance(hint, type) and issubclass(hint, str):
        return Form(None, lambda value: hint(_text(value)), lambda _: {"type": "string"})
    if isinstance(hint, type) and (issubclass(hint, Document) or is_dataclass(hint)):
        return _object(hint)
    raise TypeError(f"{hint!r} has no JSON form")


def _encoded(form: Form, value: object, complete: bool) -> object:
    return value if form.encode is None else form.encode(value, complete)


_SCALARS: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "string"),
    int: ((int,), "integer"),
    float: ((float, int), "number"),
    bool: ((bool,), "boolean"),
    type(None): ((type(None),), "null"),
}


def _scalar(kind: type) -> Form:
    accepted, name = _SCALARS[kind]
    return Form(None, _checked(accepted), lambda _: {"type": name})


def _checked(accepted: tuple[type, ...]) -> Callable[[object], object]:
    def decode(value: object) -> object:
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join(kind.__name__ for kind in accepted)
            raise TypeError(f"{type(value).__name__} instead of {names}")
        return value

    return decode


def _one_of(values: tuple[object, ...]) -> Callable[[object], object]:
    def decode(value: object) -> object:
        if value not in values:
            raise ValueError(f"not one of {values}")
        return value

    return decode


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of str")
    return value


def _union(kinds: tuple[object, ...]) -> Form:
    forms = [form_of(kind) for kind in kinds if kind is not type(None)]
    is_nullable = len(forms) < len(kinds)
    # Several kinds are told apart on the way back only; on the way out they are JSON already.
    if len(forms) > 1 and any(form.encode is not None for form in forms):
        raise TypeError(f"a union of {kinds} has no JSON form: give one with `Through`")

    def decode(value: object) -> object:
        if value is None and is_nullable:
            return None
        for form in forms[:-1]:
            try:
                return form.decode(value)
            except (TypeError, ValueError):
                continue
        return forms[-1].decode(value)

    def schema(schemas: Schemas) -> Json:
        options = [form.schema(schemas) for form in forms]
        if any(not option for option in options):
            return {}
        null: list[Json] = [{"type": "null"}] if is_nullable else []
        return options[0] if len(options) == 1 and not null else {"anyOf": options + null}

    return Form(forms[0].encode, decode, schema)


def _array(kind: type, item: Form) -> Form:
    made = kind if kind in (list, frozenset, set) else tuple
    encode_item = item.encode

    def encode_all(values: Iterable[object], complete: bool) -> object:
        if encode_item is None:
            return list(values)
        return [encode_item(value, complete) for value in values]

    def decode(values: object) -> object:
        if not isinstance(values, list | tuple):
            raise TypeError(f"{type(values).__name__} instead of list")
        return made(item.decode(value) for value in values)

    return Form(encode_all, decode, lambda schemas: {"type": "array", "items": item.schema(schemas)})


def _mapping(item: Form) -> Form:
    encode_item = item.encode

    def encode_all(values: Mapping[str, object], complete: bool) -> object:
        if encode_item is None:
            return dict(values)
        return {key: encode_item(value, complete) for key, value in values.items()}

    def decode(values: object) -> object:
        if not isinstance(values, Mapping):
            raise TypeError(f"{type(values).__name__} instead of dict")
        return {key: item.decode(value) for key, value in values.items()}

    def schema(schemas: Schemas) -> Json:
        values = item.schema(schemas)
        return {"type": "object"} | ({"additionalProperties": values} if values else {})

    return Form(encode_all, decode, schema)


def _typed_dict(hint: object) -> Form:
    """A dictionary with known members; its values are JSON already."""
    known = {name: form_of(item) for name, item in get_type_hints(hint).items()}
    # Not `__required_keys__`, which does not see through annotations that are kept as text.
    declared = get_type_hints(hint, include_extras=True)
    required = {name for name, item in declared.items() if get_origin(item) is not NotRequired}

    def decode(value: object) -> object:
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} instead of dict")
        for name in required - value.keys():
            raise KeyError(name)
        return {name: known[name].decode(item) if name in known else item for name, item in value.items()}

    def schema(schemas: Schemas) -> Json:
        return {
            "type": "object",
            "properties": {name: form.schema(schemas) for name, form in known.items()},
            "additionalProperties": False,
            "required": sorted(required),
        }

    return Form(None, decode, schema)


def _object(cls: type) -> Form:
    def decode(value: object) -> object:
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} instead of dict")
        if issubclass(cls, Document):
            return cls.from_json(value)
        return cls(**decode_members(members_of(cls), value))

    return Form(
        lambda value, complete: encode(value, complete=complete), decode, lambda schemas: schemas.reference(cls)
    )


# ---- JSON schemas


class Schemas:
    """JSON schemas of classes, each once under its name; objects have no members beside those that are declared."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.definitions: dict[str, Json] = {}

    def reference(self, cls: type) -> Json:
        """What refers to the schema of a class."""
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self._schema(cls)
        return {"$ref": f"{self._prefix}{name}"}

    def _schema(self, cls: type) -> Json:
        properties: dict[str, Json] = {}
        required: list[str] = []
        for member in members_of(cls):
            keys = (member.key,) if member.spread is None else member.spread.keys
            for key in keys:
                schema = member.form.schema(self)
                properties[key] = schema | ({"description": member.text} if member.text else {})
            if member.is_required:
                required += keys
        body: Json = {
            "type": "object",
            "description": inspect.getdoc(cls) or "",
            "properties": properties,
            "additionalProperties": False,
        }
        return body | ({"required": required} if required else {})
