from __future__ import annotations

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
from omnigraph.lang.query import ast as tree
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_file, compile_query, read_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

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


def codes(text: str, catalog: Catalog) -> tuple[str, ...]:
    with pytest.raises(CompilerError) as failure:
        compile_file(text, catalog)
    return failure.value.codes


def test_as_is_a_whole_word_so_assets_is_a_second_projection():
    first, second = projections("$p.a assets")

    assert (first.alias, second.expression) == (None, tree.Alias("assets"))


def test_as_before_a_word_is_an_alias():
    (only,) = projections("$p.a as sets")

    assert only.alias == "sets"


def test_desc_is_a_whole_word_so_descent_is_no_direction():
    with pytest.raises(CompilerError):
        body("match { $p: Paper } return { $p.a } order { $p.a descent }")


@each_case(
    "text",
    {
        "query": "queryq() { match { $p: Paper } return { $p } }",
        "match": "query q() { matched { $p: Paper } return { $p } }",
        "return": "query q() { match { $p: Paper } returned { $p } }",
        "limit": "query q() { match { $p: Paper } return { $p } limit5 }",
        "number": "query q() { match { $p: Paper } return { $p } limit 5x }",
        "order": "query q() { match { $p: Paper } return { $p } ordered { $p.a } }",
        "not": "query q() { match { $p: Paper nothing { $p cites $q } } return { $p } }",
        "insert": "query q() { insertPaper { a: 1 } }",
        "where": "query q() { delete Paper whereas a = 1 }",
        "set": "query q() { update Paper settle { a: 1 } where a = 1 }",
        "true": "query q() { match { $p: Paper { a: truer } } return { $p } }",
        "@description": 'query q() @descriptions("x") { match { $p: Paper } return { $p } }',
    },
)
def test_a_keyword_is_a_whole_word(text):
    with pytest.raises(CompilerError) as failure:
        parse(text)

    assert set(failure.value.codes) == {"Q000"}


def test_no_space_is_needed_around_punctuation():
    query = parse("query q($a:I32,$b:[String]?){match{$p:Paper{a:$a}$p cites{1,2}$q}return{$p.a}limit 5}")

    assert (len(query.queries[0].params), body_of(query).limit) == (2, tree.Limit(5))


