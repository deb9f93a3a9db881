from __future__ import annotations

import pytest

from omnigraph.core.ids import derive_id
from omnigraph.errors import CompilerError, Severity
from omnigraph.lang.schema.accepted import Identities, TypeIdentity, fresh_identities
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.schema.compiler import compile_schema
from support.schemas import DOMAIN, accept, apply, migrate
from support.subtests import each_case

NODE, EDGE, INTERFACE = TypeKind.NODE, TypeKind.EDGE, TypeKind.INTERFACE


def test_a_fresh_schema_draws_types_then_properties_then_incarnations() -> None:
    text = """
        edge E: B -> A { w: F32 }
        node B { z: I32 a: I32 }
        node A implements I { q: I32 }
        interface I { t: String }
    """

    identities = accept(text).identities

    assert {key: item.type_id for key, item in identities.types.items()} == {
        (INTERFACE, "I"): 1,
        (NODE, "A"): 2,
        (NODE, "B"): 3,
        (EDGE, "E"): 4,
    }
    assert {key: dict(item.properties) for key, item in identities.types.items()} == {
        (INTERFACE, "I"): {"t": 5},
        (NODE, "A"): {"q": 6, "t": 7},
        (NODE, "B"): {"a": 8, "z": 9},
        (EDGE, "E"): {"w": 10},
    }
    assert {key: item.incarnation for key, item in identities.types.items()} == {
        (INTERFACE, "I"): None,
        (NODE, "A"): 11,
        (NODE, "B"): 12,
        (EDGE, "E"): 13,
    }
    assert identities.next_id == 14
    assert identities.domain == DOMAIN


def test_an_empty_schema_has_used_no_number() -> None:
    assert accept("").identities.next_id == 1


def test_source_order_does_not_change_the_numbers() -> None:
    one = accept("node A { x: I32 y: I32 } node B {}").identities
    two = accept("node B {} node A { y: I32 x: I32 }").identities

    assert one == two


def test_new_properties_are_numbered_by_owner_id_and_not_by_owner_name() -> None:
    accepted = accept("node B { b: I32 }")

    after = apply(accepted, "node A { n: I32? } node B { b: I32 a: I32? }").identities

    new_type = after.types[NODE, "A"]
    old_type = after.types[NODE, "B"]
    assert new_type.type_id == accepted.identities.next_id
    assert old_type.properties["a"] == new_type.type_id + 1
    assert new_type.properties["n"] == new_type.type_id + 2
    assert new_type.incarnation == new_type.type_id + 3
    assert after.next_id == new_type.type_id + 4


def test_a_rename_keeps_every_number() -> None:
    before = accept("node A { x: I32 }")

    after = apply(before, 'node B @rename_from("A") { y: I32 @rename_from("x") }').identities

    old, new = before.identities.types[NODE, "A"], after.types[NODE, "B"]
    assert (new.type_id, new.incarnation) == (old.type_id, old.incarnation)
    assert new.properties == {"y": old.properties["x"]}
    assert after.next_id == before.identities.next_id


def test_a_name_that_is_dropped_and_added_again_gets_new_numbers() -> None:
    first = accept("node A { x: I32? } node B {}")

    last = apply(apply(first, "node B {}"), "node A { x: I32? } node B {}").identities

    used = first.identities.next_id
    again = last.types[NODE, "A"]
    assert min(again.type_id, again.incarnation or 0, again.properties["x"]) >= used


def test_a_property_that_is_dropped_and_added_again_gets_a_new_number() -> None:
    first = accept("node A { x: I32? y: I32? }")

    last = apply(apply(first, "node A { y: I32? }"), "node A { x: I32? y: I32? }").identities

    assert last.types[NODE, "A"].properties["x"] == first.identities.next_id


def test_dropping_gives_no_number_back() -> None:
    first = accept("node A {} node B {}")

    assert apply(first, "node A {}").identities.next_id == first.identities.next_id


