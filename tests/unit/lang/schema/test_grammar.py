from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.core.source import SourceText
from omnigraph.core.types import EnumType
from omnigraph.lang.schema.ast import EdgeDecl, InterfaceDecl, NodeDecl, print_schema
from omnigraph.lang.schema.catalog import Cardinality, Catalog, Provenance
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.parser import parse_schema
from support.schemas import catalog_of, codes_of, findings_of, hash_of
from support.subtests import each_case, named_cases


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


@named_cases(
    ("text", "hint"),
    {
        "interface range": ("interface I { a: I32 @range(a, 0..) }", None),
        "interface implements": ("interface I implements J {}", None),
        "interface without body": ("interface I", None),
        "node without body": ("node A", None),
        "implements nothing": ("interface I {} node A implements {}", None),
        "implements with a last comma": ("interface I {} node A implements I, {}", None),
        "card twice": (
            "node A {} edge E: A -> A @card(0..1) @card(0..2)",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
        ),
        "card without bounds": ("node A {} edge E: A -> A @card", None),
        "card without minimum": ("node A {} edge E: A -> A @card(..1)", None),
        "card in the body": (
            "node A {} edge E: A -> A { @card(0..1) }",
            "`@card(min..max)` stands once, directly after the endpoints of an edge",
        ),
        "range without a property": ("node A { a: I32 @range(0, 3) }", None),
        "range with bounds alone": ("node A { a: I32 @range(0..3) }", None),
        "check without a property": ('node A { a: String @check("x") }', None),
        "check without a string": ("node A { a: String @check(a, x) }", None),
        "empty list of members": ("node A { a: String @unique() }", None),
        "list with a last comma": ("node A { a: String @unique(a,) }", None),
        "empty list of arguments": ("node A @tag() {}", None),
        "edge without target": ("node A {} edge E: A", None),
        "edge with two targets": ("node A {} edge E: A -> A, A", None),
        "two question marks": ("node A { a: String?? }", None),
        "no colon": ("node A { a String }", None),
        "no type": ("node A { a: }", None),
        "one brace too many": ("node A { a: String } }", None),
        "unknown declaration": ("scalar X", None),
        "value after a keyword": ('node A @tag(k="v", "x") {}', None),
        "keyword without a value before it": ('node A @tag(k="v") {}', None),
        "name as the value of a keyword": ('node A @tag("x", k=name) {}', None),
    },
)
def test_s_01_a_text_outside_the_grammar_is_refused(text: str, hint: str | None) -> None:
    finding = findings_of(text)[0]

    assert finding.code == "S-01"
    assert hint is None or finding.hint == hint


@named_cases(
    ("text", "hint"),
    {
        "comma in card": ("node A {} edge E: A -> A @card(1,2)", "without commas"),
        "comma in enum": ("node A { a: enum(x,,y) }", "without commas"),
        "half an arrow": ("node A {} edge E: A - A", "negative numbers"),
    },
)
def test_a_hint_does_not_speak_of_another_mistake(text: str, hint: str) -> None:
    (finding,) = findings_of(text)

    assert hint not in (finding.hint or "")


@named_cases(
    ("text", "message"),
    {
        "arrow": ("node A {} edge E: A > A", "found `>`, expected `->`"),
        "equals": ("node A {} edge E: A = A", "found `=`, expected `->`"),
        "list of list": ("node A { a: [[String]] }", "found `[`, expected a type"),
    },
)
def test_the_expected_words_of_a_syntax_error_are_those_that_may_stand_there(text: str, message: str) -> None:
    (finding,) = findings_of(text)

    assert finding.message == message


