"""A text may be one statement about branches, or explain a query; settings at its head do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError, CompilerError, QuerySelectionError
from omnigraph.graph.graph import Graph
from support.graphs import ids_of, new_graph, refused
from support.subtests import each_case

INSERT = 'insert Person { name: "ada" }'


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path, "node Person { name: String @key  age: I32? }")


def test_branches_are_made_listed_merged_and_deleted_by_statements(graph: Graph) -> None:
    assert graph.mutate('branch create "drafts/one"').branch == "drafts/one"
    assert graph.mutate("branch create two from drafts/one;").commit is None
    assert graph.query("branch list").to_pylist() == [{"branch": name} for name in ("drafts/one", "main", "two")]
    graph.mutate(INSERT, branch="two")
    merged = graph.mutate("branch merge two into drafts/one")
    assert (merged.branch, merged.query_name) == ("drafts/one", "branch merge")
    assert merged.commit == graph.commits("drafts/one")[0]
    assert graph.mutate("branch merge two").branch == "main"
    assert ids_of(graph, "node:Person") == {"ada"}
    graph.mutate("// no longer needed\nbranch delete two")
    assert graph.branches() == ["drafts/one", "main"]


def test_a_query_is_explained_by_a_statement(graph: Graph) -> None:
    text = "query q($a: I32) { match { $p: Person { age: $a } } return { $p.name } }"
    plan = "\n".join(row["plan"] for row in graph.query(f"explain {text}").to_pylist()) + "\n"
    assert plan == graph.explain(text)
    (first, *_) = graph.query("explain match { $p: Person } delete $p").to_pylist()
    assert first == {"plan": "mutation query()"}


@each_case(
    "text",
    [
        f"set engine = local; {INSERT}",
        f'// a note\nset engine = "x";\nreset ann_nprobes ; /* more */ {INSERT};',
        f"{INSERT} ;\n",
    ],
)
def test_settings_and_a_last_semicolon_do_nothing(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    graph = new_graph(tmp_path_factory.mktemp("settings"), "node Person { name: String @key }")
    assert graph.mutate(text).affected_nodes == 1


@each_case(
    ("text", "words"),
    [
        ("branch make x", "this is no statement about branches"),
        ("branch create", "this is no statement about branches"),
        ("branch create a b", "this is no statement about branches"),
        (f"set colour = 1; {INSERT}", "there is no setting `colour`"),
        (f"show engine; {INSERT}", "`show` is no statement"),
        (f"{INSERT}; {INSERT}", "found `;`"),
    ],
)
def test_other_statements_are_explained(text: str, words: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    graph = new_graph(tmp_path_factory.mktemp("wrong"), "node Person { name: String @key }")
    with refused(graph, CompilerError, words):
        graph.mutate(text)


def test_a_mistake_behind_settings_is_shown_at_its_place(graph: Graph) -> None:
    with pytest.raises(CompilerError) as caught:
        graph.query("set engine = local;\nmatch { $p: Person } return { $p.nam }")
    (found,) = caught.value.diagnostics
    assert (found.line, found.column) == (2, 31)


def test_a_statement_goes_to_the_call_that_it_belongs_to(graph: Graph) -> None:
    for text in ("branch list", "explain match { $p: Person } delete $p"):
        with refused(graph, QuerySelectionError, "run it with `query`"):
            graph.mutate(text)
    with refused(graph, QuerySelectionError, "run it with `mutate`"):
        graph.query("branch create x")


def test_a_statement_stands_alone(graph: Graph) -> None:
    with refused(graph, BadRequestError, "stands alone"):
        graph.mutate("branch create x", {"name": 1})
    with refused(graph, BadRequestError, "stands alone"):
        graph.mutate("branch create x", dry_run=True)


def test_a_receipt_says_what_happened_to_a_branch(graph: Graph) -> None:
    from omnigraph.cli.rendering import receipt_lines

    assert list(receipt_lines(graph.mutate("branch create x"))) == ["created branch x"]
    graph.mutate(INSERT, branch="x")
    (line,) = receipt_lines(graph.mutate("branch merge x"))
    assert line.startswith("merged into main in commit ")
    assert list(receipt_lines(graph.mutate("branch delete x"))) == ["deleted branch x"]
