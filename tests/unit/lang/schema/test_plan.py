from __future__ import annotations

import json

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.plan import plan_migration
from omnigraph.lang.schema.steps import DropMode, LintCode, UnsupportedChange
from support.schemas import accept, codes_of, kinds_of, migrate
from support.subtests import each_case

OLD = "node A { a: I32? b: I32? } node B {} node C {} edge E: A -> B edge F: A -> A { w: F32? }"
NEW = "node A { a: I32? } node B {} edge F: A -> A"


def test_an_unchanged_schema_has_an_empty_supported_plan() -> None:
    plan = migrate(OLD, OLD)

    assert (plan.supported, plan.steps) == (True, ())
    assert plan.to_json() == {"supported": True, "step_count": 0, "steps": []}


@pytest.mark.parametrize(
    ("allow_data_loss", "mode"), [(False, DropMode.SOFT), (True, DropMode.HARD)], ids=["soft", "hard"]
)
def test_allowing_data_loss_makes_every_drop_hard(allow_data_loss: bool, mode: DropMode) -> None:
    plan = migrate(OLD, NEW, allow_data_loss=allow_data_loss)

    assert [(step.kind, step.to_json()["mode"]) for step in plan.steps] == [
        ("drop_property", mode),
        ("drop_property", mode),
        ("drop_type", mode),
        ("drop_type", mode),
    ]


def test_s_26_dropping_a_node_that_an_edge_names_fails_before_planning() -> None:
    assert codes_of("node A {} edge E: A -> B") == ["S-26"]


def test_a_plan_with_one_refusal_is_not_supported() -> None:
    plan = migrate("node A { a: I32 }", "node A { a: U32 } node B {}")

    assert not plan.supported
    assert kinds_of(plan.steps) == ["unsupported_change", "add_type"]
    assert plan.refusals == (plan.steps[0],)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (LintCode.CHANGE_PROPERTY_TYPE, "[OG-MF-106] why"),
        (LintCode.ADD_REQUIRED_PROPERTY, "[OG-MF-103] why"),
        (None, "why"),
    ],
)
def test_a_refusal_is_spelled_with_its_code_when_it_has_one(code: LintCode | None, text: str) -> None:
    change = UnsupportedChange(entity="node:A", reason="why", code=code)

    assert str(change) == text


def test_a_refusal_without_code_has_no_code_in_json() -> None:
    assert UnsupportedChange(entity="node:A", reason="why").to_json() == {
        "kind": "unsupported_change",
        "entity": "node:A",
        "reason": "why",
    }


def test_a_plan_is_plain_json_data() -> None:
    body = migrate(OLD, NEW + " node N { e: enum(x) }").to_json()

    assert json.loads(json.dumps(body)) == body


@each_case(
    ("old", "new"),
    [
        pytest.param("node A { x: String @index @index(x) }", "node A { x: String @index }", id="index, body gone"),
        pytest.param(
            "node A { x: String @index @index(x) }", "node A { x: String @index(x) }", id="index, property gone"
        ),
        pytest.param("node A { x: String @unique @unique(x) }", "node A { x: String @unique }", id="unique, body gone"),
    ],
)
@each_case("other", ["", " node N {}"], ids=["alone", "beside another step"])
def test_removing_one_of_two_spellings_is_refused(old: str, new: str, other: str) -> None:
    plan = migrate(old, new + other)

    assert not plan.supported


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        pytest.param(
            "node A { src: String @index }",
            "node A { origin: String @rename_from(src) @index }",
            ["rename_property"],
            id="rename",
        ),
        pytest.param("node A { dst: String @unique }", "node A {}", ["drop_property"], id="drop"),
        pytest.param(
            "node A { src: I32 @range(src, 0..) }",
            "node A { n: I32 @rename_from(src) @range(n, 0..) }",
            ["rename_property"],
            id="range",
        ),
    ],
)
def test_a_node_property_called_like_an_edge_column_is_an_ordinary_property(
    old: str, new: str, kinds: list[str]
) -> None:
    assert kinds_of(migrate(old, new).steps) == kinds


