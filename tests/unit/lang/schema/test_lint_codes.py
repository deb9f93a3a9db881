from __future__ import annotations

import re

import pytest

from omnigraph.errors import Severity
from omnigraph.lang.schema.steps import (
    RESERVED_FAMILIES,
    RULES,
    SHIPPED_FAMILIES,
    LintCode,
    LintRule,
    Tier,
)
from support.schemas import migrate
from support.subtests import each_case

TABLE = {
    "OG-DS-101": (Tier.DESTRUCTIVE, False),
    "OG-DS-102": (Tier.DESTRUCTIVE, False),
    "OG-DS-103": (Tier.DESTRUCTIVE, False),
    "OG-DS-104": (Tier.DESTRUCTIVE, False),
    "OG-DS-105": (Tier.DESTRUCTIVE, False),
    "OG-MF-103": (Tier.VALIDATED, True),
    "OG-MF-104": (Tier.VALIDATED, True),
    "OG-MF-106": (Tier.DESTRUCTIVE, True),
}


def test_the_catalogue_is_the_table_of_the_specification() -> None:
    assert {rule.code.value: (rule.tier, rule.emitted) for rule in RULES} == TABLE


def test_codes_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)


def test_every_code_has_a_rule() -> None:
    assert {rule.code for rule in RULES} == set(LintCode)


@each_case("rule", RULES, ids=lambda rule: rule.code.value)
def test_a_code_is_its_family_and_three_digits(rule: LintRule) -> None:
    match = re.fullmatch(r"OG-([A-Z]{2})-([0-9]{3})", rule.code)

    assert match is not None
    assert match[1] in SHIPPED_FAMILIES


@each_case("rule", RULES, ids=lambda rule: rule.code.value)
def test_every_shipped_code_is_an_error_and_says_what_it_means(rule: LintRule) -> None:
    assert rule.severity is Severity.ERROR
    assert rule.meaning.strip()


def test_families_are_shipped_or_reserved() -> None:
    assert SHIPPED_FAMILIES == ("DS", "MF")
    assert RESERVED_FAMILIES == ("CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("OG-MF-103", "node A {}", "node A { a: I32 }"),
        ("OG-MF-106", "node A { a: I32 }", "node A { a: U32 }"),
        ("OG-MF-106", "node A { a: I32 }", "node A { a: I32? }"),
    ],
    ids=["required property", "type change", "loosened nullability"],
)
def test_an_emitted_code_comes_out_of_a_plan(code: str, old: str, new: str) -> None:
    assert [change.code for change in migrate(old, new).refusals] == [code]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("node A {} node B {}", "node A {}"),
        ("node A {} edge E: A -> A", "node A {}"),
        ("node A { v: Vector(2) }", "node A {}"),
    ],
    ids=["node type", "edge type", "vector property"],
)
def test_drops_are_steps_and_not_refusals(old: str, new: str) -> None:
    assert migrate(old, new).supported
