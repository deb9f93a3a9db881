from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import Severity
from omnigraph.lang.schema.catalog import (
    Catalog,
    CheckRule,
    Embedding,
    IndexKind,
    MemberSet,
    NodeDef,
    OpaqueAnnotation,
    Provenance,
    RangeRule,
    index_kinds,
)
from omnigraph.lang.schema.steps import RESERVED_FAMILIES, RULES, SHIPPED_FAMILIES, LintCode, Tier
from support.schemas import catalog_of, codes_of, findings_of
from support.subtests import each_case, named_cases

NODE = "node A {}\n"


@named_cases(
    ("code", "text"),
    {
        "S-04 dimension too large": ("S-04", "node A { v: Vector(2147483648) }"),
        "S-04 dimension of many digits": ("S-04", f"node A {{ v: Vector({'9' * 5000}) }}"),
        "S-05 in an interface": ("S-05", "interface I { a: [Blob] }"),
        "S-07": ("S-07", NODE + "edge E: A -> A @card(4294967296..4294967297)"),
        "S-09 list": ("S-09", "interface I { a: [I32] } node A implements I { a: [I64] }"),
        "S-09 vector": ("S-09", "interface I { a: Vector(2) } node A implements I { a: Vector(3) }"),
        "S-10 opaque annotation": (
            "S-10",
            'interface I { a: String @x("1") } interface J { a: String } node A implements I, J {}',
        ),
        "S-10 number and boolean": (
            "S-10",
            "interface I { a: String @x(1) } interface J { a: String @x(true) } node A implements I, J {}",
        ),
        "S-10 description": (
            "S-10",
            'interface I { a: String @description("p") } interface J { a: String @description("q") } '
            "node A implements I, J {}",
        ),
        "S-11 unique": ("S-11", "node A @unique { a: String }"),
        "S-11 key with a list": ("S-11", "node A @key(a) { a: String }"),
        "S-11 embed on an edge": ("S-11", NODE + 'edge E: A -> A @embed("x")'),
        "S-12 in an interface": ("S-12", "interface I { a: String @index @index }"),
        "S-12 on an edge": ("S-12", NODE + "edge E: A -> A { a: String @unique @unique }"),
        "S-12 float": ("S-12", "node A { a: String @index(1.5) }"),
        "S-13 on an edge": ("S-13", NODE + "edge E: A -> A { a: [String] @index }"),
        "S-13 in an interface": ("S-13", "interface I { a: [String]? @index }"),
        "S-14 on an edge": ("S-14", NODE + "edge E: A -> A { a: Vector(2) @unique }"),
        "S-15 in an interface": ("S-15", "interface I { a: Blob? @index }"),
        "S-17 a source that is not a name": ("S-17", "node A { v: Vector(2) @embed(5) }"),
        "S-18 in an interface": ("S-18", "interface I { a: String @instruction(x) }"),
        "S-19 in an interface": ("S-19", "interface I { a: String @rename_from }"),
        "S-20 on an edge": ("S-20", NODE + "edge E: A -> A { @unique(src, x) }"),
        "S-20 id is no property": ("S-20", "node A { @index(id) }"),
        "S-21 two interfaces": (
            "S-21",
            "interface I { a: String @key } interface J { b: String @key } node A implements I, J {}",
        ),
        "S-22 injected": ("S-22", "interface I { a: String? @key } node A implements I {}"),
        "S-24 range of a vector": ("S-24", "node A { v: Vector(2) @range(v, 0..1) }"),
        "S-24 range of an enum": ("S-24", "node A { e: enum(a) @range(e, 0..1) }"),
        "S-24 check of a blob": ("S-24", 'node A { b: Blob @check(b, "x") }'),
        "S-25": ("S-25", "interface I {} interface I {}"),
        "S-28 list on an edge": ("S-28", NODE + "edge E: A -> A { l: [I32] @unique(l) }"),
        "S-28 repeated src": ("S-28", NODE + "edge E: A -> A { @unique(src, src) }"),
    },
)
def test_a_broken_rule_is_reported_once_under_its_code(code: str, text: str) -> None:
    assert codes_of(text) == [code]