@named_cases(
    ("text", "look", "expected"),
    {
        "annotations of a node stand before implements": (
            'interface I { a: I32 } node A @x @description("d") implements I {}',
            lambda it: (it.nodes["A"].implements, it.nodes["A"].metadata.description),
            (("I",), "d"),
        ),
        "an annotation called like card is opaque": (
            "node A {} edge E: A -> A @cards(3)",
            lambda it: [item.name for item in it.edges["E"].metadata.annotations],
            ["cards"],
        ),
        "a body constraint may stand before the properties it names": (
            "node A { @key(b, a) a: String b: I32 }",
            lambda it: it.nodes["A"].key.members,
            ("b", "a"),
        ),
        "a default annotation is opaque": (
            "node A { year: I32 @default(2000) }",
            lambda it: [(item.name, item.value) for item in it.nodes["A"].properties["year"].annotations],
            [("default", "2000")],
        ),
        "a default annotation gives no default": (
            "node A { year: I32 @default(2000) }",
            lambda it: it.nodes["A"].properties["year"].type.nullable,
            False,
        ),
        "a comment may stand between a constraint and its list": (
            "node A { a: String @unique /* of */ (a) }",
            lambda it: [item.members for item in it.nodes["A"].uniques],
            [("a",)],
        ),
        "many comments after an annotation cost no time": (
            "node A { a: String @key " + "/**/" * 60 + " b: I32 }",
            lambda it: list(it.nodes["A"].properties),
            ["a", "b"],
        ),
        "annotation values are strings, names, numbers and booleans": (
            'node A @s("x") @n(name) @t(Type) @i(007) @f(0.50) @y(true) @z(false) {}',
            lambda it: {item.name: item.value for item in it.nodes["A"].metadata.annotations},
            {"s": "x", "n": "name", "t": "Type", "i": "007", "f": "0.50", "y": "true", "z": "false"},
        ),
    },
)
@pytest.mark.timeout(20)
def test_what_a_text_declares(text: str, look: Callable[[Catalog], object], expected: object) -> None:
    assert look(catalog_of(text)) == expected


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


def test_an_annotation_with_a_list_after_a_property_is_a_body_constraint() -> None:
    prop = catalog_of("node A { title: String @unique }").nodes["A"]
    body = catalog_of("node A { title: String @unique(title) }").nodes["A"]

    assert prop.uniques[0].provenance is Provenance.PROPERTY
    assert body.uniques[0].provenance is Provenance.BODY
    assert hash_of("node A { title: String @unique }") != hash_of("node A { title: String @unique(title) }")


def test_an_edge_body_is_optional_and_may_be_empty() -> None:
    assert hash_of("node A {} edge E: A -> A") == hash_of("node A {} edge E: A -> A {}")


def test_the_first_syntax_error_of_every_broken_declaration_is_reported() -> None:
    text = "node A { a String b Int }\nnode B {}\nedge E: A B\ninterface I { x: I32, }\n"

    assert [(item.code, item.line, item.column) for item in findings_of(text)] == [
        ("S-01", 1, 12),
        ("S-01", 3, 11),
        ("S-01", 4, 21),
    ]


def test_names_of_a_broken_declaration_are_not_reported_as_unknown() -> None:
    text = "interface I { a String }\nnode A { }}\nnode B implements I { @index(a) }\nedge E: A -> B"

    assert {item.code for item in findings_of(text)} == {"S-01"}


def test_rules_of_sound_declarations_are_checked_beside_a_broken_one() -> None:
    text = "node A { a String }\nnode B { k: String? @key }\nnode C { v: Vector(0) }"

    assert [(item.code, item.line) for item in findings_of(text)] == [("S-01", 1), ("S-22", 2), ("S-04", 3)]


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


@named_cases(
    "text",
    {
        "no whitespace where none is needed": "node A{a:String b:I32}",
        "tab, CR and LF": "node\tA\r\n{\r\n\ta : String\tb\n:\nI32 }\n",
        "line comment": "node A { a: String // to the end } { @ #\n b: I32 }",
        "block comment": "node A { a: /* { */ String /* two\nlines */ b: I32 }",
        "comment at the end": "node A { a: String b: I32 } // no newline at the end",
        "everywhere": "/**/node/**/A/**/{/**/a/**/:/**/String b: I32/**/}/**/",
    },
)
def test_layout_and_comments_mean_nothing(text: str) -> None:
    node = catalog_of(text).nodes["A"]

    assert {name: str(prop.type) for name, prop in node.properties.items()} == {"a": "String", "b": "I32"}


