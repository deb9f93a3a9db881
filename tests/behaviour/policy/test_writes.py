"""The policy inside the engine: every write asks first, and one that is refused leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omnigraph.core.failpoints import VARIABLE, Failpoint, FailpointError, reset
from omnigraph.errors import BadRequestError, ConfigurationError, PolicyDeniedError, RecoveryRequiredError
from omnigraph.graph.graph import Graph
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.policy.policy import READ_ONLY, Policy, PolicyGate

SCHEMA = 'node Paper { doi: String @key  title: String?  vec: Vector(4)? @embed("title") }'
WIDER = 'node Paper { doi: String @key  title: String?  year: I32?  vec: Vector(4)? @embed("title") }'
ADD = "query add($doi: String) { insert Paper { doi: $doi } }"

POLICY = """
version: 1
groups: { curators: [nadia], owners: [olga], editors: [emil], readers: [bot], writers: [nadia, olga, emil] }
protected_branches: [main]
rules:
  - id: drafts
    allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
  - id: new-drafts
    allow: { actors: { group: curators }, actions: [branch_create], target_branch_scope: unprotected }
  - id: publish
    allow: { actors: { group: curators }, actions: [branch_merge], target_branch_scope: protected }
  - id: edit
    allow: { actors: { group: editors }, actions: [change] }
  - id: own
    allow:
      actors: { group: owners }
      actions: [change, schema_apply, branch_create, branch_delete, branch_merge, admin]
  - id: look
    allow: { actors: { group: readers }, actions: [read, export] }
  - id: writers-look
    allow: { actors: { group: writers }, actions: [read] }
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a branch `draft` that is one paper ahead."""
    root = tmp_path_factory.mktemp("policy") / "papers.omni"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        with Graph.init(root, SCHEMA) as graph:
            graph.create_branch("draft")
            graph.mutate(ADD, {"doi": "10.1"}, branch="draft")
    (root.parent / "more.jsonl").write_text('{"type": "Paper", "data": {"doi": "10.9"}}\n', "utf-8")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(made.parent, tmp_path / "own")
    return tmp_path / "own" / made.name


@pytest.fixture
def graph(root: Path) -> Iterator[Graph]:
    with Graph.open(root, policy=Policy.from_text(POLICY)) as opened:
        yield opened


def traces(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def mutate(graph: Graph, actor: str | None, branch: str = "main") -> object:
    return graph.mutate(ADD, {"doi": "10.2"}, branch=branch, actor=actor)


def load(graph: Graph, actor: str | None, **options: Any) -> Any:
    lines = graph.uri.removeprefix("file://").rpartition("/")[0] + "/more.jsonl"
    return graph.load(lines, mode="merge", engine="local", actor=actor, **options)


WRITES: dict[str, Any] = {
    "mutate": mutate,
    "conditional": lambda g, a: g.mutate(ADD, {"doi": "x"}, actor=a, if_commit=g.commits()[0].commit_id),
    "load": load,
    "dry load": partial(load, dry_run=True),
    "forking load": partial(load, branch="new", base="main"),
    "create": lambda g, a: g.create_branch("new", actor=a),
    "create at a commit": lambda g, a: g.create_branch("new", g.commits()[0].commit_id, actor=a),
    "delete": lambda g, a: g.delete_branch("draft", actor=a),
    "merge": lambda g, a: g.merge("draft", engine="local", actor=a),
    "dry merge": lambda g, a: g.merge("draft", engine="local", dry_run=True, actor=a),
    "merge and delete": lambda g, a: g.merge("draft", engine="local", delete_branch=True, actor=a),
    "schema": lambda g, a: g.apply_schema(WIDER, engine="local", actor=a),
    "embed": lambda g, a: g.embed(engine="local", actor=a),
    "dry embed": lambda g, a: g.embed(engine="local", dry_run=True, actor=a),
    "indexes": lambda g, a: g.ensure_indices(actor=a),
    "optimize": lambda g, a: g.optimize(engine="local", actor=a),
    "repair": lambda g, a: g.repair(actor=a),
    "confirmed repair": lambda g, a: g.repair(confirm=True, actor=a),
    "confirmed cleanup": lambda g, a: g.cleanup(keep=3, confirm=True, actor=a),
}


def test_a_denied_write_leaves_no_trace(graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenGraph, "heal", lambda _: pytest.fail("a refused write heals nothing"))
    before = traces(root)
    for name, write in WRITES.items():
        for actor in ("bot", "stranger", "", None):
            with pytest.raises(PolicyDeniedError) as denied:
                write(graph, actor)
            assert denied.value.actor == actor, name
    assert traces(root) == before


@pytest.mark.parametrize("name", [n for n in WRITES if n not in ("schema", "conditional")])
def test_an_allowed_write_happens(graph: Graph, name: str) -> None:
    WRITES[name](graph, "olga")


def test_an_allowed_schema_change_happens(graph: Graph) -> None:
    graph.delete_branch("draft", actor="olga")
    assert graph.apply_schema(WIDER, engine="local", actor="olga").applied


def test_scopes_are_about_the_right_branch(graph: Graph) -> None:
    mutate(graph, "nadia", branch="draft")
    load(graph, "nadia", branch="draft")
    with pytest.raises(PolicyDeniedError, match="may not change branch `main`, which is protected"):
        mutate(graph, "nadia")
    for spelling in (" main", "main\n"):
        with pytest.raises(PolicyDeniedError, match="protected"):
            mutate(graph, "nadia", branch=spelling)
    with pytest.raises(PolicyDeniedError, match="merge branch `main` into branch `draft`"):
        graph.merge("main", "draft", engine="local", actor="nadia")
    assert graph.merge("draft", engine="local", actor="nadia").commit is not None


BLIND = """
version: 1
groups: { blind: [blind], half: [half], drafts: [drafts] }
protected_branches: [main]
rules:
  - id: work
    allow: { actors: { group: blind }, actions: [change, branch_create, branch_merge] }
  - id: half-works
    allow: { actors: { group: half }, actions: [branch_create, branch_merge] }
  - id: half-reads
    allow: { actors: { group: half }, actions: [read], branch_scope: protected }
  - id: drafts-work
    allow: { actors: { group: drafts }, actions: [branch_create] }
  - id: drafts-read
    allow: { actors: { group: drafts }, actions: [read], branch_scope: unprotected }
