from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
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
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.schema.compiler import compile_schema
from support.schemas import DOMAIN, accept, apply, catalog_of, hash_of, migrate
from support.subtests import named_cases

NODE, EDGE, INTERFACE = TypeKind.NODE, TypeKind.EDGE, TypeKind.INTERFACE
GOLDEN = Path(__file__).parents[1] / "golden"


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


def test_what_is_dropped_and_added_again_gets_new_numbers() -> None:
    first = accept("node A { x: I32? } node B { x: I32? y: I32? }")

    dropped = apply(first, "node B { y: I32? }")
    last = apply(dropped, "node A { x: I32? } node B { x: I32? y: I32? }").identities

    used = first.identities.next_id
    again = last.types[NODE, "A"]
    assert dropped.identities.next_id == used
    assert min(again.type_id, again.incarnation or 0, again.properties["x"]) >= used
    assert last.types[NODE, "B"].properties["x"] >= used


@named_cases(
    ("text", "members"),
    {
        "alphabetical on a fresh schema": (
            "node A { series: String edition: I32 @key(series, edition) }",
            ("edition", "series"),
        ),
        "injected members with the declared ones": (
            "interface I { a: I32 } node A implements I { b: I32 @key(b, a) }",
            ("a", "b"),
        ),
        "a keyless node": ("node A { a: I32 }", ()),
    },
)
def test_the_members_of_a_derived_id_come_in_the_order_of_their_numbers(text: str, members: tuple[str, ...]) -> None:
    accepted = accept(text)

    assert accepted.identities.key_members(accepted.catalog.nodes["A"]) == members


@named_cases(
    ("text", "members"),
    {
        "the ends alone": ("{ @key(dst, src) }", ("src", "dst")),
        "the ends before properties": ("{ b: I32 a: String @key(b, @dst, a, @src) }", ("src", "dst", "a", "b")),
        "a keyless edge": ("{ a: String }", ()),
    },
)
def test_the_ends_of_a_keyed_edge_come_first(text: str, members: tuple[str, ...]) -> None:
    accepted = accept(f"node A {{}} edge E: A -> A {text}")

    assert accepted.identities.key_members(accepted.catalog.edges["E"]) == members


def test_the_order_of_key_members_survives_renames() -> None:
    accepted = accept("node Venue { series: String edition: I32 @key(series, edition) }")

    after = apply(
        accepted,
        'node Place @rename_from("Venue") '
        '{ a_series: String @rename_from("series") z: I32 @rename_from("edition") @key(a_series, z) }',
    )

    members = after.identities.key_members(after.catalog.nodes["Place"])
    assert members == ("z", "a_series")
    assert derive_id([{"a_series": "ICML", "z": "2024"}[name] for name in members]) == '["2024","ICML"]'


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

        assert [item.line for item in warnings] == [2, 4, 5, 8]
        assert {item.severity for item in warnings} == {Severity.WARNING}
        assert "`c`" in warnings[2].message

    @named_cases(
        ("old", "new", "steps"),
        {
            "no hint": ("node A { c: I32 }", "node A { c: I32 }", None),
            "node": ("node A {}", "node A @rename_from(Z) {}", []),
            "edge": ("node A {} edge E: A -> A", "node A {} edge E: A -> A @rename_from(Z)", []),
            "property": ("node A { a: I32 }", "node A { a: I32 @rename_from(z) }", []),
            "interface property": (
                "interface I { a: I32 } node A implements I {} node B implements I {}",
                "interface I { a: I32 @rename_from(z) } node A implements I {} node B implements I {}",
                [],
            ),
            "another existing name": ("node A { a: I32? b: I32? }", "node A { a: I32? @rename_from(b) }", ["b"]),
        },
    )
    def test_on_an_existing_name_a_hint_is_ignored_with_one_warning(
        self, old: str, new: str, steps: list[str] | None
    ) -> None:
        plan = migrate(old, new)

        warnings = plan.resolution.warnings
        assert [step.to_json()["property_name"] for step in plan.steps] == (steps or [])
        assert [item.severity for item in warnings] == ([] if steps is None else [Severity.WARNING])
        assert all("is ignored" in item.message for item in warnings)


