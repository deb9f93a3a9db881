"""Readers and writers beside a cleanup: nobody loses what it reads, nobody waits."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import lance
import pytest

from omnigraph.cli.commands.maintenance import doctor_lines
from omnigraph.cli.main import main
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.ids import new_ulid
from omnigraph.errors import OmniError, StorageError
from omnigraph.errors.text import size_text
from omnigraph.graph.graph import Graph
from omnigraph.maintenance import doctor as room
from omnigraph.maintenance.findings import DoctorReport, Finding, Health
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.storage.manifest_table import ManifestView
from support.graphs import fork
from support.histories import NAMES, PERSON, add, files, lines, people, people_at, readable, set_age, unused_files
from support.subtests import each_case


def is_read(graph: Graph) -> bool:
    return graph._core.environment.reading.has_readers()


def test_a_result_holds_the_lock_until_its_last_row(graph: Graph):
    assert not is_read(graph)
    result = graph.query(NAMES)
    assert is_read(graph)
    assert len(result.to_arrow()) == 8
    assert not is_read(graph)


@each_case("use", [list, lambda result: next(iter(result)), id], ids=["all rows", "some rows", "none"])
def test_a_result_that_is_left_gives_the_lock_back(graph: Graph, use: Callable[[object], object]):
    result = graph.query(NAMES)
    use(result)
    del result
    gc.collect()
    assert not is_read(graph)


def test_a_read_that_fails_gives_it_back(graph: Graph):
    for text in ("query q(", "query q() { match { $p: Nobody } return { $p } }"):
        with pytest.raises(OmniError):
            graph.query(text)
    with pytest.raises(OmniError):
        graph.query(NAMES, branch="nowhere")
    assert not is_read(graph)


def test_reads_of_one_graph_share_the_lock(graph: Graph):
    one, other = graph.query(NAMES), graph.query(NAMES)
    one.to_arrow()
    assert is_read(graph)
    other.to_arrow()
    assert not is_read(graph)


def test_while_somebody_reads_the_states_of_the_last_hour_stay(graph: Graph):
    with Graph.open(graph.uri, read_only=True) as reader:
        result = reader.query(NAMES)
        report = graph.cleanup(keep=3, confirm=True)
        assert report.kept_because["reader"] == 9
        assert any("a reader or writer may be at work" in note for note in report.notes)
        assert readable(graph) == [True] * 9
        assert len(result) == 8
    graph.cleanup(keep=3, confirm=True)
    assert readable(graph) == [True] * 3 + [False] * 6


def test_the_grace_of_readers_is_a_setting(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_READER_GRACE", "0s")
    result = graph.query(NAMES)
    assert graph.cleanup(keep=3, confirm=True).kept_because["reader"] == 1
    assert len(result) == 8


def test_a_branch_that_is_deleted_under_a_reader_keeps_its_forks_until_nobody_reads(graph: Graph):
    graph.create_branch("dev")
    add(graph, "only here", "dev")
    pin = graph.snapshot("dev").pins["node:Person"]
    result = graph.query(NAMES, branch="dev")
    graph.delete_branch("dev")
    assert (pin.location, "dev") in lines(graph.uri)
    assert len(result) == 9
    graph.cleanup(keep=3, confirm=True)
    assert (pin.location, "dev") not in lines(graph.uri)


def test_a_head_that_is_missing_is_damaged_and_not_cleaned_up(graph: Graph):
    shutil.rmtree(Path(graph.uri) / graph.snapshot().pins["node:Person"].location)
    with Graph.open(graph.uri, read_only=True) as reader, pytest.raises(StorageError):
        reader.query(NAMES)


def test_exports_and_merges_hold_the_lock(graph: Graph):
    seen = []

    class Watching:
        def write(self, text: str) -> None:
            seen.append(is_read(graph))

    graph.export(Watching())
    assert seen
    assert all(seen)
    assert not is_read(graph)


def test_without_a_lock_file_reads_go_on(graph: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As on a disk that cannot be written: root may write everywhere, so opening is what fails here."""
    opened = os.open

    def refuse(path: object, *more: object) -> int:
        if str(path).endswith("__reading.lock"):
            raise PermissionError(13, "read-only file system")
        return opened(path, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert len(graph.query(NAMES)) == 8
    assert is_read(graph), "nobody can tell"


def test_a_catalog_that_is_cleaned_up_while_it_is_read_is_read_again(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    commits = graph.commits()
    reads = ManifestView.read_rows
    cleaned = []

    def clean_first(view: ManifestView, object_type: str) -> list[dict[str, Any]]:
        if not cleaned:
            cleaned.append(True)
            with Graph.open(graph.uri) as other:
                add(other, "meanwhile")
                report = other.cleanup(keep=5, commits=True, confirm=True)
                assert report.catalog_versions_removed > 0
        return reads(view, object_type)

    with Graph.open(graph.uri, read_only=True) as reader:
        monkeypatch.setattr(ManifestView, "read_rows", clean_first)
        known = reader._core.environment.manifest.commits()
        assert cleaned
        assert known.keys() >= {commit.commit_id for commit in commits[:4]}
        assert commits[5].commit_id not in known
        assert reader.commits() == graph.commits()


def test_writers_and_readers_go_on_while_graphs_are_cleaned_up(graph: Graph):
    """Threads write on two branches and read heads; cleanups run beside them."""
    graph.create_branch("dev")
    failures: list[BaseException] = []

    def work(branch: str) -> None:
        try:
            with Graph.open(graph.uri) as own:
                for number in range(8):
                    add(own, f"{branch}{number}", branch)
                    assert f"{branch}{number}" in people(own, branch)
        except BaseException as error:  # noqa: BLE001  # told to the test below
            failures.append(error)

    threads = [Thread(target=work, args=(branch,)) for branch in ("main", "dev")]
    for thread in threads:
        thread.start()
    runs = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_READER_GRACE", "0s")
        while any(thread.is_alive() for thread in threads) or not runs:
            report = graph.cleanup(keep=3, commits=bool(runs % 2), confirm=True)
            assert report.errors == ()
            runs += 1
    for thread in threads:
        thread.join()
    assert failures == []
    graph.cleanup(keep=3, confirm=True)
    assert unused_files(graph.uri) == set()
    assert {f"main{n}" for n in range(8)} <= people(graph).keys()
    assert {f"dev{n}" for n in range(8)} <= people(graph, "dev").keys()
    assert graph.merge("dev").outcome == "merged"


def test_a_branch_that_is_made_at_an_old_commit_meanwhile_keeps_it(graph: Graph):
    old = graph.commits()[6].commit_id
    rows = people_at(graph, old)
    from omnigraph.maintenance import cleanup as room

    planned = room.plan_cleanup
    calls = []

    def plan_and_branch(*arguments: object, **more: object) -> object:
        found = planned(*arguments, **more)
        if not calls:
            graph.create_branch("late", base=old)
        calls.append(1)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "plan_cleanup", plan_and_branch)
        graph.cleanup(keep=3, confirm=True)
    assert len(calls) == 2, "planned again"
    assert people(graph, "late") == rows
    pin = graph.snapshot("late").pins["node:Person"]
    assert pin.version in lines(graph.uri)[pin.location, None]


# ---- One test per finding: a graph that is hurt in one way, and what the doctor says about it


def finding(report: DoctorReport, check: str) -> Finding:
    (found,) = [item for item in report.findings if item.check == check]
    return found


def pin_folder(graph: Graph) -> Path:
    return Path(graph.uri) / graph.snapshot().pins[PERSON].location


def test_a_healthy_graph_needs_nothing(graph: Graph):
    graph.ensure_indices()
    before = files(graph.uri)
    report = graph.doctor()
    assert report.is_healthy
    assert report.actions == ()
    assert {item.check for item in report.findings} == set(room._CHECKS)
    assert {item.severity for item in report.findings} == {Health.OK}
    assert files(graph.uri) == before, "it only looks"
    assert report.size_bytes >= sum(before.values()) > sum(item.size_bytes for item in report.disk)
    assert report.disk[0].type_key == PERSON


def test_the_table_of_disk_use_adds_up(graph: Graph):
    kept = Path(graph.uri) / "__derived" / "text"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "index").write_bytes(bytes(3_000_000))
    report = graph.doctor()
    assert report.derived_bytes >= 3_000_000
    types = sum(item.size_bytes for item in report.disk)
    assert report.size_bytes == types + report.derived_bytes + report.other_bytes
    assert report.to_json()["derived_bytes"] == report.derived_bytes
    lines = list(doctor_lines(report))
    (derived,) = [line for line in lines if line.startswith("kept indexes and vectors")]
    assert size_text(report.derived_bytes) in derived
    (other,) = [line for line in lines if line.startswith("manifest and control files")]
    assert size_text(report.other_bytes) in other


