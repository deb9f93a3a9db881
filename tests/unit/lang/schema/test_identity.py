from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.core.ids import derive_id
from omnigraph.errors import BadRequestError, CompilerError, Severity
from omnigraph.lang.schema.accepted import (
    IR_VERSION,
    Identities,
    TypeIdentity,
    fresh_identities,
    read_contract,
    write_contract,
    write_state,
)
from omnigraph.lang.schema.catalog import Catalog, TypeKind
from omnigraph.lang.schema.compiler import compile_schema
from support.schemas import DOMAIN, accept, apply, catalog_of, hash_of, migrate
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
            pytest.param("node A {} edge E: A -> A", "node A {} edge E: A -> A @rename_from(Z)", id="edge"),
            pytest.param("node A { a: I32 }", "node A { a: I32 @rename_from(z) }", id="property"),
            pytest.param(
                "interface I { a: I32 } node A implements I {} node B implements I {}",
                "interface I { a: I32 @rename_from(z) } node A implements I {} node B implements I {}",
                id="interface property",
            ),
        ],
    )
    def test_on_an_existing_name_a_hint_is_ignored_with_one_warning(self, old: str, new: str) -> None:
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
            pytest.param("S-30", "node A { a: I32 }", "node A { b: I32 @rename_from(c) }", id="property"),
            pytest.param(
                "S-30",
                "node A { a: I32 } node B {}",
                "node A { a: I32 } node B { b: I32 @rename_from(a) }",
                id="property of another owner",
            ),
            pytest.param("S-30", "", "node B { b: I32 @rename_from(a) }", id="property of a new type"),
            pytest.param("S-31", "node A {}", "node B @rename_from(A) {} node C @rename_from(A) {}", id="type twice"),
            pytest.param("S-31", "node A {}", "node A {} node C @rename_from(A) {}", id="type kept"),
            pytest.param(
                "S-31",
                "node A { a: I32 }",
                "node A { b: I32 @rename_from(a) c: I32 @rename_from(a) }",
                id="property twice",
            ),
            pytest.param("S-31", "node A { a: I32 }", "node A { a: I32 b: I32 @rename_from(a) }", id="property kept"),
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
            pytest.param(5, TypeIdentity(type_id=1, incarnation=5, properties={}), id="incarnation"),
            pytest.param(5, TypeIdentity(type_id=1, incarnation=None, properties={"a": 9}), id="property"),
        ],
    )
    def test_the_next_number_exceeds_every_used_one(self, next_id: int, identity: TypeIdentity) -> None:
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


BASE = """
interface I { t: String @index }
node A @description("d") @tag("x", k=1, l=2) implements I {
    a: String
    b: I32? @unit("m") @note
    e: enum(x, y)
    v: Vector(3) @embed(a, model="m")
    @key(a, e)
    @unique(b, a)
    @index(b)
    @range(b, 1..2)
    @check(a, "p")
}
node B {}
edge E: A -> B @card(0..2) @instruction("i") { w: F32 @unique(src, w) @index(dst) }
"""


def changed(*pairs: tuple[str, str]) -> str:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_hash_is_named_and_stable() -> None:
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", hash_of(BASE))
    assert hash_of(BASE) == hash_of(BASE)