@named_cases(
    ("code", "old", "new"),
    {
        "other case": ("S-29", "node A {}", "node B @rename_from(a) {}"),
        "of an interface is reported once": (
            "S-30",
            "interface I { a: I32 } node A implements I {} node B implements I {}",
            "interface I { b: I32 @rename_from(z) } node A implements I {} node B implements I {}",
        ),
    },
)
def test_a_wrong_hint_is_an_identity_error(code: str, old: str, new: str) -> None:
    with pytest.raises(CompilerError) as failure:
        migrate(old, new)

    assert failure.value.codes == (code,)


def test_a_hint_of_an_interface_is_no_error_on_a_node_that_is_new() -> None:
    old = "interface I { a: I32 } node A implements I {}"
    new = "interface I { b: I32 @rename_from(a) } node A implements I {} node B implements I {}"

    assert migrate(old, new).supported


def numbered(type_id: int, incarnation: int | None = None, **properties: int) -> TypeIdentity:
    return TypeIdentity(type_id=type_id, incarnation=incarnation, properties=properties)


@named_cases(
    ("next_id", "types", "why"),
    {
        "the next number is that of a type": (1, [numbered(1)], "next_id must exceed"),
        "the next number is that of an incarnation": (5, [numbered(1, 5)], "next_id must exceed"),
        "the next number is below that of a property": (5, [numbered(1, a=9)], "next_id must exceed"),
        "a number is used twice": (9, [numbered(1, a=2), numbered(2)], "allocated twice"),
        "numbers begin at one": (9, [numbered(0)], None),
        "no number is negative": (9, [numbered(-1)], None),
    },
)
def test_numbers_that_contradict_each_other_are_refused(
    next_id: int, types: list[TypeIdentity], why: str | None
) -> None:
    with pytest.raises(ValueError, match=why):
        Identities(domain=DOMAIN, next_id=next_id, types={(INTERFACE, "IJ"[i]): it for i, it in enumerate(types)})


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


@named_cases(
    "text",
    {
        "comments": "// a comment\n" + BASE + "/* another */",
        "layout": " ".join(BASE.split()),
        "order of declarations": changed(("node B {}\n", "")) + "node B {}",
        "order of properties": changed(
            ("    e: enum(x, y)\n", ""), ("    a: String\n", "    e: enum(x, y)\n    a: String\n")
        ),
        "order of enum values": changed(("enum(x, y)", "enum(y, x)")),
        "order of key members": changed(("@key(a, e)", "@key(e, a)")),
        "order of unique members": changed(("@unique(b, a)", "@unique(a, b)")),
        "order of constraints": changed(("    @index(b)\n", ""), ("    @key(a, e)", "    @index(b)\n    @key(a, e)")),
        "order of annotations": changed(('@unit("m") @note', '@note @unit("m")')),
        "order of keywords": changed(("k=1, l=2", "l=2, k=1")),
        "spelling of an embed source": changed(("@embed(a,", '@embed("a",')),
        "property rename hint": changed(("a: String\n", 'a: String @rename_from("z")\n')),
        "type rename hint": changed(("node B {}", 'node B @rename_from("C") {}')),
        "a rule said twice": changed(("@unique(b, a)", "@unique(b, a) @unique(a, b)")),
        "spelling of an end": changed(("@unique(src, w)", "@unique(w, @src)")),
        "spelling of a bound": changed(("@range(b, 1..2)", "@range(b, 1.0..2.00)")),
    },
)
def test_what_means_nothing_does_not_count(text: str) -> None:
    assert hash_of(text) == hash_of(BASE)