class TestKeyMemberOrder:
    """The order of members inside derived ids is ascending property id."""

    def test_it_is_alphabetical_on_a_fresh_schema(self) -> None:
        accepted = accept("node Venue { series: String edition: I32 @key(series, edition) }")

        members = accepted.identities.key_members(accepted.catalog.nodes["Venue"])

        assert members == ("edition", "series")

    def test_the_example_of_the_specification(self) -> None:
        accepted = accept("node Venue { series: String edition: I32 @key(series, edition) }")
        spelled = {"series": "ICML", "edition": "2024"}

        members = accepted.identities.key_members(accepted.catalog.nodes["Venue"])

        assert derive_id([spelled[name] for name in members]) == '["2024","ICML"]'

    def test_it_survives_renames(self) -> None:
        accepted = accept("node Venue { series: String edition: I32 @key(series, edition) }")

        after = apply(
            accepted,
            'node Place @rename_from("Venue") '
            '{ a_series: String @rename_from("series") z: I32 @rename_from("edition") @key(a_series, z) }',
        )

        assert after.identities.key_members(after.catalog.nodes["Place"]) == ("z", "a_series")

    def test_an_injected_member_is_numbered_with_the_declared_ones(self) -> None:
        accepted = accept("interface I { a: I32 } node A implements I { b: I32 @key(b, a) }")

        assert accepted.identities.key_members(accepted.catalog.nodes["A"]) == ("a", "b")

    def test_a_keyless_node_has_no_members(self) -> None:
        accepted = accept("node A { a: I32 }")

        assert accepted.identities.key_members(accepted.catalog.nodes["A"]) == ()


class TestInertHints:
    """Hints without effect are warnings, not errors."""

    def test_at_creation_every_hint_is_reported_once(self) -> None:
        compiled = compile_schema(
            "interface I {\n  a: String @rename_from(b)\n}\n"
            "node A @rename_from(Z) implements I {\n  c: I32 @rename_from(d)\n}\n"
            "node B implements I {}\n"
            "edge E: A -> B @rename_from(F)"
        )

        warnings = fresh_identities(compiled.catalog, DOMAIN, compiled.source).warnings

        assert [(item.severity, item.line) for item in warnings] == [
            (Severity.WARNING, 2),
            (Severity.WARNING, 4),
            (Severity.WARNING, 5),
            (Severity.WARNING, 8),
        ]

    def test_at_creation_a_property_hint_names_its_property(self) -> None:
        compiled = compile_schema("node A { c: I32 @rename_from(d) }")

        (warning,) = fresh_identities(compiled.catalog, DOMAIN, compiled.source).warnings

        assert "`c`" in warning.message

    def test_without_hints_there_is_no_warning(self) -> None:
        compiled = compile_schema("node A { c: I32 }")

        assert fresh_identities(compiled.catalog, DOMAIN, compiled.source).warnings == ()

    @each_case(
        ("old", "new"),
        [
            pytest.param("node A {}", "node A @rename_from(Z) {}", id="node"),
            pytest.param(
                "node A {} edge E: A -> A", "node A {} edge E: A -> A @rename_from(Z)", id="edge"
            ),
            pytest.param("node A { a: I32 }", "node A { a: I32 @rename_from(z) }", id="property"),
            pytest.param(
                "interface I { a: I32 } node A implements I {} node B implements I {}",
                "interface I { a: I32 @rename_from(z) } node A implements I {} node B implements I {}",
                id="interface property",
            ),
        ],
    )
    def test_on_an_existing_name_a_hint_is_ignored_with_one_warning(
        self, old: str, new: str
    ) -> None:
        plan = migrate(old, new)

        assert plan.steps == ()
        assert [item.severity for item in plan.resolution.warnings] == [Severity.WARNING]
        assert "is ignored" in plan.resolution.warnings[0].message

    def test_an_existing_name_wins_over_the_hint_that_names_another(self) -> None:
        plan = migrate("node A { a: I32? b: I32? }", "node A { a: I32? @rename_from(b) }")

        assert [step.to_json()["property_name"] for step in plan.steps] == ["b"]
        assert len(plan.resolution.warnings) == 1


