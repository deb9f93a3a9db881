"""Steps of a migration as data, and the codes of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, ClassVar, get_args

from typing_extensions import override

from omnigraph.errors import Diagnostic, Severity
from omnigraph.frozen import frozen
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


@frozen
class LintRule:
    """The meaning of one code."""

    code: LintCode
    tier: Tier
    meaning: str
    emitted: bool
    severity: ClassVar = Severity.ERROR


RULES: tuple[LintRule, ...] = (
    LintRule(LintCode.DROP_GRAPH_TYPE, Tier.DESTRUCTIVE, "drop a populated graph type", False),
    LintRule(LintCode.DROP_NODE_TYPE, Tier.DESTRUCTIVE, "drop a populated node type", False),
    LintRule(LintCode.DROP_EDGE_TYPE, Tier.DESTRUCTIVE, "drop a populated edge type", False),
    LintRule(LintCode.DROP_PROPERTY, Tier.DESTRUCTIVE, "drop a populated property", False),
    LintRule(LintCode.DROP_VECTOR_PROPERTY, Tier.DESTRUCTIVE, "drop a populated vector property", False),
    LintRule(
        LintCode.ADD_REQUIRED_PROPERTY,
        Tier.VALIDATED,
        "add a required property without a value for existing rows",
        True,
    ),
    LintRule(
        LintCode.TIGHTEN_NULLABILITY, Tier.VALIDATED, "make a nullable property required although rows hold null", True
    ),
    LintRule(LintCode.CHANGE_PROPERTY_TYPE, Tier.DESTRUCTIVE, "change the type of a property", True),
)


# ---- The steps of a migration plan


class DropMode(StrEnum):
    """Soft drops keep earlier versions readable; hard drops purge them."""

    SOFT = "soft"
    HARD = "hard"

    @property
    def effect(self) -> str:
        """What becomes of earlier versions."""
        if self is DropMode.HARD:
            return "hard: every earlier version of the type is destroyed"
        return "soft: earlier commits show it until cleanup"


class _Step:
    __slots__ = ()
    kind: ClassVar[str]
    #: The step as one line for people; `{0}` is the step.
    line: ClassVar[str]

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
        return self.line.format(self)


@frozen(kw_only=True)
class _TypeStep(_Step):
    type_kind: TypeKind
    type_name: str

    @property
    def name(self) -> str:
        """What the step is about, as lines name it."""
        return f"{self.type_kind} {self.type_name}"


@frozen(kw_only=True)
class _PropertyStep(_TypeStep):
    property_name: str

    @property
    @override
    def name(self) -> str:
        return f"{self.type_kind} {self.type_name}.{self.property_name}"


@frozen(kw_only=True)
class AddType(_TypeStep):
    """A new interface, node or edge; nodes and edges get an empty dataset."""

    kind = "add_type"
    line = "+ {0.name}"


@frozen(kw_only=True)
class RenameType(_Step):
    """A type goes on under another name; identity, path and history stay."""

    kind = "rename_type"
    line = "~ {0.type_kind} {0.old_name} is renamed to {0.new_name}"
    type_kind: TypeKind
    old_name: str
    new_name: str


@frozen(kw_only=True)
class AddProperty(_PropertyStep):
    """A new property; existing rows hold null, or the value of `backfill`."""

    kind = "add_property"
    property_type: str
    backfill: str | None = None

    @override
    def describe(self) -> str:
        filled = f" = {self.backfill}" if self.backfill else ""
        return f"+ {self.name}: {self.property_type}{filled}"


@frozen(kw_only=True)
class RenameProperty(_TypeStep):
    """A property goes on under another name."""

    kind = "rename_property"
    line = "~ {0.name}.{0.old_name} is renamed to {0.new_name}"
    old_name: str
    new_name: str


@frozen(kw_only=True)
class AddConstraint(_TypeStep):
    """A new `@index`, whose physical index is built later, or a rule that existing rows are checked against first."""

    kind = "add_constraint"
    constraint: str
    members: tuple[str, ...]
    #: Bounds or pattern.
    detail: str | None = None
    #: Whether existing rows could violate it.
    validate: bool = False

    @override
    def describe(self) -> str:
        inner = ", ".join((*self.members, *([self.detail] if self.detail else ())))
        checked = ", checked on existing rows" if self.validate else ""
        return f"+ {self.name} @{self.constraint}({inner}){checked}"


@frozen(kw_only=True)
class TightenNullability(_PropertyStep):
    """A property becomes required; `backfill` fills the nulls, all others are refused."""

    kind = "tighten_nullability"
    property_type: str
    backfill: str | None = None

    @override
    def describe(self) -> str:
        filled = f", nulls become {self.backfill}" if self.backfill else ", checked on existing rows"
        return f"~ {self.name} becomes required: {self.property_type}{filled}"


@frozen(kw_only=True)
class WidenProperty(_PropertyStep):
    """A number gets more room; every value stays what it is."""

    kind = "widen_property"
    line = "~ {0.name} is widened from {0.old_type} to {0.new_type}"
    old_type: str
    new_type: str


@frozen(kw_only=True)
class ExtendEnum(_PropertyStep):
    """An enum takes more values; the property name is the one after renames."""

    kind = "extend_enum"
    added_values: tuple[str, ...]

    @override
    def describe(self) -> str:
        return f"~ {self.name} also takes {', '.join(self.added_values)}"


@frozen(kw_only=True)
class UpdateTypeMetadata(_TypeStep):
    """`@description` or `@instruction` of a type changes; None removes it."""

    kind = "update_type_metadata"
    line = "~ {0.name}: new description or instruction"
    description: str | None
    instruction: str | None


@frozen(kw_only=True)
class UpdatePropertyMetadata(_PropertyStep):
    """`@description` of a property changes; None removes it."""

    kind = "update_property_metadata"
    line = "~ {0.name}: new description"
    description: str | None


@frozen(kw_only=True)
class DropProperty(_PropertyStep):
    """A property leaves the type."""

    kind = "drop_property"
    line = "- {0.name} ({0.mode.effect})"
    mode: DropMode


@frozen(kw_only=True)
class DropType(_TypeStep):
    """A node or edge type leaves the graph."""

    kind = "drop_type"
    line = "- {0.name} ({0.mode.effect})"
    mode: DropMode


@frozen(kw_only=True)
class UnsupportedChange(_Step):
    """A difference that no step can carry out; one of them makes the whole plan unsupported."""

    kind = "unsupported_change"
    line = "! {0.entity}: {0}"
    entity: str
    reason: str
    code: LintCode | None = None

    def __str__(self) -> str:
        return f"[{self.code}] {self.reason}" if self.code else self.reason


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


@frozen(kw_only=True)
class SchemaSteps:
    """The steps of a schema change: those of a plan, or as a server told them."""

    steps: tuple[Step, ...]
    #: What has no effect: in the wanted schema, and rename hints.
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def refusals(self) -> tuple[UnsupportedChange, ...]:
        """The differences that cannot be carried out."""
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    @property
    def supported(self) -> bool:
        """Whether every difference has a step."""
        return not self.refusals

    def to_json(self) -> dict[str, object]:
        """`{supported, step_count, steps}`."""
        return {
            "supported": self.supported,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
        }


_BY_KIND: dict[str, type[Step]] = {step.kind: step for step in get_args(Step)}
#: Members that are not plain JSON values.
_MEMBERS: dict[str, type] = {
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
