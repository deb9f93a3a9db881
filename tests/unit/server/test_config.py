"""The configuration file of a server: what it means, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import MAX_DIAGNOSTICS, BadRequestError, CompilerError, ConfigurationError, InputFileError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.server.config import QuerySource, ServerConfig, read_config, single_graph
from omnigraph.server.stored_queries import BUILT_IN_TOOLS, StoredQueries, check_files

QUERY = "query all() { match { $p: Paper } return { $p.doi } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    for name in ("b.gq", "a.gq", "notes.txt"):
        (tmp_path / "queries" / name).write_text(QUERY)
    (tmp_path / "policy.yaml").write_text("version: 1")
    return tmp_path


def _read(folder: Path, text: str) -> ServerConfig:
    path = folder / "serve.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_paths_are_relative_to_the_file(folder: Path) -> None:
    config = _read(
        folder,
        """
        policy: policy.yaml
        graphs:
          papers: {store: papers.omni, queries: queries, policy: policy.yaml}
          apart: {store: "s3://bucket/apart.omni/", external_blobs: ["s3://scans/x"]}
        """,
    )
    apart, papers = config.graphs
    assert config.policy == folder / "policy.yaml"
    assert (papers.graph_id, papers.store) == ("papers", str(folder / "papers.omni"))
    assert papers.queries == (QuerySource(folder / "queries" / "a.gq"), QuerySource(folder / "queries" / "b.gq"))
    assert papers.policy == folder / "policy.yaml"
    assert papers.external_blobs is None
    assert apart.store == "s3://bucket/apart.omni"
    assert apart.external_blobs == ("s3://scans/x",)


@pytest.mark.parametrize(
    ("queries", "sources"),
    [
        ("queries/a.gq", [("a.gq", None, None)]),
        ("[queries/b.gq, queries/a.gq]", [("b.gq", None, None), ("a.gq", None, None)]),
        ("{all: queries/a.gq}", [("a.gq", "all", None)]),
        ("{all: {file: queries/a.gq, tool_name: list-all}}", [("a.gq", "all", "list-all")]),
    ],
)
def test_queries_are_given_in_several_ways(
    folder: Path, queries: str, sources: list[tuple[str, str | None, str | None]]
) -> None:
    config = _read(folder, f"graphs: {{g: {{store: g.omni, queries: {queries}}}}}")
    assert config.graph().queries == tuple(
        QuerySource(folder / "queries" / file, name, tool) for file, name, tool in sources
    )


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "the file is a mapping, not nothing"),
        ("policy: policy.yaml", (1, 1), "the file has no `graphs`"),
        ("graphs: {}", (1, 9), "`graphs` names no graph"),
        ("graphs:\n  g: {}", (2, 6), "graph `g` has no `store`"),
        ("graphs:\n  g: {store: x, stor: y}", (2, 17), "`stor` is not a key of graph `g`"),
        ("graphs: {g: {store: x}}\ngraph: 1", (2, 1), "`graph` is not a key of the file"),
        ("graphs:\n  g: {store: x}\n  g: {store: y}", (3, 3), "the key `g` is given twice"),
        ("graphs:\n  a_b: {store: x}", (2, 3), "`a_b` is not a graph id"),
        ("graphs:\n  ../x: {store: x}", (2, 3), "`../x` is not a graph id"),
        (f"graphs:\n  {'g' * 65}: {{store: x}}", (2, 3), "is not a graph id"),
        ("graphs:\n  healthz: {store: x}", (2, 3), "`healthz` is reserved"),
        ("graphs:\n  g: {store: 3}", (2, 14), "`store` is a text, not the value `3`"),
        ("graphs:\n  g: {store: 'http://x/y'}", (2, 14), "http:// is not supported"),
        ("graphs:\n  g: {store: x, queries: none}", (2, 26), "no such file or directory"),
        ("graphs:\n  g: {store: x, queries: [none]}", (2, 27), "there is no file"),
        ("graphs:\n  g: {store: x, queries: {Up: queries/a.gq}}", (2, 27), "the name of a query"),
        ("graphs:\n  g: {store: x, queries: {all: {}}}", (2, 32), "query `all` has no `file`"),
        ("graphs:\n  g: {store: x, policy: none}", (2, 25), "there is no file"),
        ("graphs:\n  g: {store: x, policy: queries}", (2, 25), "there is no file"),
        ('graphs:\n  g: {store: x, policy: "a\\0b"}', (2, 25), "there is no file"),
        ("graphs:\n  g: {store: x, external_blobs: s3://a}", (2, 33), "`external_blobs` is a list"),
        ("graphs:\n  g: {store: x, external_blobs: [ftp://a]}", (2, 34), "it is not an address"),
        ("graphs:\n  g: {store: x}\n  h: {store: ./q/../x}", (3, 14), "`g` is in the same store"),
        ("policy: none\ngraphs:\n  g: {store: x}", (1, 9), "there is no file"),
    ],
)
def test_a_mistake_is_refused_at_its_place(folder: Path, text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _read(folder, text)
    (finding,) = raised.value.diagnostics
    assert message in finding.message
    assert (finding.line, finding.column) == place
    assert finding.file == str(folder / "serve.yaml")


def test_a_tool_name_that_agents_refuse_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="1 to 64 letters"):
        _read(folder, "graphs: {g: {store: x, queries: {all: {file: queries/a.gq, tool_name: a b}}}}")


def test_all_mistakes_of_a_file_are_reported_at_once(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _read(folder, "graphs:\n  a_b: {policy: none}\n  g: {store: x}\n  h: {store: x}\nmore: 1")
    assert [(item.line, item.column) for item in raised.value.diagnostics] == [(2, 3), (2, 8), (2, 17), (4, 14), (5, 1)]


def test_a_link_to_a_store_is_the_same_store(folder: Path) -> None:
    (folder / "papers.omni").mkdir()
    (folder / "link.omni").symlink_to(folder / "papers.omni")
    with pytest.raises(ConfigurationError, match="`g` is in the same store"):
        _read(folder, "graphs: {g: {store: papers.omni}, h: {store: link.omni}}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"none\.yaml"):
        read_config(tmp_path / "none.yaml")


def test_a_single_graph_needs_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    config = single_graph("papers.omni", queries="queries", policy="policy.yaml")
    graph = config.graph("default")
    assert graph.store == str(folder / "papers.omni")
    assert len(graph.queries) == 2
    assert graph.policy == Path("policy.yaml")


def test_a_single_graph_is_checked_as_in_a_file(folder: Path) -> None:
    with pytest.raises(BadRequestError, match="reserved"):
        single_graph("papers.omni", "graphs")
    with pytest.raises(InputFileError, match="none"):
        single_graph("papers.omni", queries=folder / "none")
    with pytest.raises(InputFileError, match="none"):
        single_graph("papers.omni", policy=folder / "none")


def test_a_graph_is_chosen_by_id_or_because_it_is_the_only_one(folder: Path) -> None:
    config = _read(folder, "graphs: {b: {store: b.omni}, a: {store: a.omni}}")
    assert config.graph("b").graph_id == "b"
    with pytest.raises(BadRequestError, match="there are 2 graphs, name one: a, b"):
        config.graph()
    with pytest.raises(BadRequestError, match="there is no graph `c` here, only a, b"):
        config.graph("c")


# ---- Stored queries: reading, describing and checking them


CATALOG = compile_schema("node Paper { doi: String @key  year: I32?  scan: Blob?  vec: Vector(2)? }").catalog
READ = """
// Papers of a year.
query by_year($y: I32)
  @description("Papers of one year.")
  @instruction("Give the year with four digits.")
{ match { $p: Paper { year: $y } } return { $p.doi } }
"""
WRITE = "query add($doi: String, $year: I32?) { insert Paper { doi: $doi, year: $year } }"


def _file(folder: Path, text: str, name: str = "queries.gq") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_stored_query_carries_what_its_declaration_says(tmp_path: Path) -> None:
    queries = StoredQueries.read([_file(tmp_path, READ + WRITE)])
    assert [query.name for query in queries] == ["add", "by_year"]
    assert queries.to_json() == [
        {
            "name": "add",
            "tool_name": "add",
            "mutation": True,
            "params": [
                {"name": "doi", "kind": "string", "nullable": False},
                {"name": "year", "kind": "int", "nullable": True},
            ],
        },
        {
            "name": "by_year",
            "tool_name": "by_year",
            "description": "Papers of one year.",
            "instruction": "Give the year with four digits.",
            "mutation": False,
            "params": [{"name": "y", "kind": "int", "nullable": False}],
        },
    ]


def test_the_source_of_a_stored_query_is_its_declaration_alone(tmp_path: Path) -> None:
    queries = StoredQueries.read([_file(tmp_path, READ + WRITE)])
    query = queries.get("by_year")
    assert query is not None
    assert compile_query(query.source, CATALOG).name == "by_year"
    assert "insert" not in query.source.text
    assert str(tmp_path) not in query.source.name
    assert queries.get("nothing") is None


def test_a_directory_gives_the_queries_of_all_its_files(tmp_path: Path) -> None:
    _file(tmp_path, READ, "b.gq")
    _file(tmp_path, WRITE, "a.gq")
    _file(tmp_path, "no query at all", "README.md")
    assert [query.name for query in StoredQueries.read([tmp_path])] == ["add", "by_year"]


def test_of_a_named_source_only_that_query_is_stored(tmp_path: Path) -> None:
    path = _file(tmp_path, READ + WRITE)
    (query,) = StoredQueries.read([QuerySource(path, "add", "add-paper")])
    assert (query.name, query.tool_name) == ("add", "add-paper")


def test_a_name_that_two_files_declare_is_refused_at_both_places(tmp_path: Path) -> None:
    first, second = _file(tmp_path, WRITE, "a.gq"), _file(tmp_path, READ + WRITE, "b.gq")
    with pytest.raises(CompilerError) as raised:
        StoredQueries.read([first, second])
    (finding,) = raised.value.diagnostics
    assert (finding.code, finding.file, finding.line) == ("Q101", str(second), 7)
    assert finding.hint == f"the other one is in {first}, line 1"


def test_a_query_that_is_not_in_its_file_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, WRITE)
    with pytest.raises(CompilerError, match=r"holds no query `ad`\n.*\n.*\n.*did you mean `add`"):
        StoredQueries.read([QuerySource(path, "ad")])
    with pytest.raises(InputFileError, match="none"):
        StoredQueries.read([tmp_path / "none"])


def test_everything_wrong_before_a_schema_is_known_is_reported_at_once(tmp_path: Path) -> None:
    broken = _file(tmp_path, "query a( { }\n" + WRITE, "broken.gq")
    twice = _file(tmp_path, WRITE + '\nquery b($x: Int) @description(" ") { delete Paper where doi = $x }', "t.gq")
    with pytest.raises(CompilerError) as raised:
        StoredQueries.read([broken, twice])
    assert raised.value.codes == ("Q000", "Q101", "Q105", "Q116")


def test_queries_that_fit_the_schema_pass(tmp_path: Path) -> None:
    report = StoredQueries.read([_file(tmp_path, READ + WRITE)]).check(CATALOG)
    assert report.to_json() == {"ok": True, "breakages": [], "warnings": []}


def test_every_query_that_does_not_fit_the_schema_is_a_breakage(tmp_path: Path) -> None:
    text = """