class TestWrongHints:
    @each_case(
        ("code", "old", "new"),
        [
            pytest.param("S-29", "node A {}", "node B @rename_from(C) {}", id="unknown type"),
            pytest.param(
                "S-29",
                "interface A {} node X {}",
                "interface A {} node B @rename_from(A) {}",
                id="interface for a node",
            ),
            pytest.param("S-29", "node A {}", "node B @rename_from(a) {}", id="other case"),
            pytest.param(
                "S-30", "node A { a: I32 }", "node A { b: I32 @rename_from(c) }", id="property"
            ),
            pytest.param(
                "S-30",
                "node A { a: I32 } node B {}",
                "node A { a: I32 } node B { b: I32 @rename_from(a) }",
                id="property of another owner",
            ),
            pytest.param(
                "S-30", "", "node B { b: I32 @rename_from(a) }", id="property of a new type"
            ),
            pytest.param(
                "S-31",
                "node A {}",
                "node B @rename_from(A) {} node C @rename_from(A) {}",
                id="type twice",
            ),
            pytest.param(
                "S-31", "node A {}", "node A {} node C @rename_from(A) {}", id="type kept"
            ),
            pytest.param(
                "S-31",
                "node A { a: I32 }",
                "node A { b: I32 @rename_from(a) c: I32 @rename_from(a) }",
                id="property twice",
            ),
            pytest.param(
                "S-31",
                "node A { a: I32 }",
                "node A { a: I32 b: I32 @rename_from(a) }",
                id="property kept",
            ),
        ],
    )
    def test_a_wrong_hint_is_an_identity_error(self, code: str, old: str, new: str) -> None:
        with pytest.raises(CompilerError) as failure:
            migrate(old, new)

        assert failure.value.codes == (code,)

    def test_a_wrong_hint_in_an_interface_is_reported_once(self) -> None:
        old = "interface I { a: I32 } node A implements I {} node B implements I {}"
        new = "interface I { b: I32 @rename_from(z) } node A implements I {} node B implements I {}"

        with pytest.raises(CompilerError) as failure:
            migrate(old, new)

        assert failure.value.codes == ("S-30",)

    def test_a_hint_of_an_interface_is_no_error_on_a_node_that_is_new(self) -> None:
        old = "interface I { a: I32 } node A implements I {}"
        new = "interface I { b: I32 @rename_from(a) } node A implements I {} node B implements I {}"

        plan = migrate(old, new)

        assert plan.supported


class TestIdentities:
    def identity(self, number: int, **properties: int) -> TypeIdentity:
        return TypeIdentity(type_id=number, incarnation=None, properties=properties)

    @pytest.mark.parametrize(
        ("next_id", "identity"),
        [
            pytest.param(1, TypeIdentity(type_id=1, incarnation=None, properties={}), id="type"),
            pytest.param(
                5, TypeIdentity(type_id=1, incarnation=5, properties={}), id="incarnation"
            ),
            pytest.param(
                5, TypeIdentity(type_id=1, incarnation=None, properties={"a": 9}), id="property"
            ),
        ],
    )
    def test_the_next_number_exceeds_every_used_one(
        self, next_id: int, identity: TypeIdentity
    ) -> None:
        with pytest.raises(ValueError, match="next_id must exceed"):
            Identities(domain=DOMAIN, next_id=next_id, types={(INTERFACE, "I"): identity})

    def test_no_number_is_used_twice(self) -> None:
        types = {(INTERFACE, "I"): self.identity(1, a=2), (INTERFACE, "J"): self.identity(2)}

        with pytest.raises(ValueError, match="allocated twice"):
            Identities(domain=DOMAIN, next_id=9, types=types)

    @pytest.mark.parametrize("number", [0, -1])
    def test_numbers_begin_at_one(self, number: int) -> None:
        with pytest.raises(ValueError):
            Identities(domain=DOMAIN, next_id=9, types={(INTERFACE, "I"): self.identity(number)})