@each_case(
    "text",
    [
        pytest.param("// a comment\n" + BASE + "/* another */", id="comments"),
        pytest.param(" ".join(BASE.split()), id="layout"),
        pytest.param(changed(("node B {}\n", "")) + "node B {}", id="order of declarations"),
        pytest.param(
            changed(("    e: enum(x, y)\n", ""), ("    a: String\n", "    e: enum(x, y)\n    a: String\n")),
            id="order of properties",
        ),
        pytest.param(changed(("enum(x, y)", "enum(y, x)")), id="order of enum values"),
        pytest.param(changed(("@key(a, e)", "@key(e, a)")), id="order of key members"),
        pytest.param(changed(("@unique(b, a)", "@unique(a, b)")), id="order of unique members"),
        pytest.param(
            changed(("    @index(b)\n", ""), ("    @key(a, e)", "    @index(b)\n    @key(a, e)")),
            id="order of constraints",
        ),
        pytest.param(changed(('@unit("m") @note', '@note @unit("m")')), id="order of annotations"),
        pytest.param(changed(("k=1, l=2", "l=2, k=1")), id="order of keywords"),
        pytest.param(changed(("@embed(a,", '@embed("a",')), id="spelling of an embed source"),
        pytest.param(changed(("a: String\n", 'a: String @rename_from("z")\n')), id="property rename hint"),
        pytest.param(changed(("node B {}", 'node B @rename_from("C") {}')), id="type rename hint"),
        pytest.param(changed(("@unique(b, a)", "@unique(b, a) @unique(a, b)")), id="a rule said twice"),
    ],
)
def test_what_means_nothing_does_not_count(text: str) -> None:
    assert hash_of(text) == hash_of(BASE)


@each_case(
    "text",
    [
        pytest.param(changed(("node B {}", "node B {} node C {}")), id="a new type"),
        pytest.param(changed(("a: String\n", "a: String\n    n: I32?\n")), id="a new property"),
        pytest.param(changed(("b: I32?", "b: I64?")), id="type"),
        pytest.param(changed(("b: I32?", "b: I32")), id="nullability"),
        pytest.param(changed(("Vector(3)", "Vector(4)")), id="dimension"),
        pytest.param(changed(("enum(x, y)", "enum(x, y, z)")), id="enum values"),
        pytest.param(changed(("@key(a, e)", "@key(a)")), id="key members"),
        pytest.param(changed(("    @key(a, e)\n", "")), id="no key"),
        pytest.param(changed(("    @unique(b, a)\n", "")), id="no unique"),
        pytest.param(changed(("    @index(b)\n", "")), id="no index"),
        pytest.param(
            changed(("    @index(b)\n", ""), ("b: I32? @unit", "b: I32? @index @unit")), id="spelling of an index"
        ),
        pytest.param(changed(("@range(b, 1..2)", "@range(b, 1..3)")), id="range"),
        pytest.param(changed(("@range(b, 1..2)", "@range(b, 1..)")), id="open range"),
        pytest.param(changed(('@check(a, "p")', '@check(a, "q")')), id="check"),
        pytest.param(changed(('model="m"', 'model="n"')), id="embed model"),
        pytest.param(changed((', model="m"', "")), id="no embed model"),
        pytest.param(changed(('@description("d")', '@description("e")')), id="description"),
        pytest.param(changed(('@instruction("i")', "")), id="instruction"),
        pytest.param(changed(('@tag("x"', '@tag("y"')), id="opaque value"),
        pytest.param(changed(("k=1", "k=3")), id="opaque keyword"),
        pytest.param(changed((" @note", "")), id="opaque annotation"),
        pytest.param(changed(("@card(0..2)", "@card(0..3)")), id="cardinality"),
        pytest.param(changed(("A -> B", "B -> A")), id="direction"),
        pytest.param(changed(("implements I {", "{ t: String @index")), id="implements"),
        pytest.param(changed(("    a: String\n", "    a: String\n    t: String @index\n")), id="injected"),
        pytest.param(changed(("@unique(src, w)", "@unique(dst, w)")), id="edge columns"),
        pytest.param(changed(("edge E:", "edge F:")), id="name of an edge"),
    ],
)
def test_what_means_something_counts(text: str) -> None:
    assert hash_of(text) != hash_of(BASE)


def test_the_interface_property_itself_counts_even_without_implementor() -> None:
    assert hash_of("interface I { a: String }") != hash_of("interface I { a: String @index }")


def test_a_node_and_an_interface_of_one_name_are_different_shapes() -> None:
    assert hash_of("node A { a: String }") != hash_of("interface A { a: String }")


def test_equal_bounds_of_a_range_are_equal_however_they_are_spelled() -> None:
    assert hash_of("node A { x: F64 @range(x, 1..2) }") == hash_of("node A { x: F64 @range(x, 1.0..2.00) }")