MEANINGS = {
    "the schema itself": BASE,
    "a new type": changed(("node B {}", "node B {} node C {}")),
    "a new property": changed(("a: String\n", "a: String\n    n: I32?\n")),
    "type": changed(("b: I32?", "b: I64?")),
    "nullability": changed(("b: I32?", "b: I32")),
    "dimension": changed(("Vector(3)", "Vector(4)")),
    "enum values": changed(("enum(x, y)", "enum(x, y, z)")),
    "key members": changed(("@key(a, e)", "@key(a)")),
    "no key": changed(("    @key(a, e)\n", "")),
    "no unique": changed(("    @unique(b, a)\n", "")),
    "no index": changed(("    @index(b)\n", "")),
    "spelling of an index": changed(("    @index(b)\n", ""), ("b: I32? @unit", "b: I32? @index @unit")),
    "range": changed(("@range(b, 1..2)", "@range(b, 1..3)")),
    "open range": changed(("@range(b, 1..2)", "@range(b, 1..)")),
    "check": changed(('@check(a, "p")', '@check(a, "q")')),
    "embed model": changed(('model="m"', 'model="n"')),
    "no embed model": changed((', model="m"', "")),
    "description": changed(('@description("d")', '@description("e")')),
    "instruction": changed(('@instruction("i")', "")),
    "opaque value": changed(('@tag("x"', '@tag("y"')),
    "opaque keyword": changed(("k=1", "k=3")),
    "opaque annotation": changed((" @note", "")),
    "cardinality": changed(("@card(0..2)", "@card(0..3)")),
    "key of an edge": changed(("@unique(src, w)", "@unique(src, w) @key(src, dst)")),
    "members of the key of an edge": changed(("@unique(src, w)", "@unique(src, w) @key(src, dst, w)")),
    "direction": changed(("A -> B", "B -> A")),
    "implements": changed(("implements I {", "{ t: String @index")),
    "injected": changed(("    a: String\n", "    a: String\n    t: String @index\n")),
    "edge columns": changed(("@unique(src, w)", "@unique(dst, w)")),
    "name of an edge": changed(("edge E:", "edge F:")),
    "an interface that no node implements": changed(("node B {}", "node B {} interface J { a: String }")),
    "its property": changed(("node B {}", "node B {} interface J { a: String @index }")),
    "a node of that name and property": changed(("node B {}", "node B {} node J { a: String }")),
}


def test_every_difference_in_meaning_has_a_hash_of_its_own() -> None:
    named: dict[str, list[str]] = {}
    for name, text in MEANINGS.items():
        named.setdefault(hash_of(text), []).append(name)

    assert [names for names in named.values() if len(names) > 1] == []
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", found) for found in named)


TEXT = """
interface I { t: String @index }
node A implements I { a: String @key b: F64? @unit("m", k=1) @range(b, 0.5..) }
node B { x: I32 y: I32 @key(y, x) }
edge E: A -> B @card(0..2) { w: F32? }
"""

Contract = dict[str, Any]


def stored(text: str = TEXT) -> Contract:
    return json.loads(json.dumps(write_contract(accept(text))))


def test_the_contract_is_json_with_version_domain_counter_and_every_number() -> None:
    contract = write_contract(accept(TEXT))

    assert json.loads(json.dumps(contract, allow_nan=False)) == contract
    assert (contract["ir_version"], IR_VERSION, contract["identity_domain"]) == (2, 2, DOMAIN)
    assert contract["next_identity_id"] == accept(TEXT).identities.next_id
    assert [(item["name"], item["id"]) for item in contract["nodes"]] == [("A", 2), ("B", 3)]
    assert [(p["name"], p["id"]) for p in contract["nodes"][1]["properties"]] == [("x", 9), ("y", 10)]
    assert "incarnation" not in contract["interfaces"][0]
    assert contract["edges"][0]["incarnation"] == 14


@named_cases(
    "text",
    {
        "small": TEXT,
        "empty": "",
        "not ASCII": 'node A @description("naïve 知识") {}',
        "keyed edge": "node A {} edge E: A -> A { n: I32 @key(src, n, dst) }",
        "tolerated shape": "node A { b: Blob @unique(b) }",
        "reading graph": (GOLDEN / "reading.pg").read_text(encoding="utf-8"),
    },
)
def test_a_contract_is_read_back_as_it_was_written(text: str) -> None:
    accepted = accept(text)

    read = read_contract(stored(text), catalog_of(text, accepted=True))

    assert read == accepted


