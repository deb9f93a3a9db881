"""The configuration file of a server: what it means, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError, ConfigurationError, InputFileError
from omnigraph.server.config import QuerySource, ServerConfig, read_config, single_graph

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
    assert papers.queries == (
        QuerySource(folder / "queries" / "a.gq"),
        QuerySource(folder / "queries" / "b.gq"),
    )
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
        ("graphs:\n  g: {store: x, stor: y}", (2, 17), "`stor` is no key of graph `g`"),
        ("graphs: {g: {store: x}}\ngraph: 1", (2, 1), "`graph` is no key of the file"),
        ("graphs:\n  g: {store: x}\n  g: {store: y}", (3, 3), "the key `g` is given twice"),
        ("graphs:\n  a_b: {store: x}", (2, 3), "`a_b` is no graph id"),
        ("graphs:\n  ../x: {store: x}", (2, 3), "`../x` is no graph id"),
        (f"graphs:\n  {'g' * 65}: {{store: x}}", (2, 3), "is no graph id"),
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
def test_a_mistake_is_refused_at_its_place(
    folder: Path, text: str, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _read(folder, text)
    (finding,) = raised.value.diagnostics
    assert message in finding.message
    assert (finding.line, finding.column) == place
    assert finding.file == str(folder / "serve.yaml")


def test_a_tool_name_that_agents_refuse_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="1 to 64 letters"):
        _read(
            folder,
            "graphs: {g: {store: x, queries: {all: {file: queries/a.gq, tool_name: a b}}}}",
        )


def test_all_mistakes_of_a_file_are_reported_at_once(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _read(folder, "graphs:\n  a_b: {policy: none}\n  g: {store: x}\n  h: {store: x}\nmore: 1")
    assert [(item.line, item.column) for item in raised.value.diagnostics] == [
        (2, 3),
        (2, 8),
        (2, 17),
        (4, 14),
        (5, 1),
    ]


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
