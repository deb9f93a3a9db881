from __future__ import annotations

import pytest

from omnigraph.lang.schema.ast import EdgeDecl, InterfaceDecl, NodeDecl
from omnigraph.lang.schema.catalog import Cardinality, Provenance
from omnigraph.lang.schema.compiler import compile_schema
from support.schemas import catalog_of, codes_of, findings_of, hash_of
from support.subtests import each_case


def test_an_empty_text_is_a_schema_without_types() -> None:
    catalog = catalog_of(" // nothing yet\n")

    assert (dict(catalog.interfaces), dict(catalog.nodes), dict(catalog.edges)) == ({}, {}, {})


def test_the_tree_keeps_declarations_and_members_in_source_order() -> None:
    text = "edge E: A -> A\ninterface I { a: String }\nnode A { @unique(b) b: String @index(b) c: I32 }"

    edge, interface, node = compile_schema(text).tree.declarations

    assert isinstance(edge, EdgeDecl)
    assert isinstance(interface, InterfaceDecl)
    assert isinstance(node, NodeDecl)
    assert [type(member).__name__ for member in node.members] == [
        "MemberConstraint",
        "Property",
        "MemberConstraint",
        "Property",
    ]


def test_the_example_of_the_specification_compiles() -> None:
    text = """
        // a small bibliography
        interface Titled {
            title: String @index
        }

        node Paper @description("one published work") implements Titled {
            doi: String @key
            abstract: String? @index
            year: I32
            stage: enum(preprint, accepted, retracted)
            topics: [String]?
            submitted: DateTime?
            scan: Blob?
            vec: Vector(8)? @embed("abstract", model="mock-8") @index
            @range(year, 1600..2100)
            @check(doi, "^10[.]")
        }

        node Venue {
            series: String
            edition: I32
            city: String?
            @key(series, edition)
        }

        node Author {                      // keyless: ids are generated
            full_name: String
            orcid: String? @unique
        }

        edge Wrote: Author -> Paper { position: I32  @unique(src, dst) }
        edge AppearsAt: Paper -> Venue @card(0..1)
        edge Cites: Paper -> Paper @instruction("directed, citing to cited") { context: String? }
    """

    catalog = catalog_of(text)

    assert list(catalog.nodes) == ["Author", "Paper", "Venue"]
    assert list(catalog.edges) == ["AppearsAt", "Cites", "Wrote"]


@each_case(
    ("text", "hint"),
    [
        pytest.param(
            "interface I {}\nnode A implements I @tag {}",
            "annotations of a node stand before `implements`",
            id="annotation after implements",
        ),
        pytest.param(
            "interface I @tag {}", "an interface takes no annotation", id="interface annotation"
        ),
        pytest.param("interface I { a: String @unique(a) }", None, id="interface constraint"),
        pytest.param("interface I { a: I32 @range(a, 0..) }", None, id="interface range"),
        pytest.param("interface I implements J {}", None, id="interface implements"),
        pytest.param("interface I", None, id="interface without body"),
        pytest.param("node A", None, id="node without body"),
        pytest.param("interface I {} node A implements {}", None, id="implements nothing"),
        pytest.param(
            "interface I {} node A implements I, {}", None, id="implements with a last comma"
        ),
        pytest.param(
            "node A {} edge E: A -> A @tag @card(0..1)",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
            id="card after an annotation",
        ),
        pytest.param(
            "node A {} edge E: A -> A @card(0..1) @card(0..2)",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
            id="card twice",
        ),
        pytest.param("node A {} edge E: A -> A @card", None, id="card without bounds"),
        pytest.param("node A {} edge E: A -> A @card(1)", None, id="card with one number"),
        pytest.param("node A {} edge E: A -> A @card(..1)", None, id="card without minimum"),
        pytest.param(
            "node A {} edge E: A -> A @card(0..*)",
            "leave the maximum out: `0..`",
            id="card with a star",
        ),
        pytest.param(
            "node A { a: I32 @card(0..1) }",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
            id="card on a property",
        ),
        pytest.param(
            "node A {} edge E: A -> A { @card(0..1) }",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
            id="card in the body",
        ),
        pytest.param("node A { a: I32 @range(0, 3) }", None, id="range without a property"),
        pytest.param("node A { a: I32 @range(0..3) }", None, id="range with bounds alone"),
        pytest.param('node A { a: String @check("x") }', None, id="check without a property"),
        pytest.param("node A { a: String @check(a, x) }", None, id="check without a string"),
        pytest.param("node A { a: String @unique() }", None, id="empty list of members"),
        pytest.param("node A { a: String @unique(a,) }", None, id="list with a last comma"),
        pytest.param("node A @tag() {}", None, id="empty list of arguments"),
        pytest.param("node A {} edge E: A", None, id="edge without target"),
        pytest.param("node A {} edge E: A -> A, A", None, id="edge with two targets"),
        pytest.param("node A { a: String?? }", None, id="two question marks"),
        pytest.param("node A { a: [String?] }", None, id="nullable element"),
        pytest.param("node A { a: [[String]] }", None, id="list of list"),
        pytest.param("node A { a: [enum(x)] }", None, id="list of enum"),
        pytest.param("node A { a: [Vector(3)] }", None, id="list of vector"),
        pytest.param("node A { a String }", None, id="no colon"),
        pytest.param("node A { a: }", None, id="no type"),
        pytest.param("node A { a: String } }", None, id="one brace too many"),
        pytest.param("scalar X", None, id="unknown declaration"),
        pytest.param('node A @tag(k="v", "x") {}', None, id="value after a keyword"),
        pytest.param('node A @tag("x", "y") {}', None, id="two values"),
        pytest.param('node A @tag(k="v") {}', None, id="keyword without a value before it"),
        pytest.param('node A @tag("x", k=name) {}', None, id="name as the value of a keyword"),
    ],
)
def test_s_01_a_text_outside_the_grammar_is_refused(text: str, hint: str | None) -> None:
    finding = findings_of(text)[0]

    assert finding.code == "S-01"
    assert hint is None or finding.hint == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("node A {} edge E: A -> A @card(1,2)", "without commas", id="comma in card"),
        pytest.param("node A { a: enum(x,,y) }", "without commas", id="comma in enum"),
        pytest.param("node A {} edge E: A - A", "negative numbers", id="half an arrow"),
    ],
)
def test_a_hint_does_not_speak_of_another_mistake(text: str, hint: str) -> None:
    (finding,) = findings_of(text)

    assert hint not in (finding.hint or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("node A {} edge E: A > A", "found `>`, expected `->`", id="arrow"),
        pytest.param("node A {} edge E: A = A", "found `=`, expected `->`", id="equals"),
        pytest.param("node A { a: [[String]] }", "found `[`, expected a type", id="list of list"),
    ],
)
def test_the_expected_words_of_a_syntax_error_are_those_that_may_stand_there(
    text: str, message: str
) -> None:
    (finding,) = findings_of(text)

    assert finding.message == message


