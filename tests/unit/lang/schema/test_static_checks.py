from __future__ import annotations

import re

import pytest

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import Severity
from omnigraph.lang.schema.catalog import (
    Catalog,
    CheckRule,
    Embedding,
    IndexKind,
    MemberSet,
    OpaqueAnnotation,
    Provenance,
    RangeRule,
    index_kinds,
)
from omnigraph.lang.schema.steps import RESERVED_FAMILIES, RULES, SHIPPED_FAMILIES, LintCode, LintRule, Tier
from support.schemas import catalog_of, codes_of, findings_of, migrate
from support.subtests import each_case

NODE = "node A {}\n"


@each_case(
    ("code", "text"),
    [
        pytest.param("S-04", "node A { v: Vector(2147483648) }", id="S-04 dimension too large"),
        pytest.param("S-04", f"node A {{ v: Vector({'9' * 5000}) }}", id="S-04 dimension of many digits"),
        pytest.param("S-05", "interface I { a: [Blob] }", id="S-05 in an interface"),
        pytest.param("S-06", "node A { a: enum(x, x) }", id="S-06"),
        pytest.param("S-07", NODE + "edge E: A -> A @card(4294967296..4294967297)", id="S-07"),
        pytest.param("S-08", "node A implements I {}", id="S-08"),
        pytest.param("S-09", "interface I { a: [I32] } node A implements I { a: [I64] }", id="S-09 list"),
        pytest.param("S-09", "interface I { a: Vector(2) } node A implements I { a: Vector(3) }", id="S-09 vector"),
        pytest.param(
            "S-10",
            'interface I { a: String @x("1") } interface J { a: String } node A implements I, J {}',
            id="S-10 opaque annotation",
        ),
        pytest.param(
            "S-10",
            "interface I { a: String @x(1) } interface J { a: String @x(true) } node A implements I, J {}",
            id="S-10 number and boolean",
        ),
        pytest.param(
            "S-10",
            'interface I { a: String @description("p") } interface J { a: String @description("q") } '
            "node A implements I, J {}",
            id="S-10 description",
        ),
        pytest.param("S-11", "node A @unique { a: String }", id="S-11 unique"),
        pytest.param("S-11", "node A @key(a) { a: String }", id="S-11 key with a list"),
        pytest.param("S-11", NODE + 'edge E: A -> A @embed("x")', id="S-11 embed on an edge"),
        pytest.param("S-12", "interface I { a: String @index @index }", id="S-12 in an interface"),
        pytest.param("S-12", NODE + "edge E: A -> A { a: String @unique @unique }", id="S-12 on an edge"),
        pytest.param("S-12", "node A { a: String @index(1.5) }", id="S-12 float"),
        pytest.param("S-13", NODE + "edge E: A -> A { a: [String] @index }", id="S-13 on an edge"),
        pytest.param("S-13", "interface I { a: [String]? @index }", id="S-13 in an interface"),
        pytest.param("S-14", NODE + "edge E: A -> A { a: Vector(2) @unique }", id="S-14 on an edge"),
        pytest.param("S-15", "interface I { a: Blob? @index }", id="S-15 in an interface"),
        pytest.param("S-18", "interface I { a: String @instruction(x) }", id="S-18 in an interface"),
        pytest.param("S-19", "interface I { a: String @rename_from }", id="S-19 in an interface"),
        pytest.param("S-20", NODE + "edge E: A -> A { @unique(src, x) }", id="S-20 on an edge"),
        pytest.param("S-20", "node A { @index(id) }", id="S-20 id is no property"),
        pytest.param(
            "S-21",
            "interface I { a: String @key } interface J { b: String @key } node A implements I, J {}",
            id="S-21 two interfaces",
        ),
        pytest.param("S-22", "interface I { a: String? @key } node A implements I {}", id="S-22 injected"),
        pytest.param("S-23", NODE + "edge E: A -> A { @key(src) }", id="S-23"),
        pytest.param("S-24", "node A { v: Vector(2) @range(v, 0..1) }", id="S-24 range of a vector"),
        pytest.param("S-24", "node A { e: enum(a) @range(e, 0..1) }", id="S-24 range of an enum"),
        pytest.param("S-24", 'node A { b: Blob @check(b, "x") }', id="S-24 check of a blob"),
        pytest.param("S-25", "interface I {} interface I {}", id="S-25"),
        pytest.param("S-26", "edge E: A -> B node A {}", id="S-26"),
        pytest.param("S-27", NODE + "edge Ab: A -> A edge AB: A -> A", id="S-27"),
        pytest.param("S-28", NODE + "edge E: A -> A { l: [I32] @unique(l) }", id="S-28 list on an edge"),
        pytest.param("S-28", NODE + "edge E: A -> A { @unique(src, src) }", id="S-28 repeated src"),
        pytest.param("S-28", 'node A { a: String @check(a, "[") }', id="S-28 pattern"),
        pytest.param("S-28", "node A { a: I32 @range(a, 0..-1) }", id="S-28 range"),
    ],
)
def test_a_broken_rule_is_reported_once_under_its_code(code: str, text: str) -> None:
    assert codes_of(text) == [code]


