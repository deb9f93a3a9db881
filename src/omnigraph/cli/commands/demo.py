"""`omnigraph demo`: the whole product on an example graph, step by step."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from omnigraph.cli.command_line import Argument
from omnigraph.cli.commands.data import load_lines
from omnigraph.cli.commands.history import branch_heads, head_labels, merge_lines
from omnigraph.cli.console import print_text, terminal_progress
from omnigraph.cli.rendering import diff_lines, draw_commits, receipt_lines
from omnigraph.cli.rows import RowForm, render_rows
from omnigraph.cli.scoped import scoped
from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from omnigraph.api.rows import Result
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.graph.graph import Graph

_EXAMPLE = "bibliography"
_BRANCH = "review"
_OTHER_BRANCH = "second-opinion"
#: A vector near papers about storage, as an embedding model would give it for a text.
_LIKE = [-0.32, -0.2, -0.3, 0.58, 0.35, -0.36, 0.42, -0.04]
_DANGLING = 'query dangling() { insert PartOf { from: "storage", to: "nowhere" } }'
_SET_STAGE = """
query set_stage($doi: String, $stage: String) { update Paper set { stage: $stage } where doi = $doi }
"""
#: A published paper, and two preprints.
_OLD, _NEW, _DISPUTED = ("10.0000/inkpress.2014.01", "10.0000/inkpress.2024.02", "10.0000/inkpress.2024.03")
_RETRACTED = """
query retracted() {
  match { $p: Paper { stage: "retracted" } }
  return { $p.doi as doi, $p.title as title }
  order { doi }
}
"""


@dataclass(slots=True)
class _Story:
    """Numbered steps with their times."""

    steps: int = 0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.steps += 1
        print_text(f"\n── {self.steps}. {title}")
        # Progress goes to another stream: what was said before should stand before it.
        sys.stdout.flush()
        begin = time.monotonic()
        yield
        print_text(f"   {time.monotonic() - begin:.1f} s")


@scoped("demo")
def demo(
    directory: Annotated[Path, Argument(metavar="DIR", help="where the graph is created; here, if left out")] = Path(),
) -> None:
    """Create a graph, load it through Spark, index and query it; branch, merge and look back.

    The graph stays: `demo.omni`, or `demo-2.omni` and so on where that exists.
    """
    begin = time.monotonic()
    root = free_place(directory)
    _tell(root, example_directory() / _EXAMPLE)
    print_text(f"\nall of it took {time.monotonic() - begin:.0f} s; the graph stays at {root}")
    print_text("\n".join(["\nwhat you can do now:", *(f"  {line}" for line in next_steps(root))]))


def free_place(directory: Path) -> Path:
    """The first of `demo.omni`, `demo-2.omni`, … that does not exist: a graph of an earlier run is kept."""
    names = ("demo.omni" if number == 1 else f"demo-{number}.omni" for number in count(1))
    return next(place for place in map(directory.joinpath, names) if not place.exists())


def next_steps(root: Path) -> list[str]:
    """Commands that work on the graph, as they can be typed where the demo was."""
    program = Path(sys.argv[0])
    # `make demo` runs the program of an environment that is not on the path.
    folder = "" if shutil.which("omnigraph") or program.name != "omnigraph" else f"{os.path.relpath(program.parent)}/"
    graph = shlex.quote(str(root))
    query = 'match { $p: Paper { stage: "retracted" } } return { $p.title }'
    return [
        f"{folder}omnigraph query {graph} -e '{query}'",
        f"{folder}omnigraph shell {graph}   # a prompt: `.help` lists its commands",
        f"{folder}omnigraph show {graph} --out demo.html",
        f"{folder}omnigraph-server --store {graph} --unauthenticated   # the page: http://127.0.0.1:8080/",
    ]


def _tell(root: Path, folder: Path) -> None:
    from omnigraph.graph.graph import Graph

    story = _Story()
    with story.step(f"init: a graph with the schema of the {_EXAMPLE}"):
        graph = Graph.init(root, folder / "schema.pg", actor="demo")
        pins = graph.snapshot().pins
        print_text(f"   {len(pins)} types, each its own Lance dataset: {', '.join(sorted(pins))}")
    with graph:
        _load(story, graph, folder)
        _ask(story, graph, folder)
        _branch_and_merge(story, graph)
        _disagree(story, graph)
        _look_back(story, graph)


def _load(story: _Story, graph: Graph, folder: Path) -> None:
    with story.step("load: JSON lines through Spark, validated, one commit"):
        receipt = graph.load(
            folder / "data.jsonl", mode="append", actor="demo", engine="spark", progress=terminal_progress()
        )
        print_text(_indented("\n".join(load_lines(receipt))))
    with story.step("refused: an edge to a node that does not exist; nothing is written"):
        try:
            graph.mutate(_DANGLING)
        except BadRequestError as refusal:
            print_text(f"   {refusal}")
    with story.step("indexes: everything that the schema declares"):
        report = graph.ensure_indices(actor="demo")
        names = [name for item in report.built for name in item.names]
        print_text(f"   built {len(names)} indexes: {', '.join(names)}")


def _ask(story: _Story, graph: Graph, folder: Path) -> None:
    from omnigraph.lang.query.compiler import read_queries

    queries = read_queries(folder / "queries.gq")
    with story.step("query: two or three citations away, on one topic (traversal)"):
        params = {"doi": "10.0000/corax.2023.01", "topic": "storage"}
        _show(graph.query(queries, params, name="background_reading"))
    with story.step("query: text and vector ranked together (hybrid search)"):
        wanted = {"text": "compaction cost", "like": _LIKE, "keyword": "compaction"}
        _show(graph.query(queries, wanted, name="hybrid"))


def _branch_and_merge(story: _Story, graph: Graph) -> None:
    with story.step(f"branch: one change on `{_BRANCH}`, another one on main"):
        graph.create_branch(_BRANCH, actor="reviewer")
        _set_stage(graph, _OLD, "retracted", branch=_BRANCH, actor="reviewer")
        _set_stage(graph, _NEW, "accepted", branch="main", actor="demo")
    with story.step(f"diff: changes between main and `{_BRANCH}`"):
        diff = graph.diff("main", _BRANCH)
        print_text(_indented("\n".join(diff_lines(diff, "main", _BRANCH))))
    with story.step("merge: main keeps its change and gets the other one, in one commit"):
        receipt = graph.merge(_BRANCH, actor="reviewer")
        print_text(_indented("\n".join(merge_lines(receipt))))


def _disagree(story: _Story, graph: Graph) -> None:
    with story.step("conflict: the same paper, changed on both sides; shown before anything is merged"):
        graph.create_branch(_OTHER_BRANCH, actor="reader")
        _set_stage(graph, _DISPUTED, "retracted", branch=_OTHER_BRANCH, actor="reader")
        _set_stage(graph, _DISPUTED, "published", branch="main", actor="demo")
        preview = graph.merge(_OTHER_BRANCH, dry_run=True)
        print_text(_indented("\n".join(merge_lines(preview))))


def _look_back(story: _Story, graph: Graph) -> None:
    with story.step("history: who did what"):
        commits = graph.log()
        drawing = draw_commits(commits, head_labels(branch_heads(graph)), _describe)
        print_text(_indented("\n".join(drawing)))
    with story.step("time travel: retracted papers on main before the merge, and now"):
        merge = next(commit for commit in commits if commit.merged_parent_id is not None)
        _show(graph.query(_RETRACTED, snapshot=merge.parent_id))
        _show(graph.query(_RETRACTED))
    with story.step("delete: one branch was merged, the other one is given up"):
        for name in (_BRANCH, _OTHER_BRANCH):
            graph.delete_branch(name, actor="demo")
        print_text(f"   branches: {', '.join(graph.branches())}")


def _set_stage(graph: Graph, doi: str, stage: str, *, branch: str, actor: str) -> None:
    changed = graph.mutate(_SET_STAGE, {"doi": doi, "stage": stage}, branch=branch, actor=actor)
    print_text(f"   {stage} {doi}: {'; '.join(receipt_lines(changed))}")


def _describe(commit: GraphCommit) -> str:
    actor = commit.actor or "an unnamed actor"
    return f"{commit.commit_id} {commit.kind} on {commit.branch} by {actor}"


def _show(result: Result) -> None:
    print_text(_indented("\n".join(render_rows(result, RowForm()))))


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def example_directory() -> Path:
    """The directory of the example graphs: inside an installed package, or beside the sources of a checkout.

    Raises:
        InputFileError: they are in neither place.
    """
    package = Path(__file__).parents[2]
    for candidate in (package / "examples", package.parents[1] / "examples"):
        if candidate.is_dir():
            return candidate
    raise InputFileError("examples", "the example graphs are not installed")