@each_case(
    ("text", "expected"),
    [
        ("node A { a: enum /* of */ (x, y) }", "enum(x, y)"),
        ("node A { a: enum // of\n(x, y) }", "enum(x, y)"),
        ("node A { a: Vector /* of */ (3) }", "Vector(3)"),
        ("node A { a: enum (x, y) }", "enum(x, y)"),
        ("node A { a: Vector\n(3) }", "Vector(3)"),
    ],
)
def test_whitespace_and_comments_may_stand_before_a_parenthesis(text: str, expected: str) -> None:
    assert str(catalog_of(text).nodes["A"].properties["a"].type) == expected


@named_cases(
    "text",
    {
        "block comments do not nest": "/* a /* b */ c */ node A {}",
        "form feed is no whitespace": "node A {}\f",
        "no-break space is no whitespace": "node A {\u00a0}",
        "semicolon": "node A { a: String; }",
        "comma between declarations": "node A {}, node B {}",
        "keyword edge is a whole word": "node A {} edgeE: A -> A",
        "keyword interface is a whole word": "interfaceI {}",
        "keyword implements is a whole word": "interface I {} node A implementsI {}",
        "keywords are lower case": "NODE A {}",
        "type names begin with no underscore": "node _A {}",
        "type names begin with no digit": "node 1A {}",
        "type names are ASCII": "node Ä {}",
        "property names begin with no digit": "node A { 1st: String }",
        "property names are ASCII": "node A { naïve: String }",
        "property names have no dash": "node A { a-b: String }",
        "annotation names begin in lower case": "node A @Tag {}",
        "enum values have no dot": "node A { a: enum(x.y) }",
        "enum values are unquoted": 'node A { a: enum("x") }',
        "an enum has a value": "node A { a: enum() }",
        "no comma after the last enum value": "node A { a: enum(x,) }",
        "no exponent": "node A @tag(1e3) {}",
        "no float without leading digit": "node A @tag(.5) {}",
        "no float without trailing digit": "node A @tag(5.) {}",
        "no negative dimension": "node A { a: Vector(-3) }",
        "no float dimension": "node A { a: Vector(3.0) }",
        "a vector has a dimension": "node A { a: Vector }",
        "scalar names are case-sensitive": "node A { a: string }",
        "a byte order mark is no whitespace inside a text": "\ufeffnode A {}",
    },
)
def test_s_01_a_text_outside_the_lexical_rules_is_refused(text: str) -> None:
    assert codes_of(text)[0] == "S-01"


@each_case("name", ["A", "Paper2", "A_b_C", "Vector", "String", "Date"])
def test_a_type_name_is_a_capital_and_then_letters_digits_or_underscores(name: str) -> None:
    assert list(catalog_of(f"node {name} {{}}").nodes) == [name]


@each_case("name", ["a", "_", "_a1", "fullName", "a_B_9", "node", "edge", "interface", "implements", "enum", "true"])
def test_a_property_name_keeps_its_case_and_may_be_a_keyword(name: str) -> None:
    node = catalog_of(f"node A {{ {name}: String @index other: I32 }}").nodes["A"]

    assert list(node.properties) == [name, "other"]


@each_case("name", ["node", "edge", "interface", "implements", "enum"])
def test_a_body_list_may_name_a_property_that_is_called_like_a_keyword(name: str) -> None:
    node = catalog_of(f"node A {{ {name}: String @unique({name}) }}").nodes["A"]

    assert node.uniques[0].members == (name,)


