"""The catalogue of schema-change codes; the code is the contract, not the text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omnigraph.errors import Severity

#: Families whose codes exist, and families kept free for later rules.
SHIPPED_FAMILIES = ("DS", "MF")
RESERVED_FAMILIES = ("CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")


class Tier(StrEnum):
    """What a change can do to existing data."""

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
    """What one code means."""

    code: LintCode
    tier: Tier
    meaning: str
    emitted: bool
    severity: Severity = Severity.ERROR


RULES: tuple[LintRule, ...] = (
    LintRule(
        code=LintCode.DROP_GRAPH_TYPE,
        tier=Tier.DESTRUCTIVE,
        meaning="drop a populated graph type",
        emitted=False,
    ),
    LintRule(
        code=LintCode.DROP_NODE_TYPE,
        tier=Tier.DESTRUCTIVE,
        meaning="drop a populated node type",
        emitted=False,
    ),
    LintRule(
        code=LintCode.DROP_EDGE_TYPE,
        tier=Tier.DESTRUCTIVE,
        meaning="drop a populated edge type",
        emitted=False,
    ),
    LintRule(
        code=LintCode.DROP_PROPERTY,
        tier=Tier.DESTRUCTIVE,
        meaning="drop a populated property",
        emitted=False,
    ),
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
        code=LintCode.CHANGE_PROPERTY_TYPE,
        tier=Tier.DESTRUCTIVE,
        meaning="change the type of a property",
        emitted=True,
    ),
)