def body_of(file: tree.QueryFile) -> tree.ReadBody:
    found = file.queries[0].body
    assert isinstance(found, tree.ReadBody)
    return found


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
      update Thing set {{ {word}: $v }} where {word} = $v
    }}
    """

    compiled = compile_file(text, keyword_catalog)

    assert compiled[0].ir.projections[0].expression.property == word


@each_case("word", [word for word in KEYWORDS if word not in ("true", "false")])
def test_a_column_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"query r() {{ match {{ $t: Thing }} return {{ $t.count as {word} }} order {{ {word} desc }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert compiled.ir.order == (ir.OrderKey(ir.ColumnRef(word), True),)


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

    assert codes(text, keyword_catalog) == ("Q000",)


def test_a_bare_variable_left_of_contains_is_a_traversal():
    (clause,) = clauses("$a contains $b")

    assert clause == tree.Traversal(tree.Variable("a"), None, tree.Hop("contains", False, None), tree.Variable("b"))


def test_a_bare_variable_left_of_contains_and_a_literal_is_a_filter():
    (clause,) = clauses('$a contains "x"')

    assert clause == tree.Filter(tree.Variable("a"), tree.Operator.CONTAINS, tree.Literal_("x", '"x"'))


def test_less_than_and_an_undirected_hop_are_told_apart():
    hop, comparison, other = clauses("$a <cites> $b  $x < $y  $z <= 3")

    assert (type(hop), type(comparison), type(other)) == (tree.Traversal, tree.Filter, tree.Filter)


@pytest.mark.parametrize("word", ["cites", "cITES", "ciTes"])
def test_an_edge_word_matches_its_type_in_any_case(word, reading):
    text = f"query q() {{ match {{ $p: Paper  $p {word} $q }} return {{ $q }} }}"

    compiled = compile_query(text, reading)

    assert compiled.ir.pipeline[1].edge_type == "Cites"


def test_an_edge_word_begins_in_lower_case(reading):
    text = "query q() { match { $p: Paper  $p Cites $q } return { $q } }"

    assert codes(text, reading) == ("Q000",)


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
        ("true", True),
        ("false", False),
    ],
)
def test_a_literal_has_the_value_it_spells(literal, value):
    (only,) = projections(f"{literal} as x")

    assert only.expression == tree.Literal_(value, literal)
    assert type(only.expression.value) is type(value)


@each_case("literal", ["-1", "1e6", "1.5e3", "1.", ".5", "0x10", "1_000", "'a'", r'"\u0041"', r'"\x"', "5m"])
def test_what_is_no_literal_does_not_parse(literal):
    with pytest.raises(CompilerError) as failure:
        projections(f"{literal} as x")

    assert failure.value.codes == ("Q000",)


@each_case(
    ("text", "count"), [("$p.a, $p.b", 2), ("$p.a $p.b", 2), ("$p.a, $p.b,", 2), ("$p.a as x $p.b as y, count($p)", 3)]
)
def test_commas_between_projections_are_optional(text, count):
    assert len(projections(text)) == count


def test_commas_between_assignments_are_optional():
    text = "query q() { insert Paper { a: 1 b: 2, c: 3, } update Paper set { a: 1 b: 2 } where c = 3 }"

    insert, update = parse(text).queries[0].body.statements

    assert [len(insert.assignments), len(update.assignments)] == [3, 2]


def test_an_inline_match_may_end_with_a_comma():
    (clause,) = clauses("$p: Paper { a: 1, b: 2, }")

    assert [match.property for match in clause.matches] == ["a", "b"]


@each_case(
    "text",
    ["match { } return { $p }", "match { $p: Paper { } } return { $p }", "match { not { } } return { $p }",
     "match { $p: Paper } return { }", "match { $p: Paper } return { $p } order { }"],
    ids=["match", "inline match", "not", "return", "order"],
)  # fmt: skip
def test_empty_braces_do_not_parse(text):
    with pytest.raises(CompilerError) as failure:
        body(text)

    assert failure.value.codes == ("Q000",)


def test_a_file_may_hold_no_query(reading):
    assert compile_file("// nothing yet\n", reading) == ()


def test_clauses_are_tried_in_the_order_of_the_grammar():
    text = '$p: Paper $p cites $q $q.a = 1 search($q.t, "x") not { $q cites $p }'

    assert [type(clause) for clause in clauses(text)] == [
        tree.Binding,
        tree.Traversal,
        tree.Filter,
        tree.Condition,
        tree.Negation,
    ]


def test_both_annotations_are_kept(reading):
    text = 'query q() @instruction("use it") @description("what it is") { match { $p: Paper } return { $p } }'

    compiled = compile_query(text, reading)

    assert (compiled.description, compiled.instruction) == ("what it is", "use it")


def test_annotations_are_optional(reading):
    compiled = compile_query("query q() { match { $p: Paper } return { $p } }", reading)

    assert (compiled.description, compiled.instruction) == (None, None)


def problems(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompilerError) as failure:
        parse_queries(SourceText(text, "test.gq"))
    return failure.value.diagnostics


def read(clauses: str, tail: str = "return { $p }", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $p: Paper {clauses} }} {tail} }}"


def write(statement: str) -> str:
    return f"query q() {{ {statement} }}"


@each_case(
    ("text", "fragment"),
    {
        "negative literal": (read("$p.a > -5"), "negative"),
        "exponent": (read("$p.a > 1e6"), "exponent"),
        "float without digits": (read("$p.a > 1."), "digit"),
        "or": (read("$p.a = 1 or $p.a = 2"), "no `or`"),
        "and": (read("$p.a = 1 and $p.a = 2"), "no `and`"),
        "double equals": (read("$p.a == 1"), "written `=`"),
        "optional": (read("optional { $p cites $q }"), "no `optional`"),
        "offset": (read("", "return { $p } limit 3 offset 4"), "no `offset`"),
        "limit": (read("", "return { $p } limit $n", "$n: I64"), "not a parameter"),
        "order after limit": (read("", "return { $p } limit 3 order { $p.a }"),
            "match, return, order, limit"),
        "count star": (read("", "return { count(*) }"), "count($p)"),
        "enum parameter": (read("", params="$s: enum(a, b)"), "String"),
        "upper-case edge word": (read("$p Cites $q"), "`cites`"),
        "single quotes": (read("$p.t = 'x'"), "double quotes"),
        "hash comment": (read("# x"), "`//`"),
        "empty braces": (read("$q: Paper { }"), "empty"),
        "null in a match": (read("$q: Paper { a: null }"), "null"),
        "null in an insert": (write("insert Paper { a: null }"), "null"),
        "null in an update": (write("update Paper set { a: null } where b = 1"), "null"),
        "where contains": (write('delete Paper where t contains "x"'), "= != < <= > >="),
        "mutation": ("mutation q() { delete Paper where a = 1 }", "no `mutation`"),
        "query name": ("query Q() { match { $p: Paper } return { $p } }", "lower"),
        "unknown escape": (read("$p.t = \"\\q\""), '\\"'),
    },
)  # fmt: skip
def test_a_usual_mistake_gets_a_hint_with_the_way_out(text, fragment):
    (problem,) = problems(text)

    assert fragment in (problem.hint or "")


def test_the_hint_for_a_negative_limit_does_not_suggest_a_parameter():
    (problem,) = problems(read("", "return { $p } limit -1"))

    assert "parameter" not in (problem.hint or "")


def test_the_hint_for_and_in_a_where_does_not_suggest_a_second_condition():
    (problem,) = problems(write("delete Paper where a = 1 and b = 2"))

    assert "one after the other" not in (problem.hint or "")


def test_a_number_is_not_what_is_expected_where_a_number_was_found():
    (problem,) = problems(read("$p.a > 1."))

    assert "found `1`, expected" not in problem.message


@each_case(
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


def test_every_broken_query_is_reported_once_and_in_order():
    text = """
    query a() { match { } return { $p } }
    query fine() { match { $p: Paper } return { $p } }
    query b() { match { $p: Paper } return { $p } limit $n }
    query c() { insert Paper { } }
    """

    found = problems(text)

    assert [problem.line for problem in found] == [2, 4, 5]


def test_a_query_inside_a_string_or_comment_is_no_declaration():
    text = """
    // query a() {
    query b() { match { $p: Paper { t: "query c() {" } /* query d() { */ } return { } }
    """

    assert [(problem.line, problem.code) for problem in problems(text)] == [(3, "Q000")]


def test_a_missing_brace_does_not_swallow_the_next_query():
    text = "query a() { match { $p: Paper } return { $p }\n\nquery b() { match { $p: Paper } return { $p } }"

    (problem,) = problems(text)

    assert "the end of the declaration" in problem.message


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 5000])
def test_deep_nesting_is_refused_and_not_a_crash(depth):
    text = "query q() { match { $p: Paper " + "not { " * depth + "$p cites $q" + " }" * depth

    (problem,) = problems(text)

    assert "nest" in problem.message


def test_a_nul_character_is_refused():
    (problem,) = problems("query q() { match { $p: Paper \0 } return { $p } }")

    assert "NUL" in problem.message


def test_a_very_long_number_is_no_crash(reading):
    from omnigraph.lang.query.compiler import compile_query

    text = read(f"$p.year = {'9' * 10_000}")

    with pytest.raises(CompilerError) as failure:
        compile_query(text, reading)

    assert failure.value.codes == ("Q109",)


READ = "query papers() { match { $p: Paper } return { $p.title } }"
OTHER = "query venues() { match { $v: Venue } return { $v.city } }"
WRONG = "query wrong() { match { $p: Papr } return { $p.title } }"
MIXED = 'query mixed() { insert Author { full_name: "x" } delete Author where full_name = "y" }'


def test_the_only_query_needs_no_name(reading):
    assert compile_query(READ, reading).name == "papers"


def test_a_query_is_found_by_its_name(reading):
    assert compile_query(f"{READ} {OTHER}", reading, "venues").name == "venues"


def test_a_file_of_several_queries_needs_a_name(reading):
    with pytest.raises(QuerySelectionError) as failure:
        compile_query(SourceText(f"{READ} {OTHER}", "all.gq"), reading)

    assert failure.value.available == ("papers", "venues")
    assert str(failure.value) == "all.gq holds 2 queries, name one: papers, venues"


def test_an_unknown_name_is_answered_with_the_nearest_one(reading):
    with pytest.raises(QuerySelectionError, match="holds no query `paper`: did you mean `papers`"):
        compile_query(f"{READ} {OTHER}", reading, "paper")


def test_names_are_case_sensitive(reading):
    with pytest.raises(QuerySelectionError):
        compile_query("query aB() { match { $p: Paper } return { $p } }", reading, "ab")


@pytest.mark.parametrize("name", [None, "papers"])
def test_an_empty_file_holds_no_query(name, reading):
    with pytest.raises(QuerySelectionError, match="holds no query"):
        compile_query("// nothing\n", reading, name)


def test_a_selection_error_is_a_bad_request_that_lists_what_there_is(reading):
    with pytest.raises(BadRequestError) as failure:
        compile_query(f"{READ} {OTHER}", reading)

    assert failure.value.to_json()["available"] == ["papers", "venues"]


def test_other_queries_of_the_file_need_not_fit_the_schema(reading):
    assert compile_query(f"{READ} {WRONG}", reading, "papers").name == "papers"


def test_other_queries_of_the_file_have_to_parse(reading):
    with pytest.raises(CompilerError) as failure:
        compile_query(f"{READ} query broken() {{ match {{ }} }}", reading, "papers")

    assert failure.value.codes == ("Q000",)


def test_compile_file_reports_the_errors_of_every_query(reading):
    second = WRONG.replace("wrong", "also_wrong")

    with pytest.raises(CompilerError) as failure:
        compile_file(f"{WRONG} {READ} {second}", reading)

    assert failure.value.codes == ("T1", "T1")


def test_compile_file_keeps_the_order_of_the_text(reading):
    assert [query.name for query in compile_file(f"{OTHER} {READ}", reading)] == ["venues", "papers"]


def test_q101_two_queries_never_share_a_name(reading):
    with pytest.raises(CompilerError) as failure:
        compile_file(f"{READ}\n{READ}", reading)

    assert [(item.code, item.line, item.column) for item in failure.value.diagnostics] == [("Q101", 2, 7)]


@pytest.mark.parametrize("name", [None, "papers", "venues"])
def test_q101_a_repeated_name_is_an_error_whatever_is_asked_for(name, reading):
    with pytest.raises(CompilerError) as failure:
        compile_query(f"{READ} {OTHER} {READ}", reading, name)

    assert failure.value.codes == ("Q101",)


def test_d2_a_mixed_mutation_names_the_query_and_the_way_out(reading):
    with pytest.raises(MixedMutationError) as failure:
        compile_query(MIXED, reading)

    assert str(failure.value) == (
        "mutation `mixed` mixes insert/update with delete: split it into two queries, writes first and deletes "
        "second, or run both on a branch and merge it"
    )
    assert failure.value.query == "mixed"


def test_d2_is_a_bad_request(reading):
    with pytest.raises(BadRequestError) as failure:
        compile_query(MIXED, reading)

    assert (failure.value.kind, failure.value.http_status) == ("bad_request", 400)


@each_case(
    "body",
    [
        'insert Author { full_name: "x" } delete Author where full_name = "y"',
        'delete Author where full_name = "y" insert Author { full_name: "x" }',
        'update Author set { orcid: "x" } where full_name = "y" delete Wrote where position = 1',
        'delete Wrote where position = 1 delete Cites where weight = 1.0 insert Cites { from: "a", to: "b" }',
    ],
    ids=["insert delete", "delete insert", "update delete", "delete delete insert"],
)
def test_d2_every_mix_is_refused(body, reading):
    with pytest.raises(MixedMutationError):
        compile_query(f"query q() {{ {body} }}", reading)


@pytest.mark.parametrize(
    "body",
    [
        'insert Author { full_name: "x" } update Author set { orcid: "y" } where full_name = "x"',
        'delete Author where full_name = "y" delete Wrote where position = 1',
    ],
    ids=["insert update", "delete delete"],
)
def test_d2_one_side_alone_is_accepted(body, reading):
    assert len(compile_query(f"query q() {{ {body} }}", reading).ir.statements) == 2


def test_d2_is_checked_after_the_types(reading):
    text = 'query q() { insert Autor { full_name: "x" } delete Author where full_name = "y" }'

    with pytest.raises(CompilerError) as failure:
        compile_query(text, reading)

    assert failure.value.codes == ("T10",)


def test_d2_is_reported_by_name_in_a_file_of_several_queries(reading):
    with pytest.raises(MixedMutationError) as failure:
        compile_file(f"{READ} {MIXED}", reading)

    assert failure.value.query == "mixed"


def test_d2_of_another_query_does_not_matter(reading):
    assert compile_query(f"{READ} {MIXED}", reading, "papers").name == "papers"


def test_a_query_file_is_read_under_its_path(tmp_path, reading):
    path = tmp_path / "papers.gq"
    path.write_bytes(b"\xef\xbb\xbf" + WRONG.encode())

    with pytest.raises(CompilerError) as failure:
        compile_query(read_queries(path), reading)

    assert failure.value.diagnostics[0].location == f"{path}:1:29"


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputFileError, match="cannot read"):
        read_queries(tmp_path / "missing.gq")


def test_a_file_that_is_not_utf_8_is_q000(tmp_path):
    path = tmp_path / "latin.gq"
    path.write_bytes("// Ä".encode("latin-1"))

    with pytest.raises(CompilerError) as failure:
        read_queries(path)

    assert failure.value.codes == ("Q000",)
