from __future__ import annotations

import pytest

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
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
from support.schemas import catalog_of
from support.subtests import each_case


def test_types_are_sorted_by_name(reading: Catalog) -> None:
    assert list(reading.nodes) == ["Author", "Paper", "Venue"]
    assert list(reading.edges) == ["AppearsAt", "Cites", "Wrote"]
    assert list(reading.interfaces) == ["Titled"]


def test_columns_are_declared_properties_in_source_order_and_then_injected_ones() -> None:
    text = "interface J { y: I32 } interface I { z: I32 x: I32 } node A implements I, J { c: I32 a: I32 }"

    assert list(catalog_of(text).nodes["A"].properties) == ["c", "a", "z", "x", "y"]


def test_a_missing_interface_property_is_injected_with_its_type() -> None:
    prop = (
        catalog_of("interface I { t: String? } node A implements I {}").nodes["A"].properties["t"]
    )

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
    assert reading.nodes["Venue"].key == MemberSet(
        members=("series", "edition"), provenance=Provenance.BODY
    )


def test_a_node_without_key_has_none(reading: Catalog) -> None:
    assert reading.nodes["Author"].key is None


def test_rules_are_recorded(reading: Catalog) -> None:
    paper = reading.nodes["Paper"]

    assert paper.ranges == (RangeRule(property="year", low=1600, high=2100),)
    assert paper.checks == (CheckRule(property="doi", pattern="^10[.]"),)
    assert paper.properties["vec"].embedding == Embedding(source="abstract", model="mock-8")


def test_enum_values_are_sorted(reading: Catalog) -> None:
    assert reading.nodes["Paper"].properties["stage"].type.base == EnumType(
        ("accepted", "preprint", "retracted")
    )


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
def test_other_annotations_are_kept_as_opaque_metadata(
    place: str, annotation: str, expected: OpaqueAnnotation
) -> None:
    at = {place: annotation}
    catalog = catalog_of(
        f"node A {at.get('node', '')} {{ p: I32 {at.get('property', '')} }}"
        f"edge E: A -> A {at.get('edge', '')}"
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
    assert [edge.name for edge in reading.incident_edges("Paper")] == [
        "AppearsAt",
        "Cites",
        "Wrote",
    ]


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
    base: ScalarType | EnumType | ListType | VectorType,
    expected: tuple[IndexKind, ...],
    nullable: bool,
) -> None:
    assert index_kinds(PropertyType(base, nullable)) == expected
