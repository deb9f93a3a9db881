from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.core.source import MAX_NESTING, SourceText
from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    Diagnostic,
    InputFileError,
    MixedMutationError,
    QuerySelectionError,
)
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_file, compile_query, read_queries
from omnigraph.lang.query.syntax import ast as tree
from omnigraph.lang.query.syntax.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case, named_cases

KEYWORDS = [
    *("query", "match", "return", "order", "limit", "not", "as", "asc", "desc", "true", "false"),
    *("insert", "update", "delete", "set", "where", "from", "to", "contains", "starts_with"),
    *("now", "date", "datetime", "count", "sum", "nearest", "search", "rrf"),
]
EDGE_WORDS = [word for word in KEYWORDS if word != "not"]


@pytest.fixture(scope="module")
def keyword_catalog() -> Catalog:
    """A graph whose properties and edges are called like the words of the language."""
    properties = "\n".join(f"  {word}: I32?" for word in KEYWORDS)
    edges = "\n".join(f"edge {word.capitalize()}: Thing -> Thing" for word in [*KEYWORDS, "not_x"])
    return compile_schema(f"node Thing {{\n{properties}\n}}\n{edges}\n").catalog


def parse(text: str) -> tree.QueryFile:
    return parse_queries(SourceText(text, "test.gq"))


def body(text: str) -> tree.ReadBody:
    found = parse(f"query q() {{ {text} }}").queries[0].body
    assert isinstance(found, tree.ReadBody)
    return found


def projections(text: str) -> list[tree.Projection]:
    return list(body(f"match {{ $p: Paper }} return {{ {text} }}").projections)


def clauses(text: str) -> list[tree.Clause]:
    return list(body(f"match {{ {text} }} return {{ 1 }}").clauses)


def refused(step: Callable[..., object], *args: object) -> CompilerError:
    with pytest.raises(CompilerError) as failure:
        step(*args)
    return failure.value


@named_cases(
    ("read_", "text", "expected"),
    {
        "`as` is a whole word": (
            lambda text: [(item.alias, item.expression) for item in projections(text)][1],
            "$p.a assets",
            (None, tree.Alias("assets")),
        ),
        "`as` before a word is an alias": (
            lambda text: [item.alias for item in projections(text)],
            "$p.a as sets",
            ["sets"],
        ),
        "a bare variable left of contains is a traversal": (
            clauses,
            "$a contains $b",
            [
                tree.Traversal(
                    tree.Variable("a"), None, tree.Hop((tree.TypeName("contains"),), False, None), tree.Variable("b")
                )
            ],
        ),
        "a bare variable left of contains and a literal is a filter": (
            clauses,
            '$a contains "x"',
            [tree.Condition(tree.Binary(tree.Variable("a"), tree.Operator.CONTAINS, tree.Literal_("x", '"x"')))],
        ),
        "less than and an undirected hop are told apart": (
            lambda text: [type(item) for item in clauses(text)],
            "$a <cites> $b  $x < $y  $z <= 3",
            [tree.Traversal, tree.Condition, tree.Condition],
        ),
        "an inline match may end with a comma": (
            lambda text: [match.property for clause in clauses(text) for match in clause.matches],
            "$p: Paper { a: 1, b: 2, }",
            ["a", "b"],
        ),
        "clauses are tried in the order of the grammar": (
            lambda text: [type(clause) for clause in clauses(text)],
            '$p: Paper $p cites $q $q.a = 1 search($q.t, "x") not { $q cites $p }',
            [tree.Binding, tree.Traversal, tree.Condition, tree.Condition, tree.Condition],
        ),
        "no space is needed around punctuation": (
            lambda text: [(len(it.params), it.body.limit) for it in parse(text).queries],
            "query q($a:I32,$b:[String]?){match{$p:Paper{a:$a}$p cites{1,2}$q}return{$p.a}limit 5}",
            [(2, tree.Limit(tree.Count(5)))],
        ),
        "commas between assignments are optional": (
            lambda text: [len(item.assignments) for item in parse(text).queries[0].body.statements],
            "query q() { insert Paper { a: 1 b: 2, c: 3, } update Paper set { a: 1 b: 2 } where c = 3 }",
            [3, 2],
        ),
    },
)
def test_what_a_text_is_read_as(read_, text, expected):
    assert read_(text) == expected


