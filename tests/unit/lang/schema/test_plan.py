from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.plan import plan_migration
from omnigraph.lang.schema.steps import DropMode, LintCode, UnsupportedChange
from support.schemas import accept, kinds_of, migrate
from support.subtests import each_case, named_cases

OLD = "node A { a: I32? b: I32? } node B {} node C {} edge E: A -> B edge F: A -> A { w: F32? }"
NEW = "node A { a: I32? } node B {} edge F: A -> A"


@named_cases(("allow_data_loss", "mode"), {"soft": (False, DropMode.SOFT), "hard": (True, DropMode.HARD)})
def test_allowing_data_loss_makes_every_drop_hard(allow_data_loss: bool, mode: DropMode) -> None:
    plan = migrate(OLD, NEW, allow_data_loss=allow_data_loss)

    kinds = ["drop_property", "drop_property", "drop_type", "drop_type"]
    assert [(step.kind, step.to_json()["mode"]) for step in plan.steps] == [(kind, mode) for kind in kinds]


@each_case(
    ("code", "text"),
    [
        (LintCode.CHANGE_PROPERTY_TYPE, "[OG-MF-106] why"),
        (LintCode.ADD_REQUIRED_PROPERTY, "[OG-MF-103] why"),
        (None, "why"),
    ],
)
def test_a_refusal_is_spelled_with_its_code_when_it_has_one(code: LintCode | None, text: str) -> None:
    assert str(UnsupportedChange(entity="node:A", reason="why", code=code)) == text


@named_cases(
    ("old", "new"),
    {
        "one of two spellings of an index, body gone": ("@index(x) x: I32 @index", "x: I32 @index"),
        "one of two spellings of an index, property gone": ("@index(x) x: I32 @index", "@index(x) x: I32"),
        "one of two spellings of a unique": ("@unique(x) x: I32 @unique", "x: I32 @unique"),
        "one of two spellings of a unique, property gone": ("@unique(x) x: I32 @unique", "@unique(x) x: I32"),
        "range side": ("x: I32 @range(x, 0..)", "x: I32 @range(x, ..0)"),
        "key member": ("x: I32 y: I32 @key(x)", "x: I32 y: I32 @key(x, y)"),
        "unique member": ("x: I32 y: I32 @unique(x)", "x: I32 y: I32 @unique(x, y)"),
        "index member": ("x: I32 y: I32 @index(x, y)", "x: I32 y: I32 @index(x)"),
    },
)
@each_case("other", ["", " node N {}"], ids=["alone", "beside another step"])
def test_a_removed_or_changed_constraint_is_refused(old: str, new: str, other: str) -> None:
    assert not migrate(f"node A {{ {old} }}", f"node A {{ {new} }}{other}").supported


@named_cases(
    ("old", "new", "kinds"),
    {
        "a node property called src is renamed like any other": (
            "node A { src: String @index }",
            "node A { origin: String @rename_from(src) @index }",
            ["rename_property"],
        ),
        "a refusal beside a good step": (
            "node A { a: I32 }",
            "node A { a: U32 } node B {}",
            ["unsupported_change", "add_type"],
        ),
        "a range that was said twice": (
            "node A { x: I32 @range(x, 0..) @range(x, 0..) }",
            "node A { x: I32 @range(x, 0..) }",
            [],
        ),
        "a node property called dst is dropped": ("node A { dst: String @unique }", "node A {}", ["drop_property"]),
        "a node property called src has a range": (
            "node A { src: I32 @range(src, 0..) }",
            "node A { n: I32 @rename_from(src) @range(n, 0..) }",
            ["rename_property"],
        ),
        "an edge column in a list survives the rename of another member": (
            "node A {} edge E: A -> A { w: F32 @unique(src, w) }",
            "node A {} edge E: A -> A { v: F32 @rename_from(w) @unique(v, src) }",
            ["rename_property"],
        ),
        "an edge whose endpoint is renamed has the same endpoints": (
            "node A {} node B {} edge E: A -> B",
            "node A {} node C @rename_from(B) {} edge E: A -> C",
            ["rename_type"],
        ),
        "an edge that moves to a renamed node is refused": (
            "node A {} node B {} edge E: A -> A",
            "node A {} node C @rename_from(B) {} edge E: A -> C",
            ["rename_type", "unsupported_change"],
        ),
        "endpoints that change places under new names are refused": (
            "node A {} node B {} edge E: A -> B",
            "node C @rename_from(A) {} node D @rename_from(B) {} edge E: D -> C",
            ["rename_type", "rename_type", "unsupported_change"],
        ),
        "an embed source that is replaced by a new property is refused": (
            "node A { t: String v: Vector(2) @embed(t) }",
            "node A { s: String? v: Vector(2) @embed(s) }",
            ["add_property", "unsupported_change", "drop_property"],
        ),
        "a key keeps its meaning when a member is renamed and reordered": (
            "node A { k: I32 l: I32 @key(k, l) }",
            "node A { l: I32 m: I32 @rename_from(k) @key(l, m) }",
            ["rename_property"],
        ),
    },
)
def test_the_steps_of_a_change(old: str, new: str, kinds: list[str]) -> None:
    plan = migrate(old, new)

    refused = [step for step in plan.steps if step.kind == "unsupported_change"]
    assert kinds_of(plan.steps) == kinds
    assert (plan.supported, list(plan.refusals)) == (not refused, refused)


def test_a_check_in_a_reason_is_spelled_like_in_a_schema() -> None:
    plan = migrate('node A { a: String @check(a, "x, y") }', "node A { a: String }")

    assert '@check(a, "x, y")' in plan.refusals[0].reason


def test_relaxing_a_cardinality_is_not_said_to_violate_existing_edges() -> None:
    plan = migrate("node A {} edge E: A -> A @card(0..1)", "node A {} edge E: A -> A")

    assert not plan.supported
    assert "violate" not in plan.refusals[0].reason


def test_the_plan_carries_the_numbers_of_the_wanted_schema() -> None:
    plan = migrate("node A {} node C {}", "node A {} node B {}")

    assert {name for _, name in plan.resolution.identities.types} == {"A", "B"}


def test_the_backfills_of_a_change_that_has_happened_before_are_passed_over() -> None:
    text = "node A { a: I32 }"
    wanted = compile_schema(text)

    for target in ("A.a", "node:A.a"):
        plan = plan_migration(accept(text), wanted, backfill={target: 0})
        assert plan.steps == ()


@each_case("new", ["node A { a: I32 }", "node A { a: I32 } node B {}"])
def test_a_backfill_of_nothing_is_refused_with_and_without_steps(new: str) -> None:
    with pytest.raises(BadRequestError, match=r"the backfill of A\.z has no use"):
        plan_migration(accept("node A { a: I32 }"), compile_schema(new), backfill={"A.z": 0})
