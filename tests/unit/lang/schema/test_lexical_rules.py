from __future__ import annotations

import pytest

from omnigraph.core.types import EnumType
from support.schemas import catalog_of, codes_of, findings_of
from support.subtests import each_case


@each_case(
    "text",
    [
        pytest.param("node A{a:String b:I32}", id="no whitespace where none is needed"),
        pytest.param("node\tA\r\n{\r\n\ta : String\tb\n:\nI32 }\n", id="tab, CR and LF"),
        pytest.param("node A { a: String // to the end } { @ #\n b: I32 }", id="line comment"),
        pytest.param("node A { a: /* { */ String /* two\nlines */ b: I32 }", id="block comment"),
        pytest.param(
            "node A { a: String b: I32 } // no newline at the end", id="comment at the end"
        ),
        pytest.param("/**/node/**/A/**/{/**/a/**/:/**/String b: I32/**/}/**/", id="everywhere"),
    ],
)
def test_layout_and_comments_mean_nothing(text: str) -> None:
    node = catalog_of(text).nodes["A"]

    assert {name: str(prop.type) for name, prop in node.properties.items()} == {
        "a": "String",
        "b": "I32",
    }


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


def test_a_comment_may_stand_between_a_constraint_and_its_list() -> None:
    node = catalog_of("node A { a: String @unique /* of */ (a) }").nodes["A"]

    assert [item.members for item in node.uniques] == [("a",)]


@pytest.mark.timeout(5)
def test_many_comments_after_an_annotation_cost_no_time() -> None:
    text = "node A { a: String @key " + "/**/" * 60 + " b: I32 }"

    assert list(catalog_of(text).nodes["A"].properties) == ["a", "b"]


@each_case(
    "text",
    [
        pytest.param("/* a /* b */ c */ node A {}", id="block comments do not nest"),
        pytest.param("# note\nnode A {}", id="hash is no comment"),
        pytest.param("node A {}\f", id="form feed is no whitespace"),
        pytest.param("node A {\u00a0}", id="no-break space is no whitespace"),
        pytest.param("node A { a: String, b: I32 }", id="comma between properties"),
        pytest.param("node A { a: String; }", id="semicolon"),
        pytest.param("node A {}, node B {}", id="comma between declarations"),
        pytest.param("nodeA {}", id="keyword node is a whole word"),
        pytest.param("node A {} edgeE: A -> A", id="keyword edge is a whole word"),
        pytest.param("interfaceI {}", id="keyword interface is a whole word"),
        pytest.param(
            "interface I {} node A implementsI {}", id="keyword implements is a whole word"
        ),
        pytest.param("NODE A {}", id="keywords are lower case"),
        pytest.param("node a {}", id="type names begin with a capital"),
        pytest.param("node _A {}", id="type names begin with no underscore"),
        pytest.param("node 1A {}", id="type names begin with no digit"),
        pytest.param("node Ä {}", id="type names are ASCII"),
        pytest.param("node A { Name: String }", id="property names begin in lower case"),
        pytest.param("node A { 1st: String }", id="property names begin with no digit"),
        pytest.param("node A { naïve: String }", id="property names are ASCII"),
        pytest.param("node A { a-b: String }", id="property names have no dash"),
        pytest.param("node A @Tag {}", id="annotation names begin in lower case"),
        pytest.param("node A { a: enum(x.y) }", id="enum values have no dot"),
        pytest.param('node A { a: enum("x") }', id="enum values are unquoted"),
        pytest.param("node A { a: enum() }", id="an enum has a value"),
        pytest.param("node A { a: enum(x,) }", id="no comma after the last enum value"),
        pytest.param("node A @tag('x') {}", id="strings have double quotes"),
        pytest.param("node A @tag(-1) {}", id="no negative annotation value"),
        pytest.param("node A @tag(1e3) {}", id="no exponent"),
        pytest.param("node A @tag(.5) {}", id="no float without leading digit"),
        pytest.param("node A @tag(5.) {}", id="no float without trailing digit"),
        pytest.param("node A { a: Vector(-3) }", id="no negative dimension"),
        pytest.param("node A { a: Vector(3.0) }", id="no float dimension"),
        pytest.param("node A { a: Vector }", id="a vector has a dimension"),
        pytest.param("node A { a: string }", id="scalar names are case-sensitive"),
        pytest.param("\ufeffnode A {}", id="a byte order mark is no whitespace inside a text"),
    ],
)
def test_s_01_a_text_outside_the_lexical_rules_is_refused(text: str) -> None:
    assert codes_of(text)[0] == "S-01"


@each_case("name", ["A", "Paper2", "A_b_C", "Vector", "String", "Date"])
def test_a_type_name_is_a_capital_and_then_letters_digits_or_underscores(name: str) -> None:
    assert list(catalog_of(f"node {name} {{}}").nodes) == [name]


@each_case(
    "name",
    [
        "a",
        "_",
        "_a1",
        "fullName",
        "a_B_9",
        "node",
        "edge",
        "interface",
        "implements",
        "enum",
        "true",
    ],
)
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


def test_annotation_values_are_strings_names_numbers_and_booleans() -> None:
    text = 'node A @s("x") @n(name) @t(Type) @i(007) @f(0.50) @y(true) @z(false) {}'

    values = {item.name: item.value for item in catalog_of(text).nodes["A"].metadata.annotations}

    assert values == {
        "s": "x",
        "n": "name",
        "t": "Type",
        "i": "007",
        "f": "0.50",
        "y": "true",
        "z": "false",
    }


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
def test_range_bounds_may_be_negative_fractional_and_open(
    bounds: str, low: float | None, high: float | None
) -> None:
    (rule,) = catalog_of(f"node A {{ x: F64 @range(x, {bounds}) }}").nodes["A"].ranges

    assert (rule.low, rule.high) == (low, high)


@each_case("bounds", ["..", "", "0", "0,3", "0...3", "+1..2", "a..b", '"0".."3"'])
def test_s_01_a_range_without_two_dots_and_a_number_is_refused(bounds: str) -> None:
    assert codes_of(f"node A {{ x: F64 @range(x, {bounds}) }}") == ["S-01"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("node A {{ x: I32 @range(x, 0..{}) }}", id="range"),
        pytest.param("node A {{}} edge E: A -> A @card(0..{})", id="card"),
    ],
)
def test_a_bound_of_thousands_of_digits_is_no_crash(text: str) -> None:
    text = text.format("9" * 5000)

    assert set(codes_of(text)) <= {"S-01", "S-07", "S-28"}


def test_a_float_bound_beyond_every_float_is_refused() -> None:
    text = f"node A {{ x: F64 @range(x, 0..{'9' * 400}.0) }}"

    assert codes_of(text) == ["S-28"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('node A @description("\ud800") {}', id="description"),
        pytest.param('node A { a: String @check(a, "\ud800") }', id="pattern"),
    ],
)
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


@pytest.mark.parametrize("kind", ["unique", "index"])
def test_s_03_src_and_dst_are_legal_inside_edge_lists(kind: str) -> None:
    edge = catalog_of(f"node A {{}} edge E: A -> A {{ @{kind}(src, dst) }}").edges["E"]

    (members,) = edge.uniques if kind == "unique" else edge.indexes
    assert members.members == ("src", "dst")