@named_cases(
    "text",
    {
        "query": "queryq() { match { $p: Paper } return { $p } }",
        "match": "query q() { matched { $p: Paper } return { $p } }",
        "return": "query q() { match { $p: Paper } returned { $p } }",
        "limit": "query q() { match { $p: Paper } return { $p } limit5 }",
        "number": "query q() { match { $p: Paper } return { $p } limit 5x }",
        "order": "query q() { match { $p: Paper } return { $p } ordered { $p.a } }",
        "desc": "query q() { match { $p: Paper } return { $p.a } order { $p.a descent } }",
        "insert": "query q() { insertPaper { a: 1 } }",
        "where": "query q() { delete Paper whereas a = 1 }",
        "set": "query q() { update Paper settle { a: 1 } where a = 1 }",
        "@description": 'query q() @descriptions("x") { match { $p: Paper } return { $p } }',
        "an edge word begins in lower case": "query q() { match { $p: Paper  $p Cites $q } return { $q } }",
    },
)
def test_a_keyword_is_a_whole_word(text):
    assert set(refused(parse, text).codes) == {"Q000"}


@each_case("word", KEYWORDS)
def test_a_property_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"""
    query r($v: I32) {{
      match {{ $t: Thing {{ {word}: $v }}  $t.{word} >= $t.{word} }}
      return {{ $t.{word} as x }}
      order {{ $t.{word} desc }}
    }}
    query w($v: I32) {{
      insert Thing {{ {word}: $v }}
      update Thing set {{ {word}: $v }} where {"now" if word in ("not", "true", "false") else word} = $v
    }}
    """

    compiled = compile_file(text, keyword_catalog)

    assert compiled[0].ir.projections[0].expression.property == word


@each_case("word", [word for word in KEYWORDS if word not in ("true", "false", "not")])
def test_a_column_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"query r() {{ match {{ $t: Thing }} return {{ $t.count as {word} }} order {{ {word} desc }} }}"

    compiled = compile_query(text, keyword_catalog)

    (key,) = compiled.ir.order
    assert isinstance(key.expression, ir.ColumnRef)
    assert (key.expression.name, key.descending) == (word, True)


@each_case("word", ["and", "or", "not", "is", "null", "in"])
def test_a_column_is_never_called_like_a_word_between_operands(word, keyword_catalog):
    text = f"query r() {{ match {{ $t: Thing }} return {{ $t.count as {word} }} }}"

    (problem,) = refused(compile_query, text, keyword_catalog).diagnostics

    assert (problem.code, problem.message) == ("Q000", f"`{word}` is a reserved word")


@each_case("word", KEYWORDS)
def test_a_query_and_a_parameter_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"query {word}(${word}: I32) {{ match {{ $t: Thing }} return {{ ${word} }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert (compiled.name, compiled.ir.params[0].name) == (word, word)


@each_case("word", [*EDGE_WORDS, "not_x"])
def test_an_edge_word_may_be_a_keyword(word, keyword_catalog):
    text = f"query r() {{ match {{ $a: Thing  $a {word} $b  $a <{word}> $c  $a $w:{word} $d }} return {{ $b }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert [op.edge_type for op in compiled.ir.pipeline[1:]] == [word.capitalize()] * 3


def test_an_edge_word_is_never_not(keyword_catalog):
    text = "query r() { match { $a: Thing  $a not $b } return { $b } }"

    assert refused(compile_file, text, keyword_catalog).codes[0] == "Q000"


@each_case("word", ["and", "or", "not", "is", "null", "in"])
def test_an_edge_with_a_reserved_word_is_written_in_quotes(word):
    catalog = compile_schema(f"node Thing {{ a: I32 }} edge {word.capitalize()}: Thing -> Thing").catalog
    text = "query r() {{ match {{ $a: Thing  $a {word} $b }} return {{ $b }} }}"

    quoted = compile_query(text.format(word=f'"{word}"'), catalog)
    problem = refused(compile_query, text.format(word=word), catalog).diagnostics[0]

    assert quoted.ir.pipeline[1].edge_type == word.capitalize()
    assert f'`$a "{word}" $b`' in (problem.hint or "")