def test_a_graph_that_is_open_for_reading_can_be_examined(graph: Graph):
    with Graph.open(graph.uri, read_only=True) as reader:
        assert reader.doctor().is_healthy


def rows_file(graph: Graph) -> Path:
    return next((pin_folder(graph) / "data").glob("*.lance"))


def use_another_format(graph: Graph) -> None:
    catalog = lance.dataset(str(Path(graph.uri) / "__manifest"))
    catalog.update_schema_metadata({"omnigraph:internal_schema_version": "9"})


def begin_a_schema_change(graph: Graph) -> None:
    (Path(graph.uri) / "_schema.pg.staging").write_text("node Other { name: String @key }")


def lose_the_head(graph: Graph) -> None:
    shutil.rmtree(pin_folder(graph) / "data")
    for path in (pin_folder(graph) / "_versions").glob("*.manifest"):
        path.unlink()


def move_the_dataset(graph: Graph) -> None:
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    table._dataset.insert(table.read().slice(0, 1))


@pytest.mark.parametrize(
    ("damage", "check", "severity", "words"),
    [
        (lambda graph: rows_file(graph).unlink(), "heads", Health.ERROR, ["is missing"]),
        (lambda graph: os.truncate(rows_file(graph), 100), "heads", Health.ERROR, ["has 100 of"]),
        (use_another_format, "format", Health.ERROR, ["upgrade omnigraph"]),
        (begin_a_schema_change, "schema", Health.WARNING, ["interrupted"]),
        (lose_the_head, "heads", Health.ERROR, ["node:Person of branch main cannot be read", "backup"]),
        (move_the_dataset, "drift", Health.ERROR, []),
    ],
)
def test_damage_is_told_where_it_is(graph: Graph, damage: Any, check: str, severity: Health, words: list[str]):
    damage(graph)
    found = finding(Graph.examine(graph.uri), check)
    assert found.severity is severity
    assert all(text in found.message for text in words)
    if check == "drift":
        assert found.action == f"omnigraph repair {graph.uri}"