TEXT = """
interface I { t: String @index }
node A implements I { a: String @key b: F64? @unit("m", k=1) @range(b, 0.5..) }
node B { x: I32 y: I32 @key(y, x) }
edge E: A -> B @card(0..2) { w: F32? }
"""

Contract = dict[str, Any]


def stored(text: str = TEXT) -> Contract:
    return json.loads(json.dumps(write_contract(accept(text))))


def test_the_contract_carries_version_domain_and_counter() -> None:
    contract = stored()

    assert IR_VERSION == 2
    assert contract["ir_version"] == 2
    assert contract["identity_domain"] == DOMAIN
    assert contract["next_identity_id"] == accept(TEXT).identities.next_id


def test_every_type_and_property_has_its_number() -> None:
    contract = stored()

    assert [(item["name"], item["id"]) for item in contract["nodes"]] == [("A", 2), ("B", 3)]
    assert [(p["name"], p["id"]) for p in contract["nodes"][1]["properties"]] == [("x", 9), ("y", 10)]
    assert "incarnation" not in contract["interfaces"][0]
    assert contract["edges"][0]["incarnation"] == 14


@each_case(
    "text",
    [
        pytest.param(TEXT, id="small"),
        pytest.param("", id="empty"),
        pytest.param('node A @description("naïve 知识") {}', id="not ASCII"),
        pytest.param("node A { b: Blob @unique(b) }", id="tolerated shape"),
    ],
)
def test_a_contract_is_read_back_as_it_was_written(text: str) -> None:
    accepted = accept(text)

    read = read_contract(stored(text), catalog_of(text, accepted=True))

    assert read == accepted


def test_the_whole_reading_graph_is_read_back(reading: Catalog) -> None:
    from omnigraph.core.source import SourceText
    from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities

    identities = fresh_identities(reading, DOMAIN, SourceText("")).identities
    accepted = AcceptedSchema(catalog=reading, identities=identities)

    assert read_contract(json.loads(json.dumps(write_contract(accepted))), reading) == accepted


def test_numbers_after_migrations_are_read_back() -> None:
    new = 'node C { n: I32? } node B { x: I32 z: I32 @rename_from("y") @key(z, x) }'
    accepted = apply("node B { x: I32 y: I32 @key(y, x) }", new)

    read = read_contract(json.loads(json.dumps(write_contract(accepted))), catalog_of(new))

    assert read.identities == accepted.identities


def test_comments_order_and_hints_of_the_source_do_not_matter() -> None:
    other = "// moved\n" + TEXT.replace("x: I32 y: I32", "y: I32 @rename_from(z) x: I32")

    assert read_contract(stored(), catalog_of(other)).identities == accept(TEXT).identities


@each_case(
    "text",
    [
        pytest.param(TEXT.replace("w: F32?", "w: F64?"), id="type"),
        pytest.param(TEXT + "node C {}", id="new type"),
        pytest.param(TEXT.replace("@card(0..2)", ""), id="cardinality"),
        pytest.param(TEXT.replace("node B", 'node B @description("x")'), id="description"),
        pytest.param(TEXT.replace("edge E: A -> B @card(0..2) { w: F32? }", ""), id="type gone"),
        pytest.param(TEXT.replace("w: F32?", ""), id="property gone"),
    ],
)
def test_an_edited_source_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"schema apply|damaged"):
        read_contract(stored(), catalog_of(text))


def _set(path: list[str | int], value: object) -> Callable[[Contract], None]:
    def damage(contract: Contract) -> None:
        place: Any = contract
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return damage


def _remove(path: list[str | int]) -> Callable[[Contract], None]:
    def damage(contract: Contract) -> None:
        place: Any = contract
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]

    return damage