def test_an_edge_column_in_a_list_survives_the_rename_of_another_member() -> None:
    old = "node A {} edge E: A -> A { w: F32 @unique(src, w) }"
    new = "node A {} edge E: A -> A { v: F32 @rename_from(w) @unique(v, src) }"

    assert kinds_of(migrate(old, new).steps) == ["rename_property"]


def test_an_edge_whose_endpoint_is_renamed_has_the_same_endpoints() -> None:
    old = "node A {} node B {} edge E: A -> B"
    new = "node A {} node C @rename_from(B) {} edge E: A -> C"

    assert kinds_of(migrate(old, new).steps) == ["rename_type"]


def test_an_edge_that_moves_to_a_renamed_node_is_refused() -> None:
    old = "node A {} node B {} edge E: A -> A"
    new = "node A {} node C @rename_from(B) {} edge E: A -> C"

    assert kinds_of(migrate(old, new).steps) == ["rename_type", "unsupported_change"]


def test_endpoints_that_change_places_under_new_names_are_refused() -> None:
    old = "node A {} node B {} edge E: A -> B"
    new = "node C @rename_from(A) {} node D @rename_from(B) {} edge E: D -> C"

    assert kinds_of(migrate(old, new).steps)[-1] == "unsupported_change"


def test_an_embed_source_that_is_replaced_by_a_new_property_is_refused() -> None:
    old = "node A { t: String v: Vector(2) @embed(t) }"
    new = "node A { s: String? v: Vector(2) @embed(s) }"

    assert kinds_of(migrate(old, new).steps) == ["add_property", "unsupported_change", "drop_property"]


def test_a_key_keeps_its_meaning_when_a_member_is_renamed_and_reordered() -> None:
    old = "node A { k: I32 l: I32 @key(k, l) }"
    new = "node A { l: I32 m: I32 @rename_from(k) @key(l, m) }"

    assert kinds_of(migrate(old, new).steps) == ["rename_property"]


@each_case(
    ("old", "new"),
    [
        pytest.param("@range(x, 0..)", "@range(x, ..0)", id="range side"),
        pytest.param("@key(x)", "@key(x, y)", id="key member"),
        pytest.param("@unique(x)", "@unique(x, y)", id="unique member"),
        pytest.param("@index(x, y)", "@index(x)", id="index member"),
    ],
)
def test_a_changed_constraint_is_refused(old: str, new: str) -> None:
    plan = migrate(f"node A {{ x: I32 y: I32 {old} }}", f"node A {{ x: I32 y: I32 {new} }}")

    assert not plan.supported


def test_a_check_in_a_reason_is_spelled_like_in_a_schema() -> None:
    plan = migrate('node A { a: String @check(a, "x, y") }', "node A { a: String }")

    assert '@check(a, "x, y")' in plan.refusals[0].reason


def test_relaxing_a_cardinality_is_not_said_to_violate_existing_edges() -> None:
    plan = migrate("node A {} edge E: A -> A @card(0..1)", "node A {} edge E: A -> A")

    assert not plan.supported
    assert "violate" not in plan.refusals[0].reason


def test_the_plan_carries_the_numbers_of_the_wanted_schema() -> None:
    plan = migrate("node A {}", "node A {} node B {}")

    assert {name for _, name in plan.resolution.identities.types} == {"A", "B"}


def test_the_dropped_types_have_no_numbers_any_more() -> None:
    plan = migrate("node A {} node B {}", "node A {}")

    assert {name for _, name in plan.resolution.identities.types} == {"A"}


def test_the_backfills_of_a_change_that_has_happened_before_are_passed_over() -> None:
    text = "node A { a: I32 }"
    wanted = compile_schema(text)

    for target in ("A.a", "node:A.a"):
        plan = plan_migration(accept(text), wanted, backfill={target: 0})
        assert plan.steps == ()


@pytest.mark.parametrize("new", ["node A { a: I32 }", "node A { a: I32 } node B {}"])
def test_a_backfill_of_nothing_is_refused_with_and_without_steps(new: str) -> None:
    wanted = compile_schema(new)

    with pytest.raises(BadRequestError, match=r"the backfill of A\.z has no use"):
        plan_migration(accept("node A { a: I32 }"), wanted, backfill={"A.z": 0})
