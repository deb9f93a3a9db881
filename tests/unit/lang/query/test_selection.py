from __future__ import annotations

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    InputFileError,
    MixedMutationError,
    QuerySelectionError,
)
from omnigraph.lang.query.compiler import compile_file, compile_query, read_queries
from support.subtests import each_case

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
    assert [query.name for query in compile_file(f"{OTHER} {READ}", reading)] == [
        "venues",
        "papers",
    ]


def test_q101_two_queries_never_share_a_name(reading):
    with pytest.raises(CompilerError) as failure:
        compile_file(f"{READ}\n{READ}", reading)

    assert [(item.code, item.line, item.column) for item in failure.value.diagnostics] == [
        ("Q101", 2, 7)
    ]


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