query a() { match { $p: Papr } return { $p.doi } }
query b() { match { $p: Paper } return { $p.titel } }
query c() { match { $p: Paper } return { $p.doi } }
query d() { insert Paper { doi: "1" } delete Paper where doi = "1" }
"""
    report = StoredQueries.read([_file(tmp_path, text)]).check(CATALOG)
    assert not report.ok
    found = [(item.query, item.diagnostic.code, item.diagnostic.line) for item in report.breakages]
    assert found == [("a", "T1", 2), ("b", "T6", 3), ("d", "D2", 5)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "query near($v: Vector(2)) { match { $p: Paper } return { $p.doi } order { nearest($p.vec, $v) } limit 3 }",
            "R201",
        ),
        (f"query {'q' * 65}() {{ match {{ $p: Paper }} return {{ $p.doi }} }}", "R202"),
    ],
    ids=["a vector parameter", "a name too long for some agents"],
)
def test_what_some_agents_cannot_use_is_a_warning(tmp_path: Path, text: str, code: str) -> None:
    report = StoredQueries.read([_file(tmp_path, text)]).check(CATALOG)
    assert report.ok
    (warning,) = report.to_json()["warnings"]
    assert (warning["query"], warning["code"], warning["severity"]) == (text.split("(")[0][6:], code, "warning")


def test_two_queries_with_one_tool_name_are_a_breakage(tmp_path: Path) -> None:
    path = _file(tmp_path, READ + WRITE)
    sources = [QuerySource(path, "add", "papers"), QuerySource(path, "by_year", "papers")]
    report = StoredQueries.read(sources).check(CATALOG)
    assert [(item.query, item.diagnostic.code) for item in report.breakages] == [("by_year", "R102")]


@pytest.mark.parametrize("tool", sorted(BUILT_IN_TOOLS))
def test_the_name_of_a_built_in_tool_is_a_breakage_until_it_gets_another(tmp_path: Path, tool: str) -> None:
    text = f"query {tool}() {{ match {{ $p: Paper }} return {{ $p.doi }} }}"
    path = _file(tmp_path, text)
    report = StoredQueries.read([path]).check(CATALOG)
    assert [item.diagnostic.code for item in report.breakages] == ["R103"]
    assert StoredQueries.read([QuerySource(path, tool, "another")]).check(CATALOG).ok


def test_one_report_holds_what_reading_and_checking_find(tmp_path: Path) -> None:
    text = "query a( { }\nquery b() { match { $p: Papr } return { $p.doi } }"
    report = check_files([_file(tmp_path, text)], CATALOG)
    found = [(item.query, item.diagnostic.code) for item in report.breakages]
    assert found == [(None, "Q000"), ("b", "T1")]
    assert "queries.gq:2:25: T1: " in str(report.breakages[1])


def test_breakages_beyond_those_that_are_listed_are_counted(tmp_path: Path) -> None:
    wrong = " ".join(f"$p.nothing{number} = 1" for number in range(MAX_DIAGNOSTICS + 2))
    _file(tmp_path, f"query wide() {{ match {{ $p: Paper {wrong} }} return {{ $p }} }}", "a.gq")
    broken = _file(tmp_path, "query q() { match }\n" * (MAX_DIAGNOSTICS + 3), "b.gq")
    report = check_files([tmp_path], CATALOG)
    assert len(report.breakages) == 2 * MAX_DIAGNOSTICS
    assert report.total == report.to_json()["breakage_total"] == 2 * MAX_DIAGNOSTICS + 5
    with pytest.raises(CompilerError) as failure:
        StoredQueries.read([broken])
    assert failure.value.total == MAX_DIAGNOSTICS + 3


def test_a_file_of_bytes_is_a_breakage(tmp_path: Path) -> None:
    path = tmp_path / "queries.gq"
    path.write_bytes(b"\xff\xfe")
    assert [item.query for item in check_files([path], CATALOG).breakages] == [None]


@pytest.mark.parametrize(
    ("body", "destructive"),
    [
        ("match { $p: Paper } return { $p.doi }", False),
        ('insert Paper { doi: "1" }', False),
        ('insert Paper { doi: "1" } update Paper set { year: 3 } where doi = "1"', True),
        ('delete Paper where doi = "1"', True),
    ],
)
def test_only_what_adds_and_nothing_else_is_not_destructive(tmp_path: Path, body: str, destructive: bool) -> None:
    (query,) = StoredQueries.read([_file(tmp_path, f"query q() {{ {body} }}")])
    assert query.is_destructive is destructive