"""


def test_what_is_branched_or_merged_must_be_readable(root: Path) -> None:
    with Graph.open(root, policy=Policy.from_text(BLIND)) as graph:
        on_draft, *_, on_main = (commit.commit_id for commit in graph.commits("draft"))
        refused: dict[str, Any] = {
            "create": lambda: graph.create_branch("new", actor="blind"),
            "create at a commit": lambda: graph.create_branch("new", on_draft, actor="half"),
            "forking load": lambda: load(graph, "blind", branch="new", base="main"),
            "match of a mutation": lambda: graph.mutate(
                "match { $p: Paper } update $p set { title: $p.doi }", actor="blind"
            ),
            "rows of a mutation": lambda: graph.mutate(
                'insert Paper { doi: "1" } as $p return { $p.doi }', actor="blind"
            ),
            "preview of a mutation": lambda: graph.mutate(ADD, {"doi": "1"}, actor="blind", dry_run=True),
            "merge": lambda: graph.merge("draft", engine="local", actor="blind"),
            "merge of a hidden source": lambda: graph.merge("draft", engine="local", actor="half"),
            "merge into a hidden target": lambda: graph.merge(
                "main", "draft", engine="local", dry_run=True, actor="half"
            ),
        }
        for name, work in refused.items():
            with pytest.raises(PolicyDeniedError, match="may not read") as denied:
                work()
            assert denied.value.action == "read", name
        assert graph.branches() == ["draft", "main"]
        assert graph.create_branch("of-main", actor="half").name == "of-main"
        assert graph.create_branch("of-past", on_main, actor="drafts").name == "of-past"


def test_a_load_that_forks_needs_both_rights(graph: Graph) -> None:
    with pytest.raises(PolicyDeniedError) as denied:
        load(graph, "emil", branch="new", base="main")
    assert (denied.value.action, denied.value.branch, denied.value.target_branch) == ("branch_create", "main", "new")
    assert graph.branches() == ["draft", "main"]
    assert not load(graph, "emil", branch="draft", base="main").branch_created
    assert load(graph, "nadia", branch="new", base="main").branch_created


def test_a_branch_that_goes_away_meanwhile_is_not_made_again_without_the_right(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_deletes_it(_: Graph) -> None:
        monkeypatch.undo()
        with Graph.open(root) as other:
            other.delete_branch("draft")

    monkeypatch.setattr(OpenGraph, "heal", somebody_deletes_it)
    with pytest.raises(PolicyDeniedError, match="may not create branch `draft`"):
        load(graph, "emil", branch="draft", base="main")
    assert graph.branches() == ["main"]


def test_a_merge_happens_although_its_source_may_not_be_deleted(graph: Graph) -> None:
    result = graph.merge("draft", engine="local", delete_branch=True, actor="nadia")
    assert result.commit is not None
    assert result.branch_deleted is False
    assert result.branch_delete_error == ("actor `nadia` may not delete branch `draft`: no rule allows it")
    assert "draft" in graph.branches()


def test_a_refusal_is_told_before_anything_about_the_graph(graph: Graph) -> None:
    """Whoever may not delete branches does not learn which ones exist."""
    with pytest.raises(PolicyDeniedError):
        graph.delete_branch("nothing-there", actor="bot")
    with pytest.raises(PolicyDeniedError):
        mutate(graph, "bot", branch="nothing-there")


def _fail(*_: object) -> None:
    raise FailpointError(Failpoint.BEFORE_RESTORE)


def test_what_a_dead_writer_left_is_settled_by_the_next_allowed_write_whoever_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset()
    gate = PolicyGate(Policy.from_text(POLICY))
    with Graph.open(root, policy=gate) as graph:
        with monkeypatch.context() as patch:
            # It fails, and cannot clean up behind itself: as if it had died.
            patch.setenv(VARIABLE, "before_publish=raise")
            patch.setattr("omnigraph.commit.attempt.settle", _fail)
            with pytest.raises(RecoveryRequiredError):
                mutate(graph, "olga")
        assert graph.pending_recoveries()
        before = traces(root)
        with pytest.raises(PolicyDeniedError):
            mutate(graph, "nadia")
        assert traces(root) == before
        graph.mutate(ADD, {"doi": "10.5"}, branch="draft", actor="nadia")
        assert not graph.pending_recoveries()
        assert graph.entity_at("node:Paper", "10.2") is not None


def test_a_gate_is_obeyed_as_soon_as_it_has_another_policy(root: Path) -> None:
    gate = PolicyGate(Policy.from_text(POLICY))
    with Graph.open(root, policy=gate) as graph:
        mutate(graph, "olga")
        gate.replace(READ_ONLY)
        with pytest.raises(PolicyDeniedError):
            graph.delete_branch("draft", actor="olga")


def test_a_policy_is_given_as_a_path_too(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, "utf-8")
    with Graph.open(root, policy=path) as graph, pytest.raises(PolicyDeniedError):
        mutate(graph, "bot")
    path.write_text("version: 7", "utf-8")
    with pytest.raises(ConfigurationError, match=r"policy\.yaml:1:10"):
        Graph.open(root, policy=str(path))


def test_a_policy_about_a_server_is_refused(root: Path) -> None:
    policy = Policy.from_text("""
version: 1
groups: { all: [ada] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
""")
    with pytest.raises(BadRequestError, match="about a server"):
        Graph.open(root, policy=policy)


def test_a_graph_is_created_only_by_who_may_give_it_a_schema(tmp_path: Path) -> None:
    policy = Policy.from_text(POLICY)
    for actor in ("nadia", None):
        with pytest.raises(PolicyDeniedError):
            Graph.init(tmp_path / "new.omni", SCHEMA, actor=actor, policy=policy)
        assert list(tmp_path.iterdir()) == []
    with Graph.init(tmp_path / "new.omni", SCHEMA, actor="olga", policy=policy) as graph:
        assert graph.commits()[0].actor == "olga"


def test_a_preview_of_a_cleanup_asks_nobody(graph: Graph) -> None:
    assert not graph.cleanup(keep=3).confirmed


def test_reads_of_an_open_graph_ask_nobody(graph: Graph) -> None:
    assert graph.query("query q() { match { $p: Paper } return { $p.doi } }").to_pylist() == []
    assert graph.branches() == ["draft", "main"]
