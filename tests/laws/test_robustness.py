"""Hostile, huge and broken input: always a typed error or a result, never a crash and never a hang.

The time limits are guards against hanging only; every case takes a fraction of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.source import MAX_PATTERNS, MAX_SOURCE_BYTES, SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, InputFileError
from omnigraph.lang.query.compiler import compile_file, read_queries
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.query.describe.lint import lint_queries
from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from omnigraph.lang.schema.plan import MigrationPlan, plan_migration
from support.strategies import DOMAIN, attempt
from support.subtests import each_case, named_cases

pytestmark = pytest.mark.timeout(20, func_only=True)

GOLDEN = Path(__file__).parents[1] / "unit" / "lang" / "golden"
READING = compile_schema_file(GOLDEN / "reading.pg").catalog
SCHEMA_TEXT = (GOLDEN / "reading.pg").read_text(encoding="utf-8")

HUGE = 10 * 1024 * 1024
#: Characters of one huge token that is just about allowed.
LARGE = MAX_SOURCE_BYTES - 1000


def _refusal(text: str, *, language: str) -> CompilerError:
    with pytest.raises(CompilerError) as failure:
        _compile(text, language)
    for found in failure.value.diagnostics:
        assert found.message
        assert found.line >= 1
        assert found.column >= 1
    assert len(str(failure.value)) < 2 * len(text) + 100_000
    return failure.value


def _compile(text: str, language: str) -> object:
    if language == "schema":
        return compile_schema(text)
    return compile_file(text, READING)


def _read(clauses: str, columns: str = "$p", tail: str = "") -> str:
    return f"query q() {{ match {{ $p: Paper {clauses} }} return {{ {columns} }} {tail} }}"


both = pytest.mark.parametrize("language", ["schema", "query"])


# ---- files


def _compile_path(path: Path, language: str) -> object:
    if language == "schema":
        return compile_schema_file(path)
    return compile_file(read_queries(path), READING)


@both
@named_cases(
    "data",
    {
        "a byte order mark of UTF-16 alone": b"\xff\xfe",
        "UTF-16 with a mark": "node A {}".encode("utf-16"),
        "UTF-16 without a mark": "node A {}".encode("utf-16-le"),
        "UTF-32": "node A {}".encode("utf-32"),
        "Latin-1": "node Ä {}".encode("latin-1"),
        "a cut character at the end": b"// \xc3",
        "an encoded surrogate": b"// \xed\xa0\x80",
        "an overlong NUL": b"// \xc0\x80",
        "a NUL byte": b"node A {}\0",
        "nothing but NUL bytes": b"\0" * 1000,
        "every byte": bytes(range(256)) * 100,
        "a compressed file": b"\x1f\x8b\x08\x00" + b"\xa5" * 500,
    },
)
def test_a_file_in_another_encoding_is_refused_with_a_place(tmp_path, language, data) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    with pytest.raises(CompilerError) as failure:
        _compile_path(path, language)
    found = failure.value.diagnostics[0]
    assert (found.file, found.line >= 1, found.column >= 1) == (str(path), True, True)


@both
@named_cases(
    "data",
    {
        "empty": b"",
        "a byte order mark": b"\xef\xbb\xbf",
        "white space": b" \t\r\n\n  ",
        "comments": b"// nothing\n/* here */",
        "an empty comment without a line end": b"//",
    },
)
def test_a_file_without_declarations_is_an_empty_program(tmp_path, language, data) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    result = _compile_path(path, language)
    assert result == () if language == "query" else not result.catalog.nodes


@both
def test_a_bad_byte_behind_a_byte_order_mark_is_named_at_its_place(tmp_path, language) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\xef\xbb\xbf// one\n// two \xff")
    with pytest.raises(CompilerError) as failure:
        _compile_path(path, language)
    found = failure.value.diagnostics[0]
    assert "0xff" in found.message
    assert (found.line, found.column) == (2, 8)


@both
def test_a_path_that_is_no_file_is_an_input_error(tmp_path, language) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "a\0b", Path("x" * 5000)):
        with pytest.raises(InputFileError):
            _compile_path(path, language)


@both
@named_cases(
    ("head", "unit", "tail"),
    {
        "comments": ("", "// a comment\n", ""),
        "one comment": ("/*", " x", "*/"),
        "one string": ('node A @x("', "a", '") {}'),
        "one name": ("node A", "a", " {}"),
        "one enum": ("node A { x: enum(a", ",b", ") }"),
        "one number": ("node A { x: Vector(", "9", ") }"),
        "declarations": ("", "node A { x: String }\n", ""),
        "characters of two bytes": ("", "é" * 10, ""),
    },
)
def test_a_file_of_ten_megabytes_is_refused_for_its_size(tmp_path, language, head, unit, tail) -> None:
    path = tmp_path / "input"
    path.write_text(head + unit * (HUGE // len(unit)) + tail, encoding="utf-8")
    with pytest.raises(CompilerError, match="MiB") as failure:
        _compile_path(path, language)
    assert len(failure.value.message) < 1000


@both
@named_cases("text", {"characters": "a" * HUGE, "bytes": "// " + "€" * (MAX_SOURCE_BYTES // 2)})
def test_a_text_of_too_many_bytes_is_refused_for_its_size(language, text) -> None:
    assert "MiB" in str(_refusal(text, language=language))


# ---- one huge token


@both
def test_a_huge_comment_is_skipped(language) -> None:
    _compile(f"/*{'x ' * (LARGE // 2)}*/", language)
    _compile(f"//{'x ' * (LARGE // 2)}", language)


def test_a_huge_string_is_kept() -> None:
    text = "a" * LARGE
    compiled = compile_schema(f'node A @description("{text}") {{}}')
    assert compiled.catalog.nodes["A"].metadata.description == text
    queries = compile_file(_read(f'$p.title = "{text}"'), READING)
    assert text in explain_ir(queries[0].ir)


def test_a_huge_string_of_escapes_is_kept() -> None:
    compiled = compile_schema('node A @description("a%s") {}' % ("\\n" * 500_000))
    assert compiled.catalog.nodes["A"].metadata.description == "a" + "\n" * 500_000


@both
def test_a_huge_name_is_an_ordinary_name(language) -> None:
    name = "a" * LARGE
    if language == "schema":
        assert list(compile_schema(f"node A{name} {{}}").catalog.nodes) == [f"A{name}"]
    else:
        found = _refusal(_read(f"$p.{name} = 1"), language="query").diagnostics[0]
        assert name[:100] in found.message


def test_an_unknown_huge_name_beside_another_huge_name_is_refused() -> None:
    first, second = "A" + "ab" * 100_000, "A" + "ba" * 100_000
    failure = _refusal(f"node {first} {{}} edge E: {second} -> {first}", language="schema")
    assert failure.codes == ("S-26",)


@each_case("digits", [41, 4_000, 5_000, 1_000_000])
def test_a_huge_number_in_a_schema_is_refused_or_kept(digits) -> None:
    number = "9" * digits
    assert _refusal(f"node A {{ v: Vector({number}) }}", language="schema").codes == ("S-04",)
    edge = f"node A {{}} edge E: A -> A @card(0..{number})"
    assert _refusal(edge, language="schema").codes == ("S-07",)
    compile_schema(f"node A @x({number}) {{}}")
    text = f"node A {{ x: F64 @range(x, 0..{number}) }}"
    compiled, failure = attempt(CompilerError, compile_schema, text)
    assert failure.diagnostics[0].message if failure else compiled.catalog.nodes["A"].ranges


@each_case("digits", [400, 5_000, 1_000_000])
def test_a_huge_decimal_in_a_schema_is_never_taken_for_infinity(digits) -> None:
    text = f"node A {{ x: F64 @range(x, 0..{'9' * digits}.5) }}"
    compiled, failure = attempt(CompilerError, compile_schema, text)
    assert failure or compiled.catalog.nodes["A"].ranges[0].high != float("inf")


@each_case("digits", [20, 41, 5_000, 1_000_000])
def test_a_huge_number_in_a_query_is_refused(digits) -> None:
    number = "9" * digits
    for text in (
        _read(f"$p.year = {number}"),
        _read("", tail=f"limit {number}"),
        _read(f"$p.score = {number * 16}.5"),
        f"query q($v: Vector({number})) {{ match {{ $p: Paper }} return {{ $p }} }}",
        f'query q() {{ update Paper set {{ year: {number} }} where doi = "a" }}',
    ):
        _refusal(text, language="query")


def test_a_huge_hop_bound_is_refused_or_kept_without_work() -> None:
    for digits in (5, 41, 5_000):
        text = _read("$p cites{1,%s} $q" % ("9" * digits))
        compiled, failure = attempt(CompilerError, compile_file, text, READING)
        assert failure.diagnostics[0].message if failure else compiled[0].ir.pipeline


def _each(form: str, count: int, joint: str = "\n") -> str:
    """The form with the numbers from 0 in place of `#`, and with the next number in place of `%`."""
    return joint.join(form.replace("#", str(number)).replace("%", str(number + 1)) for number in range(count))


@named_cases(
    ("text", "look", "count"),
    {
        "enum values": (
            f"node A {{ e: enum({_each('v#', 50_000, ', ')}) }}",
            lambda it: it.nodes["A"].properties["e"].type.base.values,
            50_000,
        ),
        "nodes and edges": (
            _each("node N# { a: String @key b: I32? }\nedge E#: N# -> N%", 2499) + "\nnode N2499 {}",
            lambda it: [*it.nodes, *it.edges],
            4999,
        ),
        "properties": (f"node A {{ {_each('p#: String? @index', 5000)} }}", lambda it: it.nodes["A"].indexes, 5000),
        "constraints of a node": (
            f"node A {{ {_each('p#: I32 @index(p#) @unique(p#) @range(p#, 0..)', 1500)} }}",
            lambda it: it.nodes["A"].ranges,
            1500,
        ),
        "constraints of an edge": (
            f"node A {{}} edge E: A -> A {{ {_each('p#: I32 @index(p#, src)', 1500)} }}",
            lambda it: it.edges["E"].indexes,
            1500,
        ),
        "interfaces": (
            _each("interface I# { p#: String? @index }", 3000) + f"node A implements {_each('I#', 3000, ', ')} {{}}",
            lambda it: it.nodes["A"].properties,
            3000,
        ),
        "one interface again and again": (
            f"interface I {{ p: I32 }} node A implements {', '.join(['I'] * 5000)} {{}}",
            lambda it: it.nodes["A"].implements,
            1,
        ),
        "annotations": (
            f"node A {_each('@m#(#, k=#)', 5000, ' ')} {{}}",
            lambda it: it.nodes["A"].metadata.annotations,
            5000,
        ),
    },
)
def test_a_schema_of_thousands_of_one_thing_is_compiled(text, look, count) -> None:
    assert len(look(compile_schema(text).catalog)) == count


# ---- nesting

DEEP = 10_000


@both
@named_cases(
    "text",
    {
        **{f"{bracket} without end": bracket * DEEP for bracket in ("(", "[", "{", "({[", "not {", "a(", "[[")},
        **{f"{pair} closed": pair[0] * DEEP + pair[1] * DEEP for pair in ("()", "[]", "{}")},
        **{f"{pair} the wrong way round": pair * DEEP for pair in (")(", "][", "}{", "}}}", ")))")},
    },
)
def test_brackets_nested_beyond_reason_are_refused(language, text) -> None:
    _refusal(text, language=language)


@named_cases(
    "clause",
    {
        "negations": "not { $p.year = 1 " * DEEP + "}" * DEEP,
        "calls": "$p.year = " + "f(" * DEEP + "1" + ")" * DEEP,
        "lists": "$p.year = " + "[" * DEEP + "1" + "]" * DEEP,
    },
)
def test_clauses_nested_without_end_are_refused(clause) -> None:
    assert "nest" in str(_refusal(_read(clause), language="query"))


def test_negations_nested_as_deep_as_allowed_are_compiled() -> None:
    depth = 60
    assert compile_file(_read("not { $p.year = 1 " * depth + "}" * depth), READING)


@both
def test_brackets_in_comments_and_strings_do_not_nest(language) -> None:
    brackets = "([{" * DEEP
    _compile(f"// {brackets}\n/* {brackets} */", language)
    if language == "schema":
        compile_schema(f'node A @x("{brackets}") {{}}')
    else:
        compile_file(_read(f'$p.title = "{brackets}"'), READING)


# ---- many of one thing


CHAIN = [f"$a{i} cites $a{i + 1}" for i in range(MAX_PATTERNS - 2)]


@named_cases(
    ("text", "look", "count"),
    {
        "queries": (_each("query q#() { match { $p: Paper } return { $p } }", 3000), list, 3000),
        "parameters": (
            f"query q({_each('$x#: I32', 10_000, ', ')}) {{ match {{ $p: Paper }} return {{ $p }} }}",
            lambda found: found[0].ir.params,
            10_000,
        ),
        "items of a list": (_read(f"[{_each('#', 50_000, ', ')}] contains $p.year"), list, 1),
        "traversals one behind the other": (
            _read("$p cites $a0 " + "\n".join(CHAIN)),
            lambda found: found[0].ir.pipeline,
            MAX_PATTERNS,
        ),
        "traversals one before the other": (
            _read("$p cites $a0 " + "\n".join(CHAIN[::-1])),
            lambda found: found[0].ir.pipeline,
            MAX_PATTERNS,
        ),
        "traversals from one node": (
            _read(_each("$p cites $a#", MAX_PATTERNS - 1)),
            lambda found: found[0].ir.pipeline,
            MAX_PATTERNS,
        ),
        "filters": (_read(_each("$p.year > #", 1000)), lambda found: found[0].ir.pipeline[0].filters, 1000),
        "joined filters": (
            _read(_each("$a#: Paper", 201) + _each(" $a#.year < $a%.year", 200)),
            lambda found: found[0].ir.pipeline,
            402,
        ),
        "negations": (_read(_each("not { $p cites $a# }", 100)), lambda found: found[0].ir.pipeline, 101),
        "columns and order keys": (
            _read("", _each("$p.year as y#", 1000, ", "), f"order {{ {_each('y#', 1000, ', ')} }}"),
            lambda found: found[0].ir.order,
            1000,
        ),
        "statements": (
            f"query q($x: String) {{ {_each('insert Author { full_name: $x }', 1000)} }}",
            lambda found: found[0].ir.statements,
            1000,
        ),
    },
)
def test_a_query_of_thousands_of_one_thing_is_compiled(text, look, count) -> None:
    assert len(look(compile_file(text, READING))) == count


def test_many_bindings_are_compiled_and_one_more_is_refused() -> None:
    bindings = [f"$a{i}: Paper {{ year: {i} }}" for i in range(MAX_PATTERNS)]
    compiled = compile_file(_read("\n".join(bindings[1:])), READING)
    assert len(compiled[0].ir.pipeline) == MAX_PATTERNS
    assert _refusal(_read("\n".join(bindings)), language="query").codes == ("Q118",)


def _planned(old: str, new: str) -> MigrationPlan:
    before = compile_schema(old)
    identities = fresh_identities(before.catalog, DOMAIN, before.source).identities
    return plan_migration(AcceptedSchema(catalog=before.catalog, identities=identities), compile_schema(new))


def test_thousands_of_renames_are_planned() -> None:
    new = _each('node M# @rename_from("N#") { b: I32? @rename_from("a") }', 1000)
    plan = _planned(_each("node N# { a: I32? }", 1000), new)
    assert plan.supported
    assert len(plan.steps) == 2000


# ---- broken ends, long lines


@both
@each_case(
    ("tail", "phrase"),
    [
        ('"', "a string that never ends"),
        ('"abc \\"', "a string that never ends"),
        ("/*", "a comment that never ends"),
        ("/* abc * /", "a comment that never ends"),
        ("/", "`/`"),
        ('"\\', "inside an escape"),
    ],
)
def test_a_broken_end_of_a_long_file_is_found_at_its_place(language, tail, phrase) -> None:
    unit = {"schema": "node N# { a: String }", "query": "query q#() { match { $p: Paper } return { $p } }"}[language]
    lines = 300
    found = _refusal(_each(unit, lines) + "\n" + tail, language=language).diagnostics[-1]
    assert phrase in found.message
    assert (found.line, found.column) == (lines + 1, 1 + (phrase == "inside an escape"))


@both
@named_cases(
    "text",
    {
        "comments that never end": "/* " * 100_000,
        "a string of escaped quotes that never ends": '"' + '\\"' * 100_000,
        "brackets and comments that never end": "{" * 100 + "/* " * 100_000,
        "empty lines before an error": "x\n" + "\n" * 200_000 + "// y\nnodePaper {}",
        "spaces": "x" + " " * 500_000 + "x",
        "spaces behind a mark": "@key" + " " * 500_000,
        "keywords": "node " * 200_000,
        "query keywords": "query " * 200_000,
        "beginnings of queries": "query q" * 200_000,
        "a word in names": "node A implements " + "Ximplements, " * 20_000 + "X @x {}",
        "dollars": "$" * 500_000,
        "wrong quotes": "'" * 500_000,
        "quotes": '"' * 500_001,
        "dashes": "-" * 500_000,
        "digits and a letter": "9" * 500_000 + "x",
        "carriage returns": "\r" * 500_000 + "x",
        "invisible characters": "\u200b" * 300_000,
        "characters beyond the basic plane": "\U0001f9ff" * 300_000,
    },
)
def test_a_pathological_text_is_refused_without_hanging(language, text) -> None:
    _refusal(text, language=language)


@both
def test_an_error_in_a_very_long_line_is_shown_in_a_window(language) -> None:
    text = "/* " + "x" * 1_000_000 + " */ ? /* " + "y" * 1_000_000 + " */"
    found = _refusal(text, language=language).diagnostics[0]
    assert found.column == 1_000_008
    assert len(found.render()) < 1000


def test_windows_line_endings_keep_lines_and_columns() -> None:
    text = SCHEMA_TEXT.replace("\n", "\r\n")
    expected = compile_schema(SCHEMA_TEXT).catalog
    assert compile_schema(text).catalog == expected
    found = _refusal(text + "node X { a: Strin }\r\n", language="schema").diagnostics[0]
    assert (found.line, found.column) == (SCHEMA_TEXT.count("\n") + 1, 13)
    assert "\r" not in found.render()


@both
def test_a_lone_surrogate_outside_of_strings_is_a_typed_error(language) -> None:
    failure = _refusal("\ud800", language=language)
    assert failure.to_json()["diagnostics"]


# ---- thousands of errors


def test_of_thousands_of_syntax_errors_in_a_schema_the_first_are_found() -> None:
    text = "\n".join(f"node N{i} {{ a: String, b: I32 }}" for i in range(1000))
    failure = _refusal(text, language="schema")
    assert [found.line for found in failure.diagnostics] == list(range(1, MAX_DIAGNOSTICS + 1))
    assert failure.total == 1000
    assert len(failure.message) < 100_000


@named_cases(
    ("language", "text", "count"),
    {
        "syntax errors in one line": ("schema", _each("node N# { a: String, b: I32 }", 1000, " "), 1000),
        "syntax errors in queries": (
            "query",
            _each("query q#() { match { $p: Paper } return { $p } order $p }", 2000),
            2000,
        ),
        "unknown types": ("schema", f"node A {{ {_each('p#: Strin', 1000)} }}", 1000),
        "unknown endpoints": ("schema", _each("node Node# {}\nedge E#: Nodee# -> Node#", 1000), 1000),
        "unknown members": ("schema", f"node A {{ {_each('prop#: String? @index(propp#)', 1000)} }}", 1000),
        "unbound variables": ("query", _read(_each("$a#: Paper", 200) + _each(" $ab#.year = 1", 1000)), 1000),
        "unknown parameters": (
            "query",
            f"query q({_each('$x#: String', 1000, ', ')}) {{ {_each('insert Author { full_name: $y# }', 1000)} }}",
            1000,
        ),
    },
)
def test_of_thousands_of_errors_the_first_are_listed_and_all_are_counted(language, text, count) -> None:
    failure = _refusal(text, language=language)
    assert (len(failure.diagnostics), failure.total) == (MAX_DIAGNOSTICS, count)


def test_thousands_of_wrong_rename_hints_are_all_counted() -> None:
    with pytest.raises(CompilerError) as failure:
        _planned(_each("node Node# {}", 1000), _each('node Mode# @rename_from("Nodd#") {}', 1000))
    assert failure.value.total == 1000


def test_thousands_of_wrong_queries_are_all_judged() -> None:
    text = _each("query q#() { match { $p: Papr } return { $p.titel } }", 1500)
    assert lint_queries(SourceText(text), READING, "reading.pg").errors == 1500