@named_cases(
    "text",
    {
        "S-04 limits": "node A { v: Vector(1) w: Vector(2147483647) }",
        "S-05 other lists": "node A { a: [String] b: [DateTime]? c: [F32] }",
        "S-06 values differ in case": "node A { a: enum(x, X) }",
        "S-08 interface after the node": "node A implements I {} interface I {}",
        "S-09 enum order": "interface I { a: enum(x, y) } node A implements I { a: enum(y, x) }",
        "S-09 annotations are the node's own": "interface I { a: String @index } node A implements I { a: String }",
        "S-10 order of annotations and hints": (
            'interface I { a: String @index @x(1) @rename_from("p") } interface J { a: String @x(1) @index } '
            "node A implements I, J {}"
        ),
        "S-10 enum order": "interface I { a: enum(x, y) } interface J { a: enum(y, x) } node A implements I, J {}",
        "S-10 the same interface twice": "interface I { a: I32 } node A implements I, I {}",
        "S-10 mixed values": 'interface I { a: I32 @x(1) @x("y") } node A implements I {}',
        "S-12 three rules on one property": "node A { a: String @key @unique @index }",
        "S-14 index and embed": "node A { t: String v: Vector(2) @index @embed(t) }",
        "S-13 body index over a list": "node A { l: [String] @index(l) }",
        "S-14 body index over a vector": "node A { v: Vector(2) w: I32 @index(v, w) }",
        "S-16 unique on an edge": "node A {} edge E: A -> A { a: String @unique @index }",
        "S-17 nullable source": 'node A { t: String? v: Vector(2) @embed("t") }',
        "S-17 bare source": 'node A { t: String v: Vector(2)? @embed(t, model="m") }',
        "S-17 source of the node": "interface I { v: Vector(2) @embed(t) } node A implements I { t: String }",
        "S-17 source of the interface": "interface I { t: String } node A implements I { v: Vector(2) @embed(t) }",
        "S-18 one of each": 'node A @description("a") @instruction("b") {}',
        "S-19 bare name": "node A @rename_from(Old) { a: I32 @rename_from(b) }",
        "S-20 injected member": "interface I { a: I32 } node A implements I { @index(a) }",
        "S-22 any scalar": "node A { k: Bool l: Date m: F64 n: enum(a) @key(k, l, m, n) }",
        "S-24 nullable number": "node A { a: U64? @range(a, 0..) }",
        "S-24 nullable string": 'node A { a: String? @check(a, "x") }',
        "S-25 namespaces": "node Cites {} interface Cites {} edge Cites: Cites -> Cites",
        "S-27 edges only": "node Ab {} node AB {} interface Ii {} interface II {}",
        "S-26 self-loop": "node A {} edge E: A -> A",
        "S-28 one value": "node A { a: I32 @range(a, 3..3) }",
        "S-28 the same set twice": "node A { a: I32 @unique(a) @unique(a) }",
        "S-28 empty pattern": 'node A { a: String @check(a, "") }',
        "a node without properties": "node A {}",
    },
)
def test_a_schema_at_the_edge_of_a_rule_is_legal(text: str) -> None:
    assert catalog_of(text).schema_hash.startswith("sha256:")


def test_s_17_a_source_missing_in_an_implementor_names_that_node() -> None:
    text = (
        "interface I { v: Vector(2) @embed(t) }\n"
        "node Good implements I { t: String }\n"
        "node Poor implements I { s: String }"
    )

    (finding,) = findings_of(text)

    assert finding.code == "S-17"
    assert "Poor" in finding.message


@pytest.mark.parametrize(
    ("code", "interface"),
    [("S-17", "interface I { v: Vector(2) @embed(v) }"), ("S-22", "interface I { a: String? @key }")],
)
def test_a_mistake_inside_an_interface_is_reported_once_for_all_implementors(code: str, interface: str) -> None:
    text = interface + "\nnode A implements I {}\nnode B implements I {}"

    assert codes_of(text) == [code]


def test_s_22_the_reason_against_a_list_in_a_key_is_about_keys() -> None:
    (finding,) = findings_of("node A { l: [String] @key(l) }")

    assert "order" not in finding.message


def test_a_wrong_type_is_reported_once_and_causes_no_other_finding() -> None:
    text = 'node A { a: Varchar @key v: Vector(2) @embed(a) @check(a, "x") @range(a, 0..1) @unique(a) }'

    assert codes_of(text) == ["S-01"]