def test_enum_values_may_hold_digits_dashes_and_underscores_and_begin_with_any() -> None:
    catalog = catalog_of("node A { a: enum(2nd, pre-print, _x, -y, ABC, true, node) }")

    assert catalog.nodes["A"].properties["a"].type.base == EnumType(
        tuple(sorted(["2nd", "pre-print", "_x", "-y", "ABC", "true", "node"]))
    )


@each_case(
    ("literal", "value"),
    [
        (r'"a \"quoted\" word"', 'a "quoted" word'),
        (r'"back\\slash"', "back\\slash"),
        (r'"a\nb\rc\td"', "a\nb\rc\td"),
        ('"two\nlines"', "two\nlines"),
        ('"// no comment /* */ {"', "// no comment /* */ {"),
        ('"naïve 知识 🙂"', "naïve 知识 🙂"),
        (r'"\\n"', "\\n"),
    ],
)
def test_a_string_holds_the_five_escapes_and_any_other_character(literal: str, value: str) -> None:
    node = catalog_of(f"node A @description({literal}) {{}}").nodes["A"]

    assert node.metadata.description == value


@each_case("escape", [r"\.", r"\u0041", r"\x41", r"\0", r"\'", r"\/", r"\N", "\\\n"])
def test_s_02_any_other_escape_is_refused_where_it_stands(escape: str) -> None:
    (finding,) = findings_of(f'node A {{}}\nnode B @tag("abc{escape}") {{}}')

    assert (finding.code, finding.line, finding.column) == ("S-02", 2, 17)


def test_s_02_an_escape_that_ends_with_the_text_is_refused() -> None:
    (finding,) = findings_of('node A @tag("abc\\')

    assert (finding.code, finding.line, finding.column) == ("S-02", 1, 17)


@each_case(
    ("bounds", "low", "high"),
    [
        ("0..3", 0, 3),
        ("-5..-1", -5, -1),
        ("-0.5..0.5", -0.5, 0.5),
        ("1..", 1, None),
        ("..-1", None, -1),
        ("..2.5", None, 2.5),
        ("- 5 .. 5", -5, 5),
        ("3..3", 3, 3),
    ],
)
def test_range_bounds_may_be_negative_fractional_and_open(bounds: str, low: float | None, high: float | None) -> None:
    (rule,) = catalog_of(f"node A {{ x: F64 @range(x, {bounds}) }}").nodes["A"].ranges

    assert (rule.low, rule.high) == (low, high)


@each_case("bounds", ["..", "", "0", "0,3", "0...3", "+1..2", "a..b", '"0".."3"'])
def test_s_01_a_range_without_two_dots_and_a_number_is_refused(bounds: str) -> None:
    assert codes_of(f"node A {{ x: F64 @range(x, {bounds}) }}") == ["S-01"]


@named_cases(
    ("text", "codes"),
    {
        "range": (f"node A {{ x: I32 @range(x, 0..{'9' * 5000}) }}", {"S-01", "S-07", "S-28"}),
        "card": (f"node A {{}} edge E: A -> A @card(0..{'9' * 5000})", {"S-01", "S-07", "S-28"}),
        "a float beyond every float": (f"node A {{ x: F64 @range(x, 0..{'9' * 400}.0) }}", {"S-28"}),
    },
)
def test_a_bound_of_very_many_digits_is_refused_and_not_a_crash(text: str, codes: set[str]) -> None:
    assert set(codes_of(text)) <= codes


@each_case("text", ['node A @description("\ud800") {}', 'node A { a: String @check(a, "\ud800") }'])
def test_s_01_half_a_surrogate_pair_is_refused_because_it_is_no_text(text: str) -> None:
    assert codes_of(text) == ["S-01"]


def test_s_01_a_nul_character_is_refused_where_it_stands() -> None:
    (finding,) = findings_of('node A @description("\0") {}')

    assert (finding.code, finding.line, finding.column) == ("S-01", 1, 22)