@each_case(
    "text",
    [
        pytest.param("node A { v: Vector(1) w: Vector(2147483647) }", id="S-04 limits"),
        pytest.param("node A { a: [String] b: [DateTime]? c: [F32] }", id="S-05 other lists"),
        pytest.param("node A { a: enum(x, X) }", id="S-06 values differ in case"),
        pytest.param("node A implements I {} interface I {}", id="S-08 interface after the node"),
        pytest.param("interface I { a: enum(x, y) } node A implements I { a: enum(y, x) }", id="S-09 enum order"),
        pytest.param(
            "interface I { a: String @index } node A implements I { a: String }",
            id="S-09 annotations are the node's own",
        ),
        pytest.param(
            'interface I { a: String @index @x(1) @rename_from("p") } interface J { a: String @x(1) @index } '
            "node A implements I, J {}",
            id="S-10 order of annotations and hints",
        ),
        pytest.param(
            "interface I { a: enum(x, y) } interface J { a: enum(y, x) } node A implements I, J {}",
            id="S-10 enum order",
        ),
        pytest.param("interface I { a: I32 } node A implements I, I {}", id="S-10 the same interface twice"),
        pytest.param('interface I { a: I32 @x(1) @x("y") } node A implements I {}', id="S-10 mixed values"),
        pytest.param("node A { a: String @key @unique @index }", id="S-12 three rules on one property"),
        pytest.param("node A { t: String v: Vector(2) @index @embed(t) }", id="S-14 index and embed"),
        pytest.param("node A { l: [String] @index(l) }", id="S-13 body index over a list"),
        pytest.param("node A { v: Vector(2) w: I32 @index(v, w) }", id="S-14 body index over a vector"),
        pytest.param("node A {} edge E: A -> A { a: String @unique @index }", id="S-16 unique on an edge"),
        pytest.param('node A { t: String? v: Vector(2) @embed("t") }', id="S-17 nullable source"),
        pytest.param('node A { t: String v: Vector(2)? @embed(t, model="m") }', id="S-17 bare source"),
        pytest.param(
            "interface I { v: Vector(2) @embed(t) } node A implements I { t: String }",
            id="S-17 source of the node for a vector of the interface",
        ),
        pytest.param(
            "interface I { t: String } node A implements I { v: Vector(2) @embed(t) }",
            id="S-17 source of the interface for a vector of the node",
        ),
        pytest.param('node A @description("a") @instruction("b") {}', id="S-18 one of each"),
        pytest.param("node A @rename_from(Old) { a: I32 @rename_from(b) }", id="S-19 bare name"),
        pytest.param("interface I { a: I32 } node A implements I { @index(a) }", id="S-20 injected member"),
        pytest.param("node A { k: Bool l: Date m: F64 n: enum(a) @key(k, l, m, n) }", id="S-22 any scalar"),
        pytest.param("node A { a: U64? @range(a, 0..) }", id="S-24 nullable number"),
        pytest.param('node A { a: String? @check(a, "x") }', id="S-24 nullable string"),
        pytest.param("node Cites {} interface Cites {} edge Cites: Cites -> Cites", id="S-25 namespaces"),
        pytest.param("node Ab {} node AB {} interface Ii {} interface II {}", id="S-27 edges only"),
        pytest.param("node A {} edge E: A -> A", id="S-26 self-loop"),
        pytest.param("node A { a: I32 @range(a, 3..3) }", id="S-28 one value"),
        pytest.param("node A { a: I32 @unique(a) @unique(a) }", id="S-28 the same set twice"),
        pytest.param('node A { a: String @check(a, "") }', id="S-28 empty pattern"),
        pytest.param("node A {}", id="a node without properties"),
    ],
)
def test_a_schema_at_the_edge_of_a_rule_is_legal(text: str) -> None:
    assert catalog_of(text).schema_hash.startswith("sha256:")


def test_s_22_a_key_member_may_not_be_null() -> None:
    (finding,) = findings_of("node A {\n    a: String\n    b: I32?\n    @key(a, b)\n}")

    assert (finding.code, finding.line, finding.column) == ("S-22", 4, 13)
    assert finding.hint == "make it required: `b: I32`"


def test_s_17_a_source_that_is_no_name_is_one_finding() -> None:
    assert codes_of("node A { v: Vector(2) @embed(5) }") == ["S-17"]


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