@each_case("word", ["cites", "cITES", "ciTes"])
def test_an_edge_word_matches_its_type_in_any_case(word, reading):
    text = f"query q() {{ match {{ $p: Paper  $p {word} $q }} return {{ $q }} }}"

    assert compile_query(text, reading).ir.pipeline[1].edge_type == "Cites"


@each_case(
    "text",
    [
        "// a line\nquery q() { match { $p: Paper } return { $p } }",
        "query q() { /* a\nblock */ match { $p: Paper /* in it */ } return { $p } } // the end",
        "query q() { match { $p: Paper } return { $p } } // no line break at the end",
        "/* one /* not nested */ query q() { match { $p: Paper } return { $p } }",
        "query /**/ q /**/ () { match { $p: Paper } return { $p } }",
        "query q($v: Vector /* size */ (8)) { match { $p: Paper } return { $p } }",
    ],
    ids=["line", "block", "at the end", "not nested", "between tokens", "inside a vector type"],
)
def test_comments_are_blank(text):
    assert [query.name for query in parse(text).queries] == ["q"]


@each_case("comment", ["// all\n", "/* all */", '/* not "this" ( */'])
@each_case("text", ["$p cites# $q", "$p cites $q#", "$p cites $q #", "$p (cites where a > 1 #) $q"])
def test_a_comment_in_a_traversal_is_blank(text, comment):
    assert clauses(text.replace("#", comment)) == clauses(text.replace("#", ""))
    assert isinstance(clauses(text.replace("#", comment))[0], tree.Traversal)


@each_case(
    ("literal", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"a\nb\rc\td"', "a\nb\rc\td"),
        ('"two\nlines"', "two\nlines"),
        ('""', ""),
        ('"// no comment /* here */"', "// no comment /* here */"),
        ('"Ätherwellen 🜁"', "Ätherwellen 🜁"),
        ('"query q() { }"', "query q() { }"),
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("2.50", 2.5),
        ("1e6", 1e6),
        ("2.5E-3", 2.5e-3),
        ("true", True),
        ("false", False),
    ],
)
def test_a_literal_has_the_value_it_spells(literal, value):
    (only,) = projections(f"{literal} as x")

    assert only.expression == tree.Literal_(value, literal)
    assert type(only.expression.value) is type(value)


@each_case("literal", ["1.", ".5", "1e", "1e+", "0x10", "1_000", "'a'", r'"\u0041"', r'"\x"', "5m"])
def test_what_is_no_literal_does_not_parse(literal):
    assert refused(projections, f"{literal} as x").codes == ("Q000",)


@each_case(
    ("text", "count"), [("$p.a, $p.b", 2), ("$p.a $p.b", 2), ("$p.a, $p.b,", 2), ("$p.a as x $p.b as y, count($p)", 3)]
)
def test_commas_between_projections_are_optional(text, count):
    assert len(projections(text)) == count


def test_a_file_may_hold_no_query(reading):
    assert compile_file("// nothing yet\n", reading) == ()


@each_case(
    ("annotations", "kept"),
    [("", (None, None)), ('@instruction("use it") @description("what it is")', ("what it is", "use it"))],
)
def test_annotations_are_optional_and_kept(annotations, kept, reading):
    compiled = compile_query(f"query q() {annotations} {{ match {{ $p: Paper }} return {{ $p }} }}", reading)

    assert (compiled.description, compiled.instruction) == kept


def problems(text: str) -> tuple[Diagnostic, ...]:
    return refused(parse, text).diagnostics


def read(clauses: str, tail: str = "return { $p }", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $p: Paper {clauses} }} {tail} }}"


def write(statement: str) -> str:
    return f"query q() {{ {statement} }}"


def nested(depth: int) -> str:
    return "query q() { match { $p: Paper " + "not { " * depth + "$p cites $q" + " }" * depth


@named_cases(
    ("text", "fragment"),
    {
        "float without digits": (read("$p.a > 1."), "digit"),
        "a float without a digit before its point": (read("$p.a > .5"), "digit"),
        "a call with a name": (read("nearest($p.vec, k: 10) > 1"), "by place"),
    },
)
def test_a_usual_mistake_gets_a_hint_with_the_way_out(text, fragment):
    (problem,) = problems(text)

    assert fragment in (problem.hint or "")