@each_case("name", ["_row_id", "_ROWID", "_rowId", "rowid", "_rowid_", "_id", "iD"])
def test_s_03_reserved_names_are_exact(name: str) -> None:
    assert name in catalog_of(f"node A {{ {name}: String }}").nodes["A"].properties


@each_case("name", ["src", "dst", "from", "to"])
def test_s_03_endpoint_names_are_free_on_nodes_and_interfaces(name: str) -> None:
    catalog = catalog_of(f"interface I {{ {name}: String }} node A implements I {{}}")

    assert name in catalog.nodes["A"].properties


@each_case("kind", ["unique", "index"])
def test_s_03_src_and_dst_are_legal_inside_edge_lists(kind: str) -> None:
    edge = catalog_of(f"node A {{}} edge E: A -> A {{ @{kind}(src, dst) }}").edges["E"]

    (members,) = edge.uniques if kind == "unique" else edge.indexes
    assert members.members == ("src", "dst")


GOLDEN = Path(__file__).parents[1] / "golden"

EXAMPLES = {
    "empty": "",
    "empty node": "node A {}",
    "annotations": 'node A @a @b("x") @c(y) @d(Z) @e(007) @f(1.50) @g(true) @h("v", k=1, l="m", n=false) {}',
    "escapes": r'node A @description("a \"b\" \\ c\nd\re\tf") { s: String @check(s, "\\.\"") }',
    "string over lines": 'node A @description("two\nlines 知识") {}',
    "types": "node A { a: String b: [I64]? c: enum(b, a)? d: Vector(8) e: Blob? f: DateTime g: Date }",
    "constraints": (
        "node A { @key(a, b) a: String @index b: F64 @unique(b) @index(a, b) @range(b, -1.5..2) "
        '@range(b, 1..) @range(b, ..-3) @check(a, "^x") }'
    ),
    "interfaces": "interface J {} interface I { a: String @key } node A @x implements J, I { b: I32 }",
    "edges": (
        "node A {} edge E: A -> A edge F: A -> A @card(1..) edge G: A -> A @card(0..3) @x { w: F32? @unique(src, w) }"
    ),
    "rename hints": 'node A @rename_from("B") { c: I32 @rename_from(d) }',
    "embed": 'node A { t: String v: Vector(2) @embed(t) w: Vector(2) @embed("t", model="m") }',
    "keywords as names": "node A { node: I32 edge: I32 enum: enum(node, enum) @unique(node, edge) }",
    "comments": "// a\nnode A /* b */ { /* c */ a: String // d\n }",
}


@named_cases("text", EXAMPLES)
def test_a_printed_schema_parses_to_the_same_tree(text: str) -> None:
    tree = parse_schema(SourceText(text))

    printed = print_schema(tree)

    assert parse_schema(SourceText(printed)) == tree
    assert compile_schema(printed).catalog.schema_hash == compile_schema(text).catalog.schema_hash


@each_case("path", [GOLDEN / "reading.pg", *sorted((GOLDEN / "migrations").glob("*/*.pg"))], ids=str)
def test_every_golden_schema_survives_printing(path: Path) -> None:
    tree = parse_schema(SourceText(path.read_text(encoding="utf-8")))

    assert parse_schema(SourceText(print_schema(tree))) == tree


def test_the_text_has_one_member_per_line() -> None:
    text = "interface I{a:String}node A @x(1)implements I{b:I32?@index @unique(b)}edge E:A->A@card(0..){w:F32}"

    assert print_schema(parse_schema(SourceText(text))) == (
        "interface I {\n"
        "    a: String\n"
        "}\n"
        "\n"
        "node A @x(1) implements I {\n"
        "    b: I32? @index\n"
        "    @unique(b)\n"
        "}\n"
        "\n"
        "edge E: A -> A @card(0..) {\n"
        "    w: F32\n"
        "}\n"
    )


def test_values_of_different_kinds_are_different_trees() -> None:
    one, other = (parse_schema(SourceText(f"node A @x({value}) {{}}")) for value in ("1", "true"))

    assert one != other