def test_annotations_of_a_node_stand_before_implements() -> None:
    node = catalog_of('interface I { a: I32 } node A @x @description("d") implements I {}').nodes[
        "A"
    ]

    assert (node.implements, node.metadata.description) == (("I",), "d")


@each_case(
    ("card", "expected"),
    [
        ("", Cardinality(low=0, high=None)),
        ("@card(0..)", Cardinality(low=0, high=None)),
        ("@card(1..)", Cardinality(low=1, high=None)),
        ("@card(0..1)", Cardinality(low=0, high=1)),
        ("@card(2..2)", Cardinality(low=2, high=2)),
        ("@card(0..0)", Cardinality(low=0, high=0)),
        ("@card(0..4294967295)", Cardinality(low=0, high=4294967295)),
    ],
)
def test_s_07_card_bounds_are_read_as_written(card: str, expected: Cardinality) -> None:
    assert catalog_of(f"node A {{}} edge E: A -> A {card}").edges["E"].cardinality == expected


def test_an_annotation_called_like_card_is_opaque() -> None:
    edge = catalog_of("node A {} edge E: A -> A @cards(3)").edges["E"]

    assert [item.name for item in edge.metadata.annotations] == ["cards"]


def test_an_annotation_with_a_list_after_a_property_is_a_body_constraint() -> None:
    prop = catalog_of("node A { title: String @unique }").nodes["A"]
    body = catalog_of("node A { title: String @unique(title) }").nodes["A"]

    assert prop.uniques[0].provenance is Provenance.PROPERTY
    assert body.uniques[0].provenance is Provenance.BODY
    assert hash_of("node A { title: String @unique }") != hash_of(
        "node A { title: String @unique(title) }"
    )


def test_a_body_constraint_may_stand_before_the_properties_it_names() -> None:
    node = catalog_of("node A { @key(b, a) a: String b: I32 }").nodes["A"]

    assert node.key is not None
    assert node.key.members == ("b", "a")


def test_an_edge_body_is_optional_and_may_be_empty() -> None:
    assert hash_of("node A {} edge E: A -> A") == hash_of("node A {} edge E: A -> A {}")


def test_a_default_annotation_is_opaque_and_gives_no_default() -> None:
    prop = catalog_of("node A { year: I32 @default(2000) }").nodes["A"].properties["year"]

    assert [(item.name, item.value) for item in prop.annotations] == [("default", "2000")]
    assert not prop.type.nullable


def test_the_first_syntax_error_of_every_broken_declaration_is_reported() -> None:
    text = "node A { a String b Int }\nnode B {}\nedge E: A B\ninterface I { x: I32, }\n"

    assert [(item.code, item.line, item.column) for item in findings_of(text)] == [
        ("S-01", 1, 12),
        ("S-01", 3, 11),
        ("S-01", 4, 21),
    ]


def test_names_of_a_broken_declaration_are_not_reported_as_unknown() -> None:
    text = (
        "interface I { a String }\nnode A { }}\nnode B implements I { @index(a) }\nedge E: A -> B"
    )

    assert {item.code for item in findings_of(text)} == {"S-01"}


def test_rules_of_sound_declarations_are_checked_beside_a_broken_one() -> None:
    text = "node A { a String }\nnode B { k: String? @key }\nnode C { v: Vector(0) }"

    assert [(item.code, item.line) for item in findings_of(text)] == [
        ("S-01", 1),
        ("S-22", 2),
        ("S-04", 3),
    ]


def test_the_findings_of_a_text_come_in_source_order() -> None:
    text = """
        node A { k: String? @key id: I32 x: I32 x: I32 v: Vector(0) }
        node A {}
        edge E: A -> Nothing @card(2..1)
        edge Ab: A -> A { @unique(y) to: I32 }
        edge AB: A -> A
    """

    places = [(item.line, item.column) for item in findings_of(text)]

    assert places == sorted(places)


def test_a_deep_nest_of_brackets_is_refused_and_not_walked() -> None:
    assert codes_of("node A { a: " + "[" * 5000 + "String" + "]" * 5000 + " }") == ["S-01"]