class TestTheAcceptedContract:
    """Re-reading an accepted contract tolerates one old shape: a body `@unique` that holds a Blob."""

    def test_a_body_unique_over_a_blob_is_tolerated(self) -> None:
        node = catalog_of("node A { b: Blob c: I32 @unique(b, c) }", accepted=True).nodes["A"]

        assert node.uniques[0].members == ("b", "c")

    def test_it_is_tolerated_on_an_edge_too(self) -> None:
        text = "node A {} edge E: A -> A { b: Blob @unique(src, b) }"

        assert catalog_of(text, accepted=True).edges["E"].uniques[0].members == ("src", "b")

    @named_cases(
        ("code", "text"),
        {
            "S-15 property form": ("S-15", "node A { b: Blob @unique }"),
            "S-15 index": ("S-15", "node A { b: Blob @index(b) }"),
            "S-15 key": ("S-15", "node A { b: Blob @key(b) }"),
            "S-20 unknown member": ("S-20", "node A { a: I32 @unique(x) }"),
            "S-28 list": ("S-28", "node A { l: [I32] @unique(l) }"),
            "S-28 vector": ("S-28", "node A { v: Vector(2) @unique(v) }"),
            "S-28 repeated member": ("S-28", "node A { a: I32 @unique(a, a) }"),
            "S-12 value": ("S-12", "node A { a: I32 @unique(3) }"),
        },
    )
    def test_every_other_rule_still_holds(self, code: str, text: str) -> None:
        assert codes_of(text, accepted=True) == [code]

    def test_s_15_new_input_never_gets_it(self) -> None:
        assert codes_of("node A { b: Blob @unique(b) }") == ["S-15"]


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
    assert len(RULES) == len(TABLE) == len(LintCode)
    assert all(rule.severity is Severity.ERROR and rule.meaning.strip() for rule in RULES)
    assert SHIPPED_FAMILIES == ("DS", "MF")
    assert RESERVED_FAMILIES == ("CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")


def names(items: Iterable[Any]) -> list[str]:
    return [item.name for item in items]


@named_cases(
    ("look", "expected"),
    {
        "nodes are sorted by name": (lambda it: list(it.nodes), ["Author", "Paper", "Venue", "Verdict"]),
        "edges are sorted by name": (lambda it: list(it.edges), ["AppearsAt", "Cites", "Wrote"]),
        "interfaces are kept": (lambda it: list(it.interfaces), ["Titled"]),
        "an interface owns no dataset": (lambda it: hasattr(it.interfaces["Titled"], "table_key"), False),
        "a node has a table key": (lambda it: it.nodes["Paper"].table_key, "node:Paper"),
        "an edge has a table key": (lambda it: it.edges["Cites"].table_key, "edge:Cites"),
        "a composite key keeps its source order": (
            lambda it: it.nodes["Venue"].key,
            MemberSet(members=("series", "edition"), provenance=Provenance.BODY),
        ),
        "a node without key has none": (lambda it: it.nodes["Author"].key, None),
        "ranges": (lambda it: it.nodes["Paper"].ranges, (RangeRule(property="year", low=1600, high=2100),)),
        "checks": (lambda it: it.nodes["Paper"].checks, (CheckRule(property="doi", pattern="^10[.]"),)),
        "embeddings": (
            lambda it: it.nodes["Paper"].properties["vec"].embedding,
            Embedding(source="abstract", model="mock-8"),
        ),
        "enum values are sorted": (
            lambda it: it.nodes["Paper"].properties["stage"].type.base,
            EnumType(("accepted", "preprint", "retracted")),
        ),
        "an unknown edge": (lambda it: it.edge("Paper"), None),
        "an edge is found whatever its case": (
            lambda it: names(it.edge(word) for word in ("Cites", "cites", "CITES", "cItEs")),
            ["Cites"] * 4,
        ),
        "incident edges end at a node": (lambda it: names(it.incident_edges("Venue")), ["AppearsAt"]),
        "incident edges begin or end": (lambda it: names(it.incident_edges("Paper")), ["AppearsAt", "Cites", "Wrote"]),
    },
)
def test_the_catalog_of_the_reading_graph(
    reading: Catalog, look: Callable[[Catalog], object], expected: object
) -> None:
    assert look(reading) == expected


T_RULE = (MemberSet(members=("t",), provenance=Provenance.PROPERTY),)