@named_cases(
    ("text", "fragment"),
    {
        "a negative limit suggests no parameter": (read("", "return { $p } limit -1"), "parameter"),
        "two conditions of a where are not put one after the other": (
            write("delete Paper where a = 1 b = 2"),
            "one after the other",
        ),
        "a number was found where a number is expected": (read("$p.a > 1."), "found `1`, expected"),
    },
)
def test_a_message_does_not_mislead(text, fragment):
    (problem,) = problems(text)

    assert fragment not in (problem.hint or "")
    assert fragment not in problem.message


@named_cases(
    ("text", "line", "column", "caret"),
    {
        "first column of a word": ("query q() {\n  match { }\n}", 2, 11, "^"),
        "after a tab": ('query q() {\n\tmatch { $p.t = "x', 2, 17, "^"),
        "end of the text": ('query q() { match { $p.t = "漢字" or', 1, 35, "^"),
        "a whole word is marked": ("query q() @tool(1)", 1, 11, "^^^^^"),
    },
)
def test_a_syntax_error_points_at_its_place(text, line, column, caret):
    (problem,) = problems(text)

    assert (problem.line, problem.column) == (line, column)
    assert problem.excerpt.splitlines()[1].split("|")[1].strip() == caret


def test_the_caret_stands_below_the_word_behind_wide_characters():
    (problem,) = problems('query q() { match { $p.t = "漢字" $x Cites $y } return { $p } }')

    shown, marks = problem.excerpt.splitlines()
    cells = len(shown.split("Cites")[0]) + len("漢字")

    assert marks.index("^") == cells


@named_cases(
    ("text", "lines"),
    {
        "every broken query once and in order": (
            """query a() { match { } return { $p } }
            query fine() { match { $p: Paper } return { $p } }
            query b() { match { $p: Paper } return { $p } limit -1 }
            query c() { insert Paper { } }""",
            [1, 3, 4],
        ),
        "a query inside a string or comment is no declaration": (
            """// query a() {
            query b() { match { $p: Paper { t: "query c() {" } /* query d() { */ } return { } }""",
            [2],
        ),
    },
)
def test_every_broken_query_is_reported_where_it_stands(text, lines):
    assert [(problem.line, problem.code) for problem in problems(text)] == [(line, "Q000") for line in lines]


@named_cases(
    ("text", "said"),
    {
        "a missing brace does not swallow the next query": (
            "query a() { match { $p: Paper } return { $p }\n\nquery b() { match { $p: Paper } return { $p } }",
            "the end of the declaration",
        ),
        "deep nesting is not a crash": (nested(MAX_NESTING + 1), "nest"),
        "nor is very deep nesting": (nested(5000), "nest"),
        "a NUL character": ("query q() { match { $p: Paper \0 } return { $p } }", "NUL"),
    },
)
def test_a_text_that_cannot_be_read_is_explained(text, said):
    (problem,) = problems(text)

    assert said in problem.message


def test_a_very_long_number_is_no_crash(reading):
    assert refused(compile_query, read(f"$p.year = {'9' * 10_000}"), reading).codes == ("Q109",)


READ = "query papers() { match { $p: Paper } return { $p.title } }"
OTHER = "query venues() { match { $v: Venue } return { $v.city } }"
WRONG = "query wrong() { match { $p: Papr } return { $p.title } }"
MIXED = 'query mixed() { insert Author { full_name: "x" } delete Author where full_name = "y" }'


@named_cases(
    ("text", "asked", "found"),
    {
        "the only query needs no name": (READ, None, "papers"),
        "a query is found by its name": (f"{READ} {OTHER}", "venues", "venues"),
        "other queries of the file need not fit the schema": (f"{READ} {WRONG}", "papers", "papers"),
        "other queries may mix": (f"{READ} {MIXED}", "papers", "papers"),
    },
)
def test_a_query_is_chosen_by_its_name(text, asked, found, reading):
    assert compile_query(text, reading, asked).name == found


