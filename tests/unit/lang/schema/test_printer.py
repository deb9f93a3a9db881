from __future__ import annotations

from pathlib import Path

from omnigraph.core.source import SourceText
from omnigraph.lang.schema.ast import print_schema
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.parser import parse_schema
from support.subtests import each_case

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


@each_case("text", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_a_printed_schema_parses_to_the_same_tree(text: str) -> None:
    tree = parse_schema(SourceText(text))

    assert parse_schema(SourceText(print_schema(tree))) == tree


@each_case("text", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_printing_twice_changes_nothing(text: str) -> None:
    once = print_schema(parse_schema(SourceText(text)))

    assert print_schema(parse_schema(SourceText(once))) == once


@each_case("text", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_a_printed_schema_has_the_same_shape(text: str) -> None:
    compiled = compile_schema(text)

    printed = compile_schema(print_schema(compiled.tree))

    assert printed.catalog.schema_hash == compiled.catalog.schema_hash


def test_the_reading_graph_survives_printing() -> None:
    text = (GOLDEN / "reading.pg").read_text(encoding="utf-8")
    tree = parse_schema(SourceText(text))

    assert parse_schema(SourceText(print_schema(tree))) == tree


@each_case(
    "path",
    sorted((GOLDEN / "migrations").glob("*/*.pg")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
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