@named_cases(
    ("text", "look", "expected"),
    {
        "columns are declared properties in source order and then injected ones": (
            "interface J { y: I32 } interface I { z: I32 x: I32 } node A implements I, J { c: I32 a: I32 }",
            lambda node: list(node.properties),
            ["c", "a", "z", "x", "y"],
        ),
        "a missing property is injected with its type": (
            "interface I { t: String? } node A implements I {}",
            lambda node: (str(node.properties["t"].type), node.properties["t"].injected),
            ("String?", True),
        ),
        "a declared property stays the node's own": (
            "interface I { t: String @index } node A implements I { t: String }",
            lambda node: (node.properties["t"].injected, node.indexes),
            (False, ()),
        ),
        "an injected key": ("interface I { t: String @key } node A implements I {}", lambda it: (it.key,), T_RULE),
        "an injected unique": (
            "interface I { t: String @unique } node A implements I {}",
            lambda it: it.uniques,
            T_RULE,
        ),
        "an injected index": ("interface I { t: String @index } node A implements I {}", lambda it: it.indexes, T_RULE),
        "an injected embedding, description and annotation": (
            'interface I { t: String v: Vector(3) @embed(t, model="m") @description("d") @unit("x") } '
            "node A implements I {}",
            lambda node: [getattr(node.properties["v"], name) for name in ("embedding", "description", "annotations")],
            [Embedding(source="t", model="m"), "d", (OpaqueAnnotation("unit", "x"),)],
        ),
        "implements is a set": (
            "interface J {} interface I {} node A implements J, I, J {}",
            lambda node: node.implements,
            ("I", "J"),
        ),
    },
)
def test_a_node_and_what_its_interfaces_give_it(text: str, look: Callable[[NodeDef], object], expected: object) -> None:
    assert look(catalog_of(text).nodes["A"]) == expected


@each_case(
    ("annotation", "expected"),
    [
        ('@embed("t")', Embedding(source="t")),
        ("@embed(t)", Embedding(source="t")),
        ('@embed("t", model="m")', Embedding(source="t", model="m")),
        ('@embed(t, model="m")', Embedding(source="t", model="m")),
    ],
)
def test_the_three_spellings_of_embed(annotation: str, expected: Embedding) -> None:
    node = catalog_of(f"node A {{ t: String v: Vector(2) {annotation} }}").nodes["A"]

    assert node.properties["v"].embedding == expected


@each_case(
    ("annotation", "expected"),
    [
        ("@tag", OpaqueAnnotation("tag")),
        ('@tag("v")', OpaqueAnnotation("tag", "v")),
        ("@tag(v)", OpaqueAnnotation("tag", "v")),
        ('@tag("v", k=1)', OpaqueAnnotation("tag", "v", (("k", "1"),))),
        ('@tag(1.50, b=true, a="x")', OpaqueAnnotation("tag", "1.50", (("a", "x"), ("b", "true")))),
    ],
)
@each_case("place", ["node", "edge", "property"])
def test_other_annotations_are_kept_as_opaque_metadata(place: str, annotation: str, expected: OpaqueAnnotation) -> None:
    at = {place: annotation}
    catalog = catalog_of(
        f"node A {at.get('node', '')} {{ p: I32 {at.get('property', '')} }}edge E: A -> A {at.get('edge', '')}"
    )

    found = {
        "node": catalog.nodes["A"].metadata.annotations,
        "edge": catalog.edges["E"].metadata.annotations,
        "property": catalog.nodes["A"].properties["p"].annotations,
    }[place]

    assert found == (expected,)


def test_meaningful_annotations_are_not_opaque() -> None:
    text = (
        'node A @rename_from("B") @description("d") @instruction("i") '
        '{ t: String @key @unique @index @description("p") @rename_from("s") v: Vector(2) @embed(t) }'
    )

    node = catalog_of(text).nodes["A"]

    assert node.metadata.annotations == ()
    assert [prop.annotations for prop in node.properties.values()] == [(), ()]
    assert (node.metadata.description, node.metadata.instruction) == ("d", "i")
    assert node.properties["t"].description == "p"


@each_case(
    ("base", "expected"),
    [
        pytest.param(EnumType(("a",)), (IndexKind.BTREE,), id="enum"),
        *[
            pytest.param(ScalarType(scalar), (IndexKind.BTREE,), id=scalar.value)
            for scalar in Scalar
            if scalar not in (Scalar.STRING, Scalar.BLOB)
        ],
        pytest.param(ScalarType(Scalar.STRING), (IndexKind.BTREE,), id="String"),
        pytest.param(VectorType(3), (IndexKind.VECTOR,), id="Vector"),
        pytest.param(ListType(Scalar.STRING), (), id="list"),
        pytest.param(ScalarType(Scalar.BLOB), (), id="Blob"),
    ],
)
@each_case("nullable", [False, True], ids=["required", "nullable"])
def test_an_index_intent_becomes_the_index_of_its_type(
    base: ScalarType | EnumType | ListType | VectorType, expected: tuple[IndexKind, ...], nullable: bool
) -> None:
    assert index_kinds(PropertyType(base, nullable)) == expected