@each_case(
    "damage",
    [
        pytest.param(_remove(["nodes"]), id="no nodes"),
        pytest.param(_set(["nodes"], None), id="nodes is null"),
        pytest.param(_set(["nodes"], [1]), id="a node is a number"),
        pytest.param(_set(["nodes"], "AB"), id="nodes is a text"),
        pytest.param(_remove(["nodes", 0, "id"]), id="type without number"),
        pytest.param(_remove(["nodes", 0, "incarnation"]), id="node without incarnation"),
        pytest.param(_set(["interfaces", 0, "incarnation"], 90), id="interface with incarnation"),
        pytest.param(_remove(["nodes", 0, "properties", 0, "id"]), id="property without number"),
        pytest.param(_set(["nodes", 0, "id"], "2"), id="number as text"),
        pytest.param(_set(["nodes", 0, "id"], None), id="number is null"),
        pytest.param(_set(["nodes", 0, "id"], 2.5), id="number is a fraction"),
        pytest.param(_set(["nodes", 0, "id"], True), id="number is a boolean"),
        pytest.param(_set(["nodes", 0, "id"], 3), id="number used twice"),
        pytest.param(_set(["nodes", 0, "id"], 0), id="number zero"),
        pytest.param(_set(["nodes", 0, "id"], -4), id="negative number"),
        pytest.param(_set(["nodes", 0, "id"], 1000), id="number beyond the counter"),
        pytest.param(_set(["next_identity_id"], 3), id="counter too small"),
        pytest.param(_set(["next_identity_id"], "99"), id="counter as text"),
        pytest.param(_remove(["next_identity_id"]), id="no counter"),
        pytest.param(_set(["identity_domain"], "x"), id="domain is no ULID"),
        pytest.param(_set(["identity_domain"], DOMAIN.lower()), id="domain in lower case"),
        pytest.param(_set(["identity_domain"], None), id="domain is null"),
        pytest.param(_remove(["identity_domain"]), id="no domain"),
        pytest.param(_set(["nodes", 0, "name"], "Z"), id="other name"),
        pytest.param(_set(["extra"], 1), id="unknown member"),
        pytest.param(_set(["ir_version"], 1), id="older version"),
        pytest.param(_set(["ir_version"], 3), id="newer version"),
        pytest.param(_remove(["ir_version"]), id="no version"),
    ],
)
def test_a_damaged_contract_is_refused(damage: Callable[[Contract], None]) -> None:
    contract = copy.deepcopy(stored())
    damage(contract)

    with pytest.raises(BadRequestError):
        read_contract(contract, catalog_of(TEXT))


def test_another_version_is_named() -> None:
    with pytest.raises(BadRequestError, match="version 7, this release reads 2"):
        read_contract({"ir_version": 7}, catalog_of(""))


def test_the_state_hashes_source_shape_and_contract_apart() -> None:
    state = write_state(accept(TEXT), TEXT)

    assert set(state) == {"source_hash", "schema_hash", "contract_hash"}
    assert len(set(state.values())) == 3
    assert all(str(value).startswith("sha256:") for value in state.values())
    assert state["schema_hash"] == catalog_of(TEXT).schema_hash


def test_a_comment_changes_only_the_hash_of_the_source() -> None:
    commented = TEXT + "// more"

    before, after = write_state(accept(TEXT), TEXT), write_state(accept(commented), commented)

    assert before["source_hash"] != after["source_hash"]
    assert before["schema_hash"] == after["schema_hash"]
    assert before["contract_hash"] == after["contract_hash"]


def test_other_numbers_change_only_the_hash_of_the_contract() -> None:
    text = "node A { a: I32? } node B {}"
    again = apply(apply(text, "node A { a: I32? }"), text)

    before, after = write_state(accept(text), text), write_state(again, text)

    assert before["schema_hash"] == after["schema_hash"]
    assert before["contract_hash"] != after["contract_hash"]


def test_the_contract_is_plain_json_data() -> None:
    contract = write_contract(accept(TEXT))

    assert json.loads(json.dumps(contract, allow_nan=False)) == contract


def test_the_contract_holds_no_rename_hint() -> None:
    compiled = compile_schema("node A @rename_from(Z) { a: I32 @rename_from(b) }")

    assert compiled.catalog.nodes["A"].renamed_from is not None
    assert "rename" not in json.dumps(write_contract(accept(compiled.source.text)))