def test_no_graph(tmp_path: Path):
    report = Graph.examine(tmp_path / "none")
    assert [item.check for item in report.findings] == ["format"]
    assert "there is no graph" in report.findings[0].message
    assert not report.is_healthy
    assert not (tmp_path / "none").exists()


def test_schema_files_of_another_schema(graph: Graph):
    (Path(graph.uri) / "_schema.pg").write_text("node Other { name: String @key }")
    report = Graph.examine(graph.uri)
    assert finding(report, "schema").severity is Health.ERROR
    assert finding(report, "heads").severity is Health.OK, "the other checks go on"


def test_a_dataset_behind_its_catalog(graph: Graph):
    newest = min((pin_folder(graph) / "_versions").glob("*.manifest"))
    newest.unlink()
    (pin_folder(graph) / "_versions" / "latest_version_hint.json").unlink()
    report = Graph.examine(graph.uri)
    assert "published data is missing" in finding(report, "drift").message
    assert finding(report, "heads").severity is Health.ERROR


def test_an_interrupted_write(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "after_table_commit=raise")
    monkeypatch.setattr("omnigraph.commit.attempt.settle", _fail)
    with pytest.raises(Exception, match="settling it failed"):
        add(graph, "lost")
    report = graph.doctor()
    assert finding(report, "recovery").severity is Health.WARNING
    assert "mutation on branch main" in finding(report, "recovery").message
    assert finding(report, "drift").severity is Health.INFO, "explained by the interrupted write"
    assert graph.pending_recoveries(), "nothing was settled"


def _fail(*_: object) -> None:
    raise FailpointError("settle")


def test_an_unreadable_sidecar(graph: Graph):
    folder = Path(graph.uri) / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / f"{new_ulid()}.json").write_text("nothing")
    report = graph.doctor()
    assert finding(report, "recovery").severity is Health.ERROR
    assert finding(report, "heads").severity is Health.OK


def test_a_writer_in_its_window(graph: Graph):
    with graph._core.environment.window():
        found = finding(graph.doctor(), "lock")
    assert (found.severity, found.message) == (Health.INFO, "a living writer is in its commit window")


@pytest.mark.parametrize(("limit", "severity"), [(8, Health.WARNING), (9, Health.INFO)])
def test_rows_outside_of_an_index(graph: Graph, monkeypatch: pytest.MonkeyPatch, limit: int, severity: Health):
    monkeypatch.setattr(room, "_INDEXED_ROWS", limit)
    found = finding(graph.doctor(), "indexes")
    assert found.severity is severity
    assert found.action == f"omnigraph optimize {graph.uri}"
    assert found.message.startswith("node:Person: not all of 8 rows are in the indexes of")


