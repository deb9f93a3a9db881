"""Hostile, huge and broken input: always a typed error or a result, never a crash and never a hang.

The time limits are guards against hanging only; every case takes a fraction of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.source import MAX_PATTERNS, MAX_SOURCE_BYTES, SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, InputFileError
from omnigraph.lang.query.compiler import compile_file, read_queries
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.query.lint import lint_queries
from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from omnigraph.lang.schema.plan import plan_migration
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


def _lint_errors(text: str) -> int:
    return lint_queries(SourceText(text), READING, "reading.pg").errors


both = pytest.mark.parametrize("language", ["schema", "query"])


# ---- files


def _compile_path(path: Path, language: str) -> object:
    if language == "schema":
        return compile_schema_file(path)
    return compile_file(read_queries(path), READING)


@both
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xfe", id="a byte order mark of UTF-16 alone"),
        pytest.param("node A {}".encode("utf-16"), id="UTF-16 with a mark"),
        pytest.param("node A {}".encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param("node A {}".encode("utf-32"), id="UTF-32"),
        pytest.param("node Ä {}".encode("latin-1"), id="Latin-1"),
        pytest.param(b"// \xc3", id="a cut character at the end"),
        pytest.param(b"// \xed\xa0\x80", id="an encoded surrogate"),
        pytest.param(b"// \xc0\x80", id="an overlong NUL"),
        pytest.param(b"node A {}\0", id="a NUL byte"),
        pytest.param(b"\0" * 1000, id="nothing but NUL bytes"),
        pytest.param(bytes(range(256)) * 100, id="every byte"),
        pytest.param(b"\x1f\x8b\x08\x00" + b"\xa5" * 500, id="a compressed file"),
    ],
)
def test_a_file_in_another_encoding_is_refused_with_a_place(tmp_path, language, data) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    with pytest.raises(CompilerError) as failure:
        _compile_path(path, language)
    found = failure.value.diagnostics[0]
    assert (found.file, found.line >= 1, found.column >= 1) == (str(path), True, True)


@both
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xef\xbb\xbf", id="a byte order mark"),
        pytest.param(b" \t\r\n\n  ", id="white space"),
        pytest.param(b"// nothing\n/* here */", id="comments"),
        pytest.param(b"//", id="an empty comment without a line end"),
    ],
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
@pytest.mark.parametrize(
    ("head", "unit", "tail"),
    [
        pytest.param("", "// a comment\n", "", id="comments"),
        pytest.param("/*", " x", "*/", id="one comment"),
        pytest.param('node A @x("', "a", '") {}', id="one string"),
        pytest.param("node A", "a", " {}", id="one name"),
        pytest.param("node A { x: enum(a", ",b", ") }", id="one enum"),
        pytest.param("node A { x: Vector(", "9", ") }", id="one number"),
        pytest.param("", "node A { x: String }\n", "", id="declarations"),
        pytest.param("", "é" * 10, "", id="characters of two bytes"),
    ],
)
def test_a_file_of_ten_megabytes_is_refused_for_its_size(tmp_path, language, head, unit, tail) -> None:
    path = tmp_path / "input"
    path.write_text(head + unit * (HUGE // len(unit)) + tail, encoding="utf-8")
    with pytest.raises(CompilerError, match="MiB") as failure:
        _compile_path(path, language)
    assert len(failure.value.message) < 1000


@both
def test_a_text_of_ten_megabytes_is_refused_for_its_size(language) -> None:
    assert "MiB" in str(_refusal("a" * HUGE, language=language))


@both
def test_the_limit_counts_bytes_and_not_characters(language) -> None:
    assert "MiB" in str(_refusal("// " + "€" * (MAX_SOURCE_BYTES // 2), language=language))


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


@pytest.mark.parametrize("digits", [400, 5_000, 1_000_000])
def test_a_huge_decimal_in_a_schema_is_never_taken_for_infinity(digits) -> None:
    number = "9" * digits + ".5"
    text = f"node A {{ x: F64 @range(x, 0..{number}) }}"
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


def test_a_large_enum_is_compiled() -> None:
    values = [f"v{index}" for index in range(50_000)]
    compiled = compile_schema(f"node A {{ e: enum({', '.join(values)}) }}")
    assert len(compiled.catalog.nodes["A"].properties["e"].type.base.values) == 50_000


def test_a_large_list_literal_is_compiled() -> None:
    items = ", ".join(map(str, range(50_000)))
    assert compile_file(_read(f"[{items}] contains $p.year"), READING)


# ---- nesting

DEEP = 10_000


@both
@each_case("bracket", ["(", "[", "{", "({[", "not {", "a(", "[["])
def test_brackets_nested_without_end_are_refused(language, bracket) -> None:
    _refusal(bracket * DEEP, language=language)


@both
@each_case("pair", ["()", "[]", "{}"])
def test_brackets_nested_and_closed_are_refused(language, pair) -> None:
    _refusal(pair[0] * DEEP + pair[1] * DEEP, language=language)


@both
@each_case("pair", [")(", "][", "}{", "}}}", ")))"])
def test_brackets_the_wrong_way_round_are_refused(language, pair) -> None:
    _refusal(pair * DEEP, language=language)


def test_negations_nested_without_end_are_refused() -> None:
    text = _read("not { $p.year = 1 " * DEEP + "}" * DEEP)
    assert "nest" in str(_refusal(text, language="query"))


def test_calls_and_lists_nested_without_end_are_refused() -> None:
    calls = _read("$p.year = " + "f(" * DEEP + "1" + ")" * DEEP)
    lists = _read("$p.year = " + "[" * DEEP + "1" + "]" * DEEP)
    for text in (calls, lists):
        assert "nest" in str(_refusal(text, language="query"))


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


def test_five_thousand_declarations_are_compiled() -> None:
    text = "".join(
        f"node N{i} {{ a: String @key b: I32? }}\nedge E{i}: N{i} -> N{(i + 1) % 2500}\n" for i in range(2500)
    )
    catalog = compile_schema(text).catalog
    assert (len(catalog.nodes), len(catalog.edges)) == (2500, 2500)


def test_five_thousand_properties_are_compiled() -> None:
    body = "\n".join(f"p{i}: String? @index" for i in range(5000))
    assert len(compile_schema(f"node A {{ {body} }}").catalog.nodes["A"].indexes) == 5000


def test_thousands_of_body_constraints_are_compiled() -> None:
    body = "\n".join(f"p{i}: I32\n@index(p{i})\n@unique(p{i})\n@range(p{i}, 0..)" for i in range(1500))
    assert len(compile_schema(f"node A {{ {body} }}").catalog.nodes["A"].ranges) == 1500
    body = "\n".join(f"p{i}: I32\n@index(p{i}, src)" for i in range(1500))
    assert compile_schema(f"node A {{}} edge E: A -> A {{ {body} }}").catalog.edges["E"].indexes


def test_a_long_list_of_interfaces_is_compiled() -> None:
    interfaces = "".join(f"interface I{i} {{ p{i}: String? @index }}\n" for i in range(3000))
    names = ", ".join(f"I{i}" for i in range(3000))
    compiled = compile_schema(f"{interfaces} node A implements {names} {{}}")
    assert len(compiled.catalog.nodes["A"].properties) == 3000


def test_one_interface_named_thousands_of_times_is_compiled() -> None:
    names = ", ".join(["I"] * 5000)
    compiled = compile_schema(f"interface I {{ p: I32 }} node A implements {names} {{}}")
    assert compiled.catalog.nodes["A"].implements == ("I",)


def test_thousands_of_annotations_are_compiled() -> None:
    marks = " ".join(f"@m{i}({i}, k={i})" for i in range(5000))
    assert len(compile_schema(f"node A {marks} {{}}").catalog.nodes["A"].metadata.annotations) == 5000


def test_ten_thousand_parameters_are_compiled() -> None:
    params = ", ".join(f"$x{i}: I32" for i in range(10_000))
    compiled = compile_file(f"query q({params}) {{ match {{ $p: Paper }} return {{ $p }} }}", READING)
    assert len(compiled[0].ir.params) == 10_000


def test_thousands_of_queries_are_compiled() -> None:
    text = "\n".join(f"query q{i}() {{ match {{ $p: Paper }} return {{ $p }} }}" for i in range(3000))
    assert len(compile_file(text, READING)) == 3000


@pytest.mark.parametrize("order", [1, -1], ids=["forward", "backward"])
def test_a_long_chain_of_traversals_is_compiled(order) -> None:
    chain = [f"$a{i} cites $a{i + 1}" for i in range(MAX_PATTERNS - 2)][::order]
    compiled = compile_file(_read("$p cites $a0 " + "\n".join(chain)), READING)
    assert len(compiled[0].ir.pipeline) == MAX_PATTERNS


def test_many_traversals_from_one_node_are_compiled() -> None:
    star = "\n".join(f"$p cites $a{i}" for i in range(MAX_PATTERNS - 1))
    assert len(compile_file(_read(star), READING)[0].ir.pipeline) == MAX_PATTERNS


def test_many_bindings_are_compiled_and_one_more_is_refused() -> None:
    bindings = [f"$a{i}: Paper {{ year: {i} }}" for i in range(MAX_PATTERNS)]
    compiled = compile_file(_read("\n".join(bindings[1:])), READING)
    assert len(compiled[0].ir.pipeline) == MAX_PATTERNS
    assert _refusal(_read("\n".join(bindings)), language="query").codes == ("Q118",)


def test_a_thousand_filters_are_compiled() -> None:
    compiled = compile_file(_read("\n".join(f"$p.year > {i}" for i in range(1000))), READING)
    assert len(compiled[0].ir.pipeline[0].filters) == 1000


def test_many_joined_filters_are_compiled() -> None:
    bound = "\n".join(f"$a{i}: Paper" for i in range(201))
    joins = "\n".join(f"$a{i}.year < $a{i + 1}.year" for i in range(200))
    assert len(compile_file(_read(f"{bound}\n{joins}"), READING)[0].ir.pipeline) == 402


def test_many_negations_are_compiled() -> None:
    text = _read("\n".join(f"not {{ $p cites $a{i} }}" for i in range(100)))
    assert len(compile_file(text, READING)[0].ir.pipeline) == 101


def test_a_thousand_columns_and_order_keys_are_compiled() -> None:
    columns = ", ".join(f"$p.year as y{i}" for i in range(1000))
    keys = ", ".join(f"y{i}" for i in range(1000))
    compiled = compile_file(_read("", columns, f"order {{ {keys} }}"), READING)
    assert len(compiled[0].ir.order) == 1000


def test_a_thousand_statements_are_compiled() -> None:
    inserts = "\n".join("insert Author { full_name: $x }" for _ in range(1000))
    compiled = compile_file(f"query q($x: String) {{ {inserts} }}", READING)
    assert len(compiled[0].ir.statements) == 1000


def test_thousands_of_renames_are_planned() -> None:
    old = compile_schema("".join(f"node N{i} {{ a: I32? }}\n" for i in range(1000)))
    new = compile_schema(
        "".join(f'node M{i} @rename_from("N{i}") {{ b: I32? @rename_from("a") }}\n' for i in range(1000))
    )
    identities = fresh_identities(old.catalog, DOMAIN, old.source).identities
    plan = plan_migration(AcceptedSchema(catalog=old.catalog, identities=identities), new)
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
def test_a_broken_end_of_a_large_file_is_found_at_its_place(language, tail, phrase) -> None:
    unit = {"schema": "node N%d { a: String }\n", "query": "query q%d() { match { $p: Paper } return { $p } }\n"}[
        language
    ]
    lines = 1500
    text = "".join(unit % i for i in range(lines)) + tail
    found = _refusal(text, language=language).diagnostics[-1]
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


def test_of_thousands_of_syntax_errors_in_one_line_the_first_are_found() -> None:
    text = " ".join(f"node N{i} {{ a: String, b: I32 }}" for i in range(1000))
    assert len(_refusal(text, language="schema").diagnostics) == MAX_DIAGNOSTICS


def test_of_thousands_of_syntax_errors_in_queries_the_first_are_found() -> None:
    text = "\n".join(f"query q{i}() {{ match {{ $p: Paper }} return {{ $p }} order $p }}" for i in range(2000))
    failure = _refusal(text, language="query")
    assert (len(failure.diagnostics), failure.total) == (MAX_DIAGNOSTICS, 2000)


def test_thousands_of_unknown_types_are_all_counted() -> None:
    text = "node A { " + "\n".join(f"p{i}: Strin" for i in range(1000)) + "}"
    assert _refusal(text, language="schema").total == 1000


def test_thousands_of_unknown_endpoints_are_all_counted() -> None:
    text = "".join(f"node Node{i} {{}}\nedge E{i}: Nodee{i} -> Node{i}\n" for i in range(1000))
    assert _refusal(text, language="schema").total == 1000


def test_thousands_of_unknown_members_are_all_counted() -> None:
    body = "\n".join(f"prop{i}: String?\n@index(propp{i})" for i in range(1000))
    assert _refusal(f"node A {{ {body} }}", language="schema").total == 1000


def test_thousands_of_unbound_variables_are_all_counted() -> None:
    bound = "\n".join(f"$a{i}: Paper" for i in range(200))
    wrong = "\n".join(f"$ab{i}.year = 1" for i in range(1000))
    assert _refusal(_read(f"{bound}\n{wrong}"), language="query").total == 1000


def test_thousands_of_unknown_parameters_are_all_counted() -> None:
    params = ", ".join(f"$x{i}: String" for i in range(1000))
    inserts = "\n".join(f"insert Author {{ full_name: $y{i} }}" for i in range(1000))
    text = f"query q({params}) {{ {inserts} }}"
    assert _refusal(text, language="query").total == 1000


def test_thousands_of_wrong_rename_hints_are_all_counted() -> None:
    old = compile_schema("".join(f"node Node{i} {{}}\n" for i in range(1000)))
    new = compile_schema("".join(f'node Mode{i} @rename_from("Nodd{i}") {{}}\n' for i in range(1000)))
    identities = fresh_identities(old.catalog, DOMAIN, old.source).identities
    accepted = AcceptedSchema(catalog=old.catalog, identities=identities)
    with pytest.raises(CompilerError) as failure:
        plan_migration(accepted, new)
    assert failure.value.total == 1000


def test_thousands_of_wrong_queries_are_all_judged() -> None:
    text = "\n".join(f"query q{i}() {{ match {{ $p: Papr }} return {{ $p.titel }} }}" for i in range(1500))
    assert _lint_errors(text) == 1500