def test_s_08_a_node_named_as_an_interface_is_called_a_node() -> None:
    (finding,) = findings_of("node I {} node A implements I {}")

    assert "node" in finding.message


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

    @each_case(
        ("code", "text"),
        [
            pytest.param("S-15", "node A { b: Blob @unique }", id="S-15 property form"),
            pytest.param("S-15", "node A { b: Blob @index(b) }", id="S-15 index"),
            pytest.param("S-15", "node A { b: Blob @key(b) }", id="S-15 key"),
            pytest.param("S-20", "node A { a: I32 @unique(x) }", id="S-20 unknown member"),
            pytest.param("S-28", "node A { l: [I32] @unique(l) }", id="S-28 list"),
            pytest.param("S-28", "node A { v: Vector(2) @unique(v) }", id="S-28 vector"),
            pytest.param("S-28", "node A { a: I32 @unique(a, a) }", id="S-28 repeated member"),
            pytest.param("S-12", "node A { a: I32 @unique(3) }", id="S-12 value"),
        ],
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


def test_types_are_sorted_by_name(reading: Catalog) -> None:
    assert list(reading.nodes) == ["Author", "Paper", "Venue"]
    assert list(reading.edges) == ["AppearsAt", "Cites", "Wrote"]
    assert list(reading.interfaces) == ["Titled"]


def test_columns_are_declared_properties_in_source_order_and_then_injected_ones() -> None:
    text = "interface J { y: I32 } interface I { z: I32 x: I32 } node A implements I, J { c: I32 a: I32 }"

    assert list(catalog_of(text).nodes["A"].properties) == ["c", "a", "z", "x", "y"]


def test_a_missing_interface_property_is_injected_with_its_type() -> None:
    prop = catalog_of("interface I { t: String? } node A implements I {}").nodes["A"].properties["t"]

    assert (str(prop.type), prop.injected) == ("String?", True)


def test_a_declared_interface_property_stays_the_nodes_own() -> None:
    text = "interface I { t: String @index } node A implements I { t: String }"

    node = catalog_of(text).nodes["A"]

    assert not node.properties["t"].injected
    assert node.indexes == ()


@pytest.mark.parametrize("rule", ["key", "unique", "index"])
def test_the_rule_of_an_injected_property_takes_effect_on_the_node(rule: str) -> None:
    node = catalog_of(f"interface I {{ t: String @{rule} }} node A implements I {{}}").nodes["A"]

    found = {"key": (node.key,), "unique": node.uniques, "index": node.indexes}[rule]
    assert found == (MemberSet(members=("t",), provenance=Provenance.PROPERTY),)


def test_the_embedding_and_description_of_an_injected_property_take_effect_on_the_node() -> None:
    text = (
        'interface I { t: String v: Vector(3) @embed(t, model="m") @description("d") @unit("x") } '
        "node A implements I {}"
    )

    prop = catalog_of(text).nodes["A"].properties["v"]

    assert prop.embedding == Embedding(source="t", model="m")
    assert prop.description == "d"
    assert prop.annotations == (OpaqueAnnotation("unit", "x"),)


def test_implements_is_a_set() -> None:
    text = "interface J {} interface I {} node A implements J, I, J {}"

    assert catalog_of(text).nodes["A"].implements == ("I", "J")


def test_an_interface_owns_no_dataset(reading: Catalog) -> None:
    assert not hasattr(reading.interfaces["Titled"], "table_key")


def test_nodes_and_edges_have_table_keys(reading: Catalog) -> None:
    assert reading.nodes["Paper"].table_key == "node:Paper"
    assert reading.edges["Cites"].table_key == "edge:Cites"


def test_a_composite_key_keeps_its_source_order_in_the_catalog(reading: Catalog) -> None:
    assert reading.nodes["Venue"].key == MemberSet(members=("series", "edition"), provenance=Provenance.BODY)


def test_a_node_without_key_has_none(reading: Catalog) -> None:
    assert reading.nodes["Author"].key is None


def test_rules_are_recorded(reading: Catalog) -> None:
    paper = reading.nodes["Paper"]

    assert paper.ranges == (RangeRule(property="year", low=1600, high=2100),)
    assert paper.checks == (CheckRule(property="doi", pattern="^10[.]"),)
    assert paper.properties["vec"].embedding == Embedding(source="abstract", model="mock-8")


def test_enum_values_are_sorted(reading: Catalog) -> None:
    assert reading.nodes["Paper"].properties["stage"].type.base == EnumType(("accepted", "preprint", "retracted"))


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


@each_case("word", ["Cites", "cites", "CITES", "cItEs"])
def test_an_edge_is_found_whatever_its_case(reading: Catalog, word: str) -> None:
    edge = reading.edge(word)

    assert edge is not None
    assert edge.name == "Cites"


def test_an_unknown_edge_is_none(reading: Catalog) -> None:
    assert reading.edge("Paper") is None


def test_incident_edges_begin_or_end_at_a_node(reading: Catalog) -> None:
    assert [edge.name for edge in reading.incident_edges("Venue")] == ["AppearsAt"]
    assert [edge.name for edge in reading.incident_edges("Paper")] == ["AppearsAt", "Cites", "Wrote"]


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
