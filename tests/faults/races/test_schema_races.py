"""Schema changes beside writers, readers, branches, other changes and maintenance: one order, nothing lost or mixed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit import attempt, schema_change
from omnigraph.core.failpoints import Failpoint
from omnigraph.errors import (
    BranchesExistError,
    CompilerError,
    ConflictError,
    ReadSetConflictError,
    SchemaViolationsError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.lease import Tenure
from support.races.jobs import (
    ADD_NOTE,
    ADD_PERSON,
    DELETE_PERSON,
    ENGLISH,
    SCHEMA,
    SET_VISITS,
    WITH_LANGUAGE,
    overtaken,
    with_lock,
)

READ_OLD = "query all() { match { $n: Note } return { $n.text as text } }"
READ_NEW = "query all() { match { $n: Note } return { $n.text as text, $n.lang as lang } }"
RENAMED = SCHEMA.replace("node Note {", 'node Remark @rename_from("Note") {')
WITHOUT_VISITS = SCHEMA.replace("  visits: I64? }", " }")


def change(graph: Graph, schema: str = WITH_LANGUAGE, **options: Any) -> Any:
    if schema == WITH_LANGUAGE:
        options.setdefault("backfill", ENGLISH)
    return graph.apply_schema(schema, engine="local", **options)


def notes(graph: Graph) -> dict[str, str | None]:
    """Every note with its language; each must be there once."""
    rows = graph.query(READ_NEW).to_pylist()
    found = {row["text"]: row["lang"] for row in rows}
    assert len(found) == len(rows)
    return found


def check_heads_and_files(root: Path) -> None:
    """Nothing is left of a change that did not happen, or of one that did."""
    assert list(root.glob("*.staging")) == []
    assert list((root / "__recovery").glob("*")) == []
    with Graph.open(root, read_only=True) as graph:
        known = {pin.location for pin in graph.snapshot().pins.values()}
        found = {f"{kind}/{path.name}" for kind in ("nodes", "edges") for path in root.glob(f"{kind}/*")}
    assert found == known


@pytest.fixture
def graph(root: Path) -> Iterator[Graph]:
    with Graph.open(root) as opened:
        for text in ("one", "two"):
            opened.mutate(ADD_NOTE, {"text": text})
        opened.mutate(ADD_PERSON, {"name": "ann"})
        yield opened


# ---- a change that is overtaken


def test_a_change_that_is_overtaken_by_an_insert_fills_the_new_row_too(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "three"}))
    assert change(late).applied
    assert notes(graph) == {"one": "en", "two": "en", "three": "en"}
    graph.mutate(ADD_NOTE, {"text": "four"})
    assert notes(graph)["four"] is None
    assert graph.recoveries() == []


def test_a_change_that_is_overtaken_by_a_delete_does_not_bring_the_row_back(graph: Graph) -> None:
    delete = 'query drop() { delete Note where text = "one" }'
    late = overtaken(graph, lambda other: other.mutate(delete))
    assert change(late).applied
    assert notes(graph) == {"two": "en"}


def test_a_rule_is_held_against_rows_that_came_meanwhile(graph: Graph, root: Path) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "one"}))
    before = graph.schema
    with pytest.raises(SchemaViolationsError):
        change(late, SCHEMA.replace("{ text: String }", "{ text: String @unique }"))
    assert graph.schema == before
    check_heads_and_files(root)


def test_the_same_change_made_by_somebody_else_meanwhile_is_a_no_op(graph: Graph) -> None:
    late = overtaken(graph, change)
    result = change(late)
    assert (result.applied, result.commit) == (False, None)
    assert [commit.kind for commit in graph.commits()].count("schema_apply") == 1
    assert notes(graph) == {"one": "en", "two": "en"}


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_a_change_never_takes_back_what_another_one_brought_meanwhile(graph: Graph, allow_data_loss: bool) -> None:
    late = overtaken(graph, change)
    other = SCHEMA.replace("{ text: String }", "{ text: String  size: I32? }")
    with pytest.raises(ConflictError, match="the schema was changed meanwhile"):
        change(late, other, allow_data_loss=allow_data_loss)
    assert graph.schema == WITH_LANGUAGE
    assert notes(graph) == {"one": "en", "two": "en"}


def test_a_change_that_is_overtaken_by_a_new_branch_is_refused(graph: Graph, root: Path) -> None:
    late = overtaken(graph, lambda other: other.create_branch("dev"))
    with pytest.raises(BranchesExistError, match="dev"):
        change(late)
    assert graph.schema == SCHEMA
    check_heads_and_files(root)
    graph.delete_branch("dev")
    assert change(late).applied


@pytest.mark.parametrize("maintain", ["ensure_indices", "optimize"])
def test_a_change_that_is_overtaken_by_maintenance_is_prepared_again(graph: Graph, maintain: str) -> None:
    late = overtaken(graph, lambda other: getattr(other, maintain)())
    assert change(late, RENAMED).applied
    query = "query all() { match { $r: Remark } return { $r.text as text } order { $r.text asc } }"
    assert graph.query(query).to_pylist() == [{"text": "one"}, {"text": "two"}]


# ---- overtaken by a change


def test_an_insert_that_was_prepared_under_the_old_schema_is_prepared_again(graph: Graph) -> None:
    late = overtaken(graph, change)
    assert late.mutate(ADD_NOTE, {"text": "three"}).commit is not None
    assert notes(graph) == {"one": "en", "two": "en", "three": None}


def test_an_insert_into_a_type_that_was_renamed_meanwhile_is_told_so(graph: Graph) -> None:
    late = overtaken(graph, lambda other: change(other, RENAMED))
    with pytest.raises((CompilerError, ReadSetConflictError)):
        late.mutate(ADD_NOTE, {"text": "three"})
    assert graph.snapshot().pins["node:Remark"].row_count == 2
    assert graph.recoveries() == []


@pytest.mark.parametrize(
    ("query", "parameters"),
    [(SET_VISITS, {"name": "ann", "visits": 7}), (DELETE_PERSON, {"name": "ann"})],
    ids=["update", "delete"],
)
def test_an_update_or_delete_that_was_prepared_under_the_old_schema_is_a_conflict(
    graph: Graph, query: str, parameters: dict[str, Any]
) -> None:
    # Not even the table of the change: nothing is written under a schema that does not count any more.
    late = overtaken(graph, change)
    with pytest.raises(ReadSetConflictError, match="the schema"):
        late.mutate(query, parameters)
    rows = graph.query("query all() { match { $p: Person } return { $p.visits as visits } }")
    assert rows.to_pylist() == [{"visits": 0}]
    assert late.mutate(query, parameters).commit is not None


def test_a_load_that_was_prepared_under_the_old_schema_fits_the_new_one_or_is_refused(
    graph: Graph, tmp_path: Path
) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(json.dumps({"type": "Note", "data": {"text": "three"}}) + "\n")
    late = overtaken(graph, change)
    with pytest.raises(ReadSetConflictError, match="the schema"):
        late.load(file, mode="append", engine="local")
    assert notes(graph) == {"one": "en", "two": "en"}
    late.load(file, mode="append", engine="local")
    assert notes(graph) == {"one": "en", "two": "en", "three": None}


def test_a_branch_that_is_made_while_the_schema_changes_begins_after_the_change(graph: Graph, root: Path) -> None:
    late = overtaken(graph, change)
    late.create_branch("dev")
    head, branch = graph.snapshot("main"), graph.snapshot("dev")
    assert branch.schema_hash == head.schema_hash
    assert branch.pins == head.pins
    check_heads_and_files(root)


@pytest.mark.parametrize("maintain", ["ensure_indices", "optimize"])
def test_maintenance_that_was_prepared_under_the_old_schema_does_no_harm(
    graph: Graph, root: Path, maintain: str
) -> None:
    late = overtaken(graph, lambda other: change(other, RENAMED))
    with suppress(ConflictError):
        getattr(late, maintain)()
    assert graph.snapshot().pins["node:Remark"].row_count == 2
    check_heads_and_files(root)
    getattr(late, maintain)()


# ---- readers


def test_a_read_that_began_before_the_change_ends_as_it_began(graph: Graph) -> None:
    result = graph.query(READ_OLD)
    persons = graph.query("query all() { match { $p: Person } return { $p.visits as visits } }")
    with Graph.open(graph.uri) as other:
        change(other, RENAMED.replace("visits: I64? }", "calls: I32? }"))
    assert sorted(row["text"] for row in result.to_pylist()) == ["one", "two"]
    assert persons.to_pylist() == [{"visits": 0}]


def test_a_reader_with_a_cached_schema_sees_the_new_one_at_once_and_the_old_one_at_its_commits(graph: Graph) -> None:
    with Graph.open(graph.uri, read_only=True) as reader:
        before = reader.snapshot().commit_id
        assert len(reader.query(READ_OLD).to_pylist()) == 2
        change(graph, WITHOUT_VISITS)
        assert reader.schema == WITHOUT_VISITS
        visits = "query all() { match { $p: Person } return { $p.visits as visits } }"
        with pytest.raises(CompilerError):
            reader.query(visits)
        assert reader.query(visits, snapshot=before).to_pylist() == [{"visits": 0}]


# ---- a change that loses its lock


class _LostLock:
    """A lock that keeps no other writer out."""

    can_be_lost = True

    @contextmanager
    def held(self, _timeout_s: float) -> Iterator[Tenure]:
        yield Tenure()


@pytest.mark.parametrize("place", [Failpoint.BEFORE_NEW_TABLE, Failpoint.BEFORE_PUBLISH])
def test_a_change_that_lost_its_lock_destroys_nothing_of_its_successor(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    wanted = f"{SCHEMA}\nnode Place {{ name: String @key }}"
    graph = with_lock(graph, _LostLock())
    with Graph.open(root) as opened:
        successor = with_lock(opened, _LostLock())
        stuck = []

        def reach(reached: Failpoint) -> None:
            if reached is place and not stuck:
                stuck.append(place)
                assert change(successor, wanted).applied
                successor.mutate('query q() { insert Place { name: "oslo" } }')

        for module in (schema_change, attempt):
            monkeypatch.setattr(module, "reach", reach)
        assert not change(graph, wanted).applied
    assert stuck
    with Graph.open(root, read_only=True) as reader:
        rows = reader.query("query q() { match { $p: Place } return { $p.name as name } }")
        assert rows.to_pylist() == [{"name": "oslo"}]
