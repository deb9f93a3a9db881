"""Steps of a migration as data, and the codes of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, get_args

from omnigraph.errors import Severity
from omnigraph.lang.schema.catalog import TypeKind

# ---- Stable codes of schema changes


#: Families whose codes exist, and families kept free for later rules.
SHIPPED_FAMILIES = ("DS", "MF")
RESERVED_FAMILIES = ("CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")


class Tier(StrEnum):
    """The effect of a change on existing data."""

    SAFE = "safe"
    VALIDATED = "validated"
    DESTRUCTIVE = "destructive"


class LintCode(StrEnum):
    """`OG-<family>-<nnn>`."""

    DROP_GRAPH_TYPE = "OG-DS-101"
    DROP_NODE_TYPE = "OG-DS-102"
    DROP_EDGE_TYPE = "OG-DS-103"
    DROP_PROPERTY = "OG-DS-104"
    DROP_VECTOR_PROPERTY = "OG-DS-105"
    ADD_REQUIRED_PROPERTY = "OG-MF-103"
    TIGHTEN_NULLABILITY = "OG-MF-104"
    CHANGE_PROPERTY_TYPE = "OG-MF-106"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """The meaning of one code."""

    code: LintCode
    tier: Tier
    meaning: str
    emitted: bool
    severity: Severity = Severity.ERROR


RULES: tuple[LintRule, ...] = (
    LintRule(
        code=LintCode.DROP_GRAPH_TYPE, tier=Tier.DESTRUCTIVE, meaning="drop a populated graph type", emitted=False
    ),
    LintRule(code=LintCode.DROP_NODE_TYPE, tier=Tier.DESTRUCTIVE, meaning="drop a populated node type", emitted=False),
    LintRule(code=LintCode.DROP_EDGE_TYPE, tier=Tier.DESTRUCTIVE, meaning="drop a populated edge type", emitted=False),
    LintRule(code=LintCode.DROP_PROPERTY, tier=Tier.DESTRUCTIVE, meaning="drop a populated property", emitted=False),
    LintRule(
        code=LintCode.DROP_VECTOR_PROPERTY,
        tier=Tier.DESTRUCTIVE,
        meaning="drop a populated vector property",
        emitted=False,
    ),
    LintRule(
        code=LintCode.ADD_REQUIRED_PROPERTY,
        tier=Tier.VALIDATED,
        meaning="add a required property without a value for existing rows",
        emitted=True,
    ),
    LintRule(
        code=LintCode.TIGHTEN_NULLABILITY,
        tier=Tier.VALIDATED,
        meaning="make a nullable property required although rows hold null",
        emitted=True,
    ),
    LintRule(
        code=LintCode.CHANGE_PROPERTY_TYPE, tier=Tier.DESTRUCTIVE, meaning="change the type of a property", emitted=True
    ),
)


# ---- The steps of a migration plan


class DropMode(StrEnum):
    """Soft drops keep earlier versions readable; hard drops purge them."""

    SOFT = "soft"
    HARD = "hard"


def _effect(mode: DropMode) -> str:
    if mode is DropMode.HARD:
        return "hard: every earlier version of the type is destroyed"
    return "soft: earlier commits show it until cleanup"


class _Step:
    __slots__ = ()
    kind: ClassVar[str]

    def to_json(self) -> dict[str, object]:
        """The step as a JSON object tagged by `kind`; optional members only where they say something."""
        body: dict[str, object] = {"kind": self.kind}
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            if value != field.default:
                body[field.name] = list(value) if isinstance(value, tuple) else value
        return body

    def describe(self) -> str:
        """The step as one line for people."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AddType(_Step):
    """A new interface, node or edge; nodes and edges get an empty dataset."""

    kind = "add_type"
    type_kind: TypeKind
    type_name: str

    def describe(self) -> str:
        """The step as one line for people."""
        return f"+ {self.type_kind} {self.type_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameType(_Step):
    """A type goes on under another name; identity, path and history stay."""

    kind = "rename_type"
    type_kind: TypeKind
    old_name: str
    new_name: str

    def describe(self) -> str:
        """The step as one line for people."""
        return f"~ {self.type_kind} {self.old_name} is renamed to {self.new_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProperty(_Step):
    """A new property; existing rows hold null, or the value of `backfill`."""

    kind = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: str
    backfill: str | None = None

    def describe(self) -> str:
        """The step as one line for people."""
        filled = f" = {self.backfill}" if self.backfill else ""
        return f"+ {self.type_kind} {self.type_name}.{self.property_name}: {self.property_type}{filled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameProperty(_Step):
    """A property goes on under another name."""

    kind = "rename_property"
    type_kind: TypeKind
    type_name: str
    old_name: str
    new_name: str

    def describe(self) -> str:
        """The step as one line for people."""
        return f"~ {self.type_kind} {self.type_name}.{self.old_name} is renamed to {self.new_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint(_Step):
    """A new `@index`, whose physical index is built later, or a rule that existing rows are checked against first."""

    kind = "add_constraint"
    type_kind: TypeKind
    type_name: str
    constraint: str
    members: tuple[str, ...]
    #: Bounds or pattern.
    detail: str | None = None
    #: Whether existing rows could violate it.
    validate: bool = False

    def describe(self) -> str:
        """The step as one line for people."""
        inner = ", ".join((*self.members, *([self.detail] if self.detail else ())))
        checked = ", checked on existing rows" if self.validate else ""
        return f"+ {self.type_kind} {self.type_name} @{self.constraint}({inner}){checked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TightenNullability(_Step):
    """A property becomes required; `backfill` fills the nulls, all others are refused."""

    kind = "tighten_nullability"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: str
    backfill: str | None = None

    def describe(self) -> str:
        """The step as one line for people."""
        name = f"{self.type_kind} {self.type_name}.{self.property_name}"
        filled = f", nulls become {self.backfill}" if self.backfill else ", checked on existing rows"
        return f"~ {name} becomes required: {self.property_type}{filled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenProperty(_Step):
    """A number gets more room; every value stays what it is."""

    kind = "widen_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    old_type: str
    new_type: str

    def describe(self) -> str:
        """The step as one line for people."""
        name = f"{self.type_kind} {self.type_name}.{self.property_name}"
        return f"~ {name} is widened from {self.old_type} to {self.new_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendEnum(_Step):
    """An enum takes more values; the property name is the one after renames."""

    kind = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def describe(self) -> str:
        """The step as one line for people."""
        return f"~ {self.type_kind} {self.type_name}.{self.property_name} also takes {', '.join(self.added_values)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTypeMetadata(_Step):
    """`@description` or `@instruction` of a type changes; None removes it."""

    kind = "update_type_metadata"
    type_kind: TypeKind
    type_name: str
    description: str | None
    instruction: str | None

    def describe(self) -> str:
        """The step as one line for people."""
        return f"~ {self.type_kind} {self.type_name}: new description or instruction"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePropertyMetadata(_Step):
    """`@description` of a property changes; None removes it."""

    kind = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    description: str | None

    def describe(self) -> str:
        """The step as one line for people."""
        return f"~ {self.type_kind} {self.type_name}.{self.property_name}: new description"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropProperty(_Step):
    """A property leaves the type."""

    kind = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def describe(self) -> str:
        """The step as one line for people."""
        return f"- {self.type_kind} {self.type_name}.{self.property_name} ({_effect(self.mode)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropType(_Step):
    """A node or edge type leaves the graph."""

    kind = "drop_type"
    type_kind: TypeKind
    type_name: str
    mode: DropMode

    def describe(self) -> str:
        """The step as one line for people."""
        return f"- {self.type_kind} {self.type_name} ({_effect(self.mode)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedChange(_Step):
    """A difference that no step can carry out; one of them makes the whole plan unsupported."""

    kind = "unsupported_change"
    entity: str
    reason: str
    code: LintCode | None = None

    def __str__(self) -> str:
        return f"[{self.code}] {self.reason}" if self.code else self.reason

    def describe(self) -> str:
        """The step as one line for people."""
        return f"! {self.entity}: {self}"


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddConstraint
    | TightenNullability
    | WidenProperty
    | ExtendEnum
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropProperty
    | DropType
    | UnsupportedChange
)

_BY_KIND: dict[str, type[Step]] = {step.kind: step for step in get_args(Step)}
#: Members that are not plain JSON values.
_MEMBERS: dict[str, Any] = {
    "type_kind": TypeKind,
    "mode": DropMode,
    "code": LintCode,
    "members": tuple,
    "added_values": tuple,
}


def step_from_json(body: Mapping[str, Any]) -> Step:
    """The inverse of `to_json`.

    >>> step = AddType(type_kind=TypeKind.NODE, type_name="Paper")
    >>> step_from_json(step.to_json()) == step
    True
    """
    members = {
        name: _MEMBERS[name](value) if name in _MEMBERS and value is not None else value
        for name, value in body.items()
        if name != "kind"
    }
    return _BY_KIND[body["kind"]](**members)
