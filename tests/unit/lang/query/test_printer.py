from __future__ import annotations

from pathlib import Path

from omnigraph.core.source import SourceText
from omnigraph.lang.query.ast import print_queries
from omnigraph.lang.query.parser import parse_queries
from support.subtests import each_case

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = [
    path
    for folder in ("plans", "query_errors")
    for path in sorted((GOLDEN / folder).glob("*.gq"))
    if not path.name.startswith("Q000-")
]


def parse(text: str):
    return parse_queries(SourceText(text, "test.gq"))


@each_case("path", FILES, ids=lambda path: path.stem)
def test_printing_and_parsing_gives_the_same_tree(path):
    tree = parse(path.read_text(encoding="utf-8"))

    assert parse(print_queries(tree)) == tree


@each_case("path", FILES, ids=lambda path: path.stem)
def test_printing_is_idempotent(path):
    printed = print_queries(parse(path.read_text(encoding="utf-8")))

    assert print_queries(parse(printed)) == printed


def test_the_canonical_form_of_a_read():
    text = (
        'query q($a:I32,$b:[String]?,$v:Vector(8)) @description("x") {match{$p:Paper{year:$a,}$p $c:<cites>$q '
        '$q cites{1,3}$r not{$r appearsAt $_ $r.title="a\\"b"}search($p.title,"t")}return{$p.title as t $p '
        "count($q)} order{t desc,$p.year} limit 007}"
    )

    assert print_queries(parse(text)) == (
        'query q($a: I32, $b: [String]?, $v: Vector(8)) @description("x") {\n'
        "  match {\n"
        "    $p: Paper { year: $a }\n"
        "    $p $c:<cites> $q\n"
        "    $q cites{1,3} $r\n"
        "    not {\n"
        "      $r appearsAt $_\n"
        '      $r.title = "a\\"b"\n'
        "    }\n"
        '    search($p.title, "t")\n'
        "  }\n"
        "  return { $p.title as t, $p, count($q) }\n"
        "  order { t desc, $p.year }\n"
        "  limit 7\n"
        "}\n"
    )


def test_the_canonical_form_of_a_mutation():
    text = (
        "query q(){insert A{x:1 y:[1,2.50]}update A set{x:now()y:true}"
        'where x>=date("2024-05-01")delete B where from!="a"}'
    )

    assert print_queries(parse(text)) == (
        "query q() {\n"
        "  insert A { x: 1, y: [1, 2.50] }\n"
        '  update A set { x: now(), y: true } where x >= date("2024-05-01")\n'
        '  delete B where from != "a"\n'
        "}\n"
    )


def test_queries_are_separated_by_a_blank_line():
    text = "query a() { delete A where x = 1 } query b() { delete A where x = 2 }"

    assert "}\n\nquery b" in print_queries(parse(text))


@each_case("value", ['"', "\\", "\n", "\t", "\r", "ä漢🜁", "", "// /* */", "\\n"])
def test_every_string_survives_printing(value):
    from omnigraph.lang.query import ast

    literal = ast.Literal_(value, "")
    query = ast.Query(
        "q", (), (), ast.MutationBody((ast.Insert("A", (ast.Assignment("x", literal),)),))
    )
    tree = ast.QueryFile((query,))

    assert parse(print_queries(tree)) == tree