def test_many_small_fragments_and_deleted_rows(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "_MANY_FRAGMENTS", 4)
    monkeypatch.setattr(room, "_DELETED_ROWS", 3)
    for number in range(4):
        set_age(graph, "p0", number + 5)
    found = [item for item in graph.doctor().findings if item.check == "fragments"]
    assert {item.action for item in found} == {f"omnigraph optimize {graph.uri}"}
    assert "fragments are small" in found[0].message


def test_a_catalog_with_many_versions(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "_MANY_MANIFEST_VERSIONS", 8)
    found = finding(graph.doctor(), "catalog")
    assert found.severity is Health.WARNING
    assert found.message.startswith("9 commits, 9 versions")


def test_forks_and_files_of_nothing(graph: Graph):
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    stage_append(table, table.read())
    graph.create_branch("dev")
    fork(graph, "dev", PERSON)
    found = finding(graph.doctor(), "leftovers")
    assert found.severity is Health.WARNING, "nobody writes, so its writer is dead"
    assert found.message.startswith("1 fork of no branch and 1 file")
    assert found.action == f"omnigraph cleanup {graph.uri} --keep 10 --confirm"
    graph.cleanup(keep=10, confirm=True)
    assert finding(graph.doctor(), "leftovers").severity is Health.OK


def test_young_files_beside_a_writer_may_be_its_own(graph: Graph):
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    before = set(pin_folder(graph).glob("data/*"))
    with graph._core.environment.staging.shared():
        stage_append(table, table.read())
        report = graph.doctor()
        found = finding(report, "leftovers")
        assert (found.severity, found.action) == (Health.INFO, None)
        assert found.message.startswith("0 forks of no branch and 1 file")
        assert "may belong to a writer" in found.message
        assert report.is_healthy
        (staged,) = set(pin_folder(graph).glob("data/*")) - before
        os.utime(staged, (1, 1))
        assert finding(graph.doctor(), "leftovers").severity is Health.WARNING


def test_a_writer_that_begins_during_the_look_has_left_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    find, writing = room.find_leftovers, ExitStack()

    def with_a_writer(*given: object, **rest: object):
        if not writing._exit_callbacks:
            writing.enter_context(graph._core.environment.staging.shared())
            stage_append(table, table.read())
        return find(*given, **rest)

    monkeypatch.setattr(room, "find_leftovers", with_a_writer)
    with writing:
        assert finding(graph.doctor(), "leftovers").severity is Health.INFO


def test_what_a_write_staged_that_waits_for_its_recovery_is_needed(graph: Graph):
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    stage_append(table, table.read())
    (Path(graph.uri) / "__recovery").mkdir(exist_ok=True)
    (Path(graph.uri) / "__recovery" / f"{new_ulid()}.json").write_text("{}")
    assert finding(graph.doctor(), "leftovers").severity is Health.INFO


def test_old_versions_are_told_and_need_nobody(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "KEEP_ADVISED", 3)
    report = graph.doctor()
    found = finding(report, "versions")
    assert found.severity is Health.INFO
    assert found.message.startswith("6 versions")
    assert report.is_healthy


def test_a_check_that_breaks_is_a_finding(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    def broken(_: object) -> None:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(room, "_CHECKS", {**room._CHECKS, "lock": broken})
    found = finding(graph.doctor(), "lock")
    assert found.severity is Health.ERROR
    assert "by hand" in found.message


# ---- the command


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", *words])
    return int(caught.value.code or 0)


def test_the_command_shows_the_worst_first_and_ends_with_what_to_run(graph: Graph, capsys):
    move_the_dataset(graph)
    assert run(graph.uri) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("error")
    assert lines[-1] == f"run: omnigraph repair {graph.uri}"
    assert run(graph.uri, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] is False
    assert document["actions"] == [f"omnigraph repair {graph.uri}"]
    assert document["findings"][0]["check"] == "drift"
    assert {"type_key", "location", "size_bytes", "versions", "forks"} == set(document["disk"][0])


def test_the_command_on_a_healthy_graph(graph: Graph, capsys):
    assert run(graph.uri) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "healthy: nothing has to be done"


def test_an_error_that_no_command_helps_with(tmp_path: Path):
    assert list(doctor_lines(Graph.examine(tmp_path / "none")))[-1].startswith("no command helps")