@named_cases(
    ("text", "asked", "why"),
    {
        "several queries and no name": (f"{READ} {OTHER}", None, "^all.gq holds 2 queries, name one: papers, venues$"),
        "an unknown name": (f"{READ} {OTHER}", "paper", "holds no query `paper`: did you mean `papers`"),
        "another case": (READ, "Papers", "holds no query `Papers`"),
        "an empty file": ("// nothing\n", None, "holds no query"),
        "an empty file and a name": ("// nothing\n", "papers", "holds no query"),
    },
)
def test_a_choice_that_fits_no_query_is_a_bad_request_that_lists_what_there_is(text, asked, why, reading):
    with pytest.raises(QuerySelectionError, match=why) as failure:
        compile_query(SourceText(text, "all.gq"), reading, asked)

    present = [name for name in ("papers", "venues") if f"query {name}" in text]
    assert isinstance(failure.value, BadRequestError)
    assert (list(failure.value.available), failure.value.to_json()["available"]) == (present, present)


def test_other_queries_of_the_file_have_to_parse(reading):
    text = f"{READ} query broken() {{ match {{ }} }}"

    assert refused(compile_query, text, reading, "papers").codes == ("Q000",)


def test_compile_file_reports_the_errors_of_every_query(reading):
    text = f"{WRONG} {READ} {WRONG.replace('wrong', 'also_wrong')}"

    assert refused(compile_file, text, reading).codes == ("T1", "T1")


def test_compile_file_keeps_the_order_of_the_text(reading):
    assert [query.name for query in compile_file(f"{OTHER} {READ}", reading)] == ["venues", "papers"]


@each_case("name", [None, "papers", "venues"])
def test_q101_a_repeated_name_is_an_error_whatever_is_asked_for(name, reading):
    assert refused(compile_query, f"{READ} {OTHER} {READ}", reading, name).codes == ("Q101",)


@named_cases(
    "body",
    {
        "insert delete": 'insert Author { full_name: "x" } delete Author where full_name = "y"',
        "delete insert": 'delete Author where full_name = "y" insert Author { full_name: "x" }',
        "update delete": 'update Author set { orcid: "x" } where full_name = "y" delete Wrote where position = 1',
        "delete delete insert": (
            'delete Wrote where position = 1 delete Cites where weight = 1.0 insert Cites { from: "a", to: "b" }'
        ),
    },
)
def test_d2_every_mix_is_a_bad_request_that_names_the_query_and_the_way_out(body, reading):
    with pytest.raises(MixedMutationError) as failure:
        compile_query(f"query mixed() {{ {body} }}", reading)

    assert str(failure.value) == (
        "mutation `mixed` mixes insert/update with delete: split it into two queries, writes first and deletes "
        "second, or run both on a branch and merge it"
    )
    assert (failure.value.query, failure.value.kind, failure.value.http_status) == ("mixed", "bad_request", 400)


@named_cases(
    "body",
    {
        "insert update": 'insert Author { full_name: "x" } update Author set { orcid: "y" } where full_name = "x"',
        "delete delete": 'delete Author where full_name = "y" delete Wrote where position = 1',
    },
)
def test_d2_one_side_alone_is_accepted(body, reading):
    assert len(compile_query(f"query q() {{ {body} }}", reading).ir.statements) == 2


def test_d2_is_checked_after_the_types(reading):
    text = 'query q() { insert Autor { full_name: "x" } delete Author where full_name = "y" }'

    assert refused(compile_query, text, reading).codes == ("T10",)


def test_d2_is_reported_by_name_in_a_file_of_several_queries(reading):
    with pytest.raises(MixedMutationError) as failure:
        compile_file(f"{READ} {MIXED}", reading)

    assert failure.value.query == "mixed"


def test_a_query_file_is_read_under_its_path(tmp_path, reading):
    path = tmp_path / "papers.gq"
    path.write_bytes(b"\xef\xbb\xbf" + WRONG.encode())

    assert refused(compile_query, read_queries(path), reading).diagnostics[0].location == f"{path}:1:29"


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputFileError, match="cannot read"):
        read_queries(tmp_path / "missing.gq")


def test_a_file_that_is_not_utf_8_is_q000(tmp_path):
    path = tmp_path / "latin.gq"
    path.write_bytes("// Ä".encode("latin-1"))

    assert refused(read_queries, path).codes == ("Q000",)