def test_the_contract_of_an_edge_without_a_key_is_the_one_of_earlier_releases() -> None:
    """They named no key there, and a contract has to be the one that its source makes."""
    keyed = stored("node A {} edge E: A -> A { @key(src, dst) }")
    assert keyed["edges"][0]["key"] == {"members": ["dst", "src"], "provenance": "body"}
    assert "key" not in stored("node A {} edge E: A -> A")["edges"][0]


def test_numbers_after_migrations_are_read_back() -> None:
    new = 'node C { n: I32? } node B { x: I32 z: I32 @rename_from("y") @key(z, x) }'
    accepted = apply("node B { x: I32 y: I32 @key(y, x) }", new)

    read = read_contract(json.loads(json.dumps(write_contract(accepted))), catalog_of(new))

    assert read.identities == accepted.identities


def test_comments_order_and_hints_of_the_source_do_not_matter() -> None:
    other = "// moved\n" + TEXT.replace("x: I32 y: I32", "y: I32 @rename_from(z) x: I32")

    assert read_contract(stored(), catalog_of(other)).identities == accept(TEXT).identities


@named_cases(
    "text",
    {
        "type": TEXT.replace("w: F32?", "w: F64?"),
        "new type": TEXT + "node C {}",
        "cardinality": TEXT.replace("@card(0..2)", ""),
        "description": TEXT.replace("node B", 'node B @description("x")'),
        "type gone": TEXT.replace("edge E: A -> B @card(0..2) { w: F32? }", ""),
        "property gone": TEXT.replace("w: F32?", ""),
    },
)
def test_an_edited_source_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"schema apply|damaged"):
        read_contract(stored(), catalog_of(text))


def _set(path: list[str | int], *value: object) -> Callable[[Contract], None]:
    """Give one member of a contract another value, or take it away."""

    def damage(contract: Contract) -> None:
        place: Any = contract
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value[0] if value else None
        if not value:
            del place[path[-1]]

    return damage


@named_cases(
    "damage",
    {
        "no nodes": _set(["nodes"]),
        "nodes is null": _set(["nodes"], None),
        "a node is a number": _set(["nodes"], [1]),
        "nodes is a text": _set(["nodes"], "AB"),
        "type without number": _set(["nodes", 0, "id"]),
        "node without incarnation": _set(["nodes", 0, "incarnation"]),
        "interface with incarnation": _set(["interfaces", 0, "incarnation"], 90),
        "property without number": _set(["nodes", 0, "properties", 0, "id"]),
        "number as text": _set(["nodes", 0, "id"], "2"),
        "number is null": _set(["nodes", 0, "id"], None),
        "number is a fraction": _set(["nodes", 0, "id"], 2.5),
        "number is a boolean": _set(["nodes", 0, "id"], True),
        "number used twice": _set(["nodes", 0, "id"], 3),
        "number zero": _set(["nodes", 0, "id"], 0),
        "negative number": _set(["nodes", 0, "id"], -4),
        "number beyond the counter": _set(["nodes", 0, "id"], 1000),
        "counter too small": _set(["next_identity_id"], 3),
        "counter as text": _set(["next_identity_id"], "99"),
        "no counter": _set(["next_identity_id"]),
        "domain is no ULID": _set(["identity_domain"], "x"),
        "domain in lower case": _set(["identity_domain"], DOMAIN.lower()),
        "domain is null": _set(["identity_domain"], None),
        "no domain": _set(["identity_domain"]),
        "other name": _set(["nodes", 0, "name"], "Z"),
        "unknown member": _set(["extra"], 1),
        "older version": _set(["ir_version"], 1),
        "newer version": _set(["ir_version"], 3),
        "no version": _set(["ir_version"]),
    },
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


def test_the_contract_holds_no_rename_hint() -> None:
    compiled = compile_schema("node A @rename_from(Z) { a: I32 @rename_from(b) }")

    assert compiled.catalog.nodes["A"].renamed_from is not None
    assert "rename" not in json.dumps(write_contract(accept(compiled.source.text)))
