"""`ensure_indices`: what is built, for which type and branch, as which commit, beside which writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import lance
import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, PreconditionFailedError
from omnigraph.maintenance import indexes
from support.graphs import everything
from support.search_graphs import (
    append,
    ask,
    cites,
    dataset_of,
    doc,
    doc_row,
    found,
    index_names,
    new_graph,
    ranked,
    segments,
    set_body,
    tag,
    tagged,
    write,
)

ALL_KINDS = """
interface Named { nick: String? @index }
node Thing implements Named {
    name: String @key  both: String?  level: enum(low, high)? @index  flag: Bool? @index  i32: I32? @index
    i64: I64? @index  u32: U32? @index  u64: U64? @index  f32: F32? @index  f64: F64? @index  day: Date? @index
    at: DateTime? @index  spot: Vector(3)? @index  first: String?  second: I32?  tags: [String]?  data: Blob?
    plain: String?  number: I32?  @index(both)  @index(first, second)
}
node Numbered { number: I64 @key }
node Composite { a: String  b: I32  @key(a, b) }
node Keyless { text: String }
node Never { name: String @key  text: String? @index }
edge Links: Thing -> Thing { why: String?  when: I32? @index  @index(src, dst) }
edge NeverLinks: Thing -> Never
"""
ROWS = """query seed() {
    insert Thing { name: "a", nick: "the fox", both: "x", tags: ["t"], first: "f", second: 2 }
    insert Thing { name: "b" }
    insert Numbered { number: 7 }
    insert Composite { a: "x", b: 1 }
    insert Keyless { text: "words" }
    insert Links { from: "a", to: "b", why: "because", when: 3 }
}"""
BTREES = {"id", "name", "nick", "both", "level", "flag", "i32", "i64", "u32", "u64"}
BTREES |= {"f32", "f64", "day", "at"}


@pytest.fixture
def things(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, schema=ALL_KINDS) as graph:
        graph.mutate(ROWS)
        yield graph


@pytest.fixture
def docs(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, doc("a", "red fox", year=1), doc("b", "red hen"), tag("t"), cites("a", "b")) as graph:
        yield graph


def index_types(graph: Graph, key: str) -> dict[str, str]:
    dataset = dataset_of(graph, graph.snapshot(), key)
    return {
        index.name: index.type_url.rpartition(".")[2].removesuffix("IndexDetails")
        for index in dataset.describe_indices()
    }


# ---- which indexes


def test_each_property_gets_the_index_of_its_type(things: Graph):
    """Ids and ends always get a btree; edge properties and several properties in one annotation get no index."""
    things.ensure_indices()
    assert index_types(things, "node:Thing") == {f"{name}_btree": "BTree" for name in BTREES}
    assert index_types(things, "edge:Links") == dict.fromkeys(("id_btree", "src_btree", "dst_btree"), "BTree")
    assert index_names(things, "node:Keyless") == index_names(things, "node:Composite") == {"id_btree"}
    assert index_names(things, "node:Numbered") == {"id_btree", "number_btree"}


def test_doctor_names_every_declared_index_that_is_not_built(things: Graph):
    told = [item.message for item in things.doctor().findings if item.check == "indexes"]
    unbuilt = sorted(text.split(" is recorded")[0] for text in told if "not built" in text)
    assert unbuilt == ["edge:Links: @index(src, dst)", "edge:Links: @index(when)", "node:Thing: @index(first, second)"]


def test_empty_tables_get_no_index_and_the_report_names_what_each_other_type_got(things: Graph):
    report = things.ensure_indices()
    assert report.branch == "main"
    keys = {"node:Thing", "node:Numbered", "node:Composite", "node:Keyless", "edge:Links"}
    assert {built.type_key: sorted(built.names) for built in report.built} == {
        key: sorted(index_names(things, key)) for key in keys
    }
    assert index_names(things, "node:Never") == index_names(things, "edge:NeverLinks") == set()
    assert {item.type_key for item in things.pending_indexes()} == {"node:Thing"}


def test_key_and_index_on_one_property_build_one_index(tmp_path: Path):
    schema = "node Doc { slug: String @key  @index(slug) }"
    with new_graph(tmp_path, 'insert Doc { slug: "a" }', schema=schema) as graph:
        (built,) = graph.ensure_indices().built
        assert sorted(built.names) == ["id_btree", "slug_btree"]


# ---- one commit that changes no row


def test_all_tables_of_a_run_become_visible_in_one_commit(things: Graph):
    rows, head = everything(things), things.snapshot()
    report = things.ensure_indices(actor="act-maintenance")
    commit = report.commit
    assert commit is not None
    assert (commit.kind, commit.actor, commit.branch) == ("ensure_indices", "act-maintenance", "main")
    assert set(commit.tables) == {item.type_key for item in report.built}
    history = things.commits()
    assert history[0] == commit
    assert history[1].commit_id == head.commit_id == commit.parent_id
    assert everything(things) == rows
    for key, pin in things.snapshot().pins.items():
        moved = pin.version - head.pins[key].version
        assert moved == (1 if key in commit.tables else 0)
        assert pin.row_count == head.pins[key].row_count
    assert things.pending_recoveries() == []


def test_a_second_run_does_nothing(things: Graph):
    things.ensure_indices()
    before = things.snapshot()
    report = things.ensure_indices(actor="act-again")
    assert (report.commit, report.built) == (None, ())
    assert things.snapshot() == before
    with Graph.open(things.uri) as again:
        assert again.ensure_indices().commit is None


def test_a_graph_without_rows_needs_no_commit(tmp_path: Path):
    with new_graph(tmp_path) as graph:
        report = graph.ensure_indices()
        assert (report.commit, report.built, report.pending) == (None, (), ())
        assert len(graph.commits()) == 1


def test_writes_build_no_index(docs: Graph):
    set_body(docs, "a", "blue")
    append(docs, Doc=[doc_row("c")])
    write(docs, 'delete Doc where slug = "b"')
    for key in docs.snapshot().pins:
        assert index_names(docs, key) == set()


def test_a_durable_run_is_flushed_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    with new_graph(tmp_path, doc("a", "red fox"), doc("b")) as graph:
        graph.ensure_indices()
        assert "body_btree" in index_names(graph, "node:Doc")
        assert found(graph, 'search($d.body, "fox")') == ["a"]
        assert graph.ensure_indices().commit is None


# ---- pending


def test_a_vector_property_without_a_vector_is_pending_with_a_reason(docs: Graph):
    report = docs.ensure_indices()
    (pending,) = report.pending
    assert (pending.type_key, pending.property) == ("node:Doc", "vec")
    assert "vector" in pending.reason
    assert docs.pending_indexes() == [pending]
    again = docs.ensure_indices()
    assert (again.commit, again.pending) == (None, (pending,))


def test_a_pending_vector_index_appears_when_there_are_vectors(docs: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("omnigraph.engine.tables.wanted_indexes.VECTOR_INDEX_MIN_ROWS", 16)
    docs.ensure_indices()
    assert [item.property for item in docs.pending_indexes()] == ["vec"]
    append(docs, Doc=[doc_row(f"v{n:02}", vec=[float(n)] * 4) for n in range(16)])
    report = docs.ensure_indices()
    assert report.pending == ()
    assert "vec_vector" in index_names(docs, "node:Doc")
    assert ranked(docs, "nearest($d.vec, [7.0, 7.0, 7.0, 7.0])", limit=1) == ["v07"]
    assert docs.ensure_indices().commit is None


def test_pending_indexes_tells_what_is_missing_before_and_after_a_run(docs: Graph):
    before = {(item.type_key, item.property) for item in docs.pending_indexes()}
    assert {("node:Doc", "body"), ("node:Tag", "name"), ("edge:Cites", "src")} <= before
    assert not any(key == "edge:Tagged" for key, _ in before), "an empty table lacks nothing"
    docs.ensure_indices()
    assert [item.property for item in docs.pending_indexes()] == ["vec"]
    write(docs, doc("c", "new"))
    after = {(item.type_key, item.property) for item in docs.pending_indexes()}
    assert {key for key, _ in after} == {"node:Doc"}
    assert ("node:Doc", "body") in after


# ---- coverage


def test_a_later_run_covers_only_what_is_new(docs: Graph):
    docs.ensure_indices()
    write(docs, doc("c", "red cat"))
    write(docs, doc("d", "red dog"))
    report = docs.ensure_indices()
    assert [item.type_key for item in report.built] == ["node:Doc"]
    assert report.commit is not None
    assert report.commit.tables == ("node:Doc",)
    covered = segments(docs, "node:Doc")
    for name, parts in covered.items():
        assert set().union(*parts) == {0, 1, 2}, name
    assert covered["id_btree"] == [{0}, {1, 2}], "what was covered is not indexed again"
    assert docs.ensure_indices().commit is None
    assert found(docs, 'search($d.body, "red")') == list("abcd")


def test_only_types_with_work_get_a_new_version(docs: Graph):
    docs.ensure_indices()
    before = docs.snapshot()
    write(docs, tag("u", "more"), tagged("a", "u"))
    docs.ensure_indices()
    moved = {key for key, pin in docs.snapshot().pins.items() if pin != before.pins[key]}
    assert moved == {"node:Tag", "edge:Tagged"}


def test_deleting_rows_leaves_nothing_to_index(docs: Graph):
    docs.ensure_indices()
    for condition, left in (('slug = "b"', ["a"]), ('slug >= "a"', [])):
        write(docs, f"delete Doc where {condition}")
        assert docs.ensure_indices().commit is None
        assert found(docs, 'search($d.body, "red")') == left
    write(docs, doc("z", "red again"))
    docs.ensure_indices()
    assert found(docs, 'search($d.body, "red")') == ["z"]


def test_filters_use_current_values_of_indexed_properties(docs: Graph):
    """Equality, ranges and prefixes over rows that were updated, deleted and added after the index."""
    docs.ensure_indices()
    docs.mutate('query w() { update Doc set { year: 2, lang: "de" } where slug = "a" }')
    docs.mutate('query w() { update Doc set { year: 1 } where slug = "b" }')
    write(docs, doc("c", "red", year=3, lang="en"))
    for _ in range(2):
        assert found(docs, "$d.year = 1") == ["b"]
        assert found(docs, "$d.year = 2") == ["a"]
        assert found(docs, "$d.year > 1") == ["a", "c"]
        assert found(docs, "$d.year != 2") == ["b", "c"]
        assert found(docs, '$d.lang = "de"') == ["a"]
        assert found(docs, '$d.body starts_with "red"') == ["a", "b", "c"]
        assert found(docs, '$d.body = "red hen"') == ["b"]
        docs.ensure_indices()
    set_body(docs, "b", "blue hen")
    for _ in range(2):
        assert found(docs, '$d.body = "red hen"') == []
        assert found(docs, '$d.body starts_with "blue"') == ["b"]
        docs.ensure_indices()


# ---- branches


def test_a_branch_that_never_wrote_uses_the_index_of_its_base_and_forks_nothing(docs: Graph):
    docs.ensure_indices()
    docs.create_branch("dev")
    before = docs.snapshot("dev")
    report = docs.ensure_indices("dev")
    assert (report.branch, report.commit, report.built) == ("dev", None, ())
    assert docs.snapshot("dev") == before
    assert all(pin.branch is None for pin in before.pins.values())
    assert "body_btree" in index_names(docs, "node:Doc", "dev")
    text = 'query q() { match { $d: Doc  search($d.body, "red") } return { $d } }'
    assert "text index, ready" in docs.explain(text, branch="dev")


def test_only_tables_with_work_are_forked(docs: Graph):
    docs.ensure_indices()
    docs.create_branch("dev")
    write(docs, doc("c", "red cat"), branch="dev")
    assert docs.snapshot("dev").pins["node:Doc"].branch == "dev"
    report = docs.ensure_indices("dev", actor="act-dev")
    assert report.commit is not None
    assert (report.commit.branch, report.commit.tables) == ("dev", ("node:Doc",))
    pins = docs.snapshot("dev").pins
    assert {key for key, pin in pins.items() if pin.branch is not None} == {"node:Doc"}
    assert docs.ensure_indices("dev").commit is None
    assert found(docs, 'search($d.body, "red")', target={"branch": "dev"}) == list("abc")
    assert found(docs, 'search($d.body, "red")') == list("ab")


def test_indexing_a_branch_of_an_unindexed_base_leaves_the_base_alone(docs: Graph):
    docs.create_branch("dev")
    main = docs.snapshot()
    report = docs.ensure_indices("dev")
    assert report.commit is not None
    assert docs.snapshot() == main
    assert index_names(docs, "node:Doc") == set()
    assert "body_btree" in index_names(docs, "node:Doc", "dev")
    empty = docs.snapshot("dev").pins["edge:Tagged"]
    assert empty.branch is None, "an empty table is not forked for nothing"
    assert everything(docs, "dev") == everything(docs)
    write(docs, doc("c", "red main"))
    assert docs.ensure_indices().commit is not None
    assert found(docs, 'search($d.body, "red")', target={"branch": "dev"}) == list("ab")


def test_the_first_write_of_a_branch_takes_the_index_along(docs: Graph):
    docs.ensure_indices()
    docs.create_branch("dev")
    set_body(docs, "b", "blue hen", branch="dev")
    assert "body_btree" in index_names(docs, "node:Doc", "dev")
    assert found(docs, 'search($d.body, "red")', target={"branch": "dev"}) == ["a"]
    assert found(docs, 'search($d.body, "blue")', target={"branch": "dev"}) == ["b"]
    assert found(docs, 'search($d.body, "red")') == ["a", "b"]


def test_a_branch_of_a_branch_is_indexed_on_its_own(docs: Graph):
    docs.create_branch("dev")
    write(docs, doc("c", "red cat"), branch="dev")
    docs.create_branch("sub", "dev")
    docs.ensure_indices("sub")
    write(docs, doc("d", "red dog"), branch="sub")
    got = {b: found(docs, 'search($d.body, "red")', target={"branch": b}) for b in docs.branches()}
    assert got == {"main": list("ab"), "dev": list("abc"), "sub": list("abcd")}
    assert index_names(docs, "node:Doc", "dev") == set()


def test_an_unknown_branch_is_refused(docs: Graph):
    with pytest.raises(BranchNotFoundError):
        docs.ensure_indices("nowhere")
    with pytest.raises(BranchNotFoundError):
        docs.pending_indexes("nowhere")


# ---- permissions and preconditions


def test_a_graph_that_is_open_for_reading_builds_nothing_but_says_what_is_missing(docs: Graph):
    with Graph.open(docs.uri, read_only=True) as reader:
        with pytest.raises(BadRequestError, match="reading only"):
            reader.ensure_indices()
        assert reader.pending_indexes() == docs.pending_indexes()
    assert len(docs.commits()) == 2
    assert index_names(docs, "node:Doc") == set()


def test_a_precondition_survives_a_commit_that_changes_no_row(docs: Graph):
    seen = docs.query("query q() { match { $d: Doc } return { $d } }").commit_id
    commit = docs.ensure_indices().commit
    assert commit is not None
    assert docs.snapshot().commit_id == commit.commit_id != seen
    assert write(docs, doc("c"), if_commit=seen).commit is not None
    with pytest.raises(PreconditionFailedError):
        write(docs, doc("d"), if_commit=seen)
    commit = docs.ensure_indices().commit
    assert commit is not None
    write(docs, doc("e"), if_commit=commit.commit_id)


# ---- beside writers


def while_building(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object], times: int = 1) -> list[int]:
    """`act` happens after the indexes of a table were staged, so many times; answers how often that was."""
    stage = indexes.stage_indices
    staged: list[int] = []

    def stage_and_act(*given: Any) -> Any:
        result = stage(*given)
        staged.append(1)
        if len(staged) <= times:
            act(len(staged))
        return result

    monkeypatch.setattr(indexes, "stage_indices", stage_and_act)
    return staged


def one_table(tmp_path: Path) -> Graph:
    return new_graph(tmp_path, tag("t0", "red"), name="one.omni")


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_run_that_lost_a_race_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int):
    with one_table(tmp_path) as graph:
        staged = while_building(monkeypatch, lambda number: write(graph, tag(f"t{number}", "red")), times)
        report = graph.ensure_indices()
        assert len(staged) == times + 1
        assert report.commit is not None
        assert graph.pending_indexes() == []
        names = ask(graph, 'query q() { match { $t: Tag  search($t.about, "red") } return { $t.name as n } }')
        assert sorted(row["n"] for row in names) == [f"t{n}" for n in range(times + 1)]
        kinds = [commit.kind for commit in graph.commits()]
        assert kinds.count("ensure_indices") == 1


def test_the_files_of_a_run_that_lost_a_race_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with one_table(tmp_path) as graph:
        while_building(monkeypatch, lambda _: write(graph, tag("t1", "red")))
        graph.ensure_indices()
        folder = Path(graph.uri) / graph.snapshot().pins["node:Tag"].location / "_indices"
        kept = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
        assert len(kept) == len(index_names(graph, "node:Tag"))


def test_indexes_are_built_on_a_handle_that_no_reader_shares(docs: Graph, monkeypatch: pytest.MonkeyPatch):
    """Lance borrows the handle exclusively meanwhile: whoever uses it at the same time fails."""
    used: list[object] = []
    for name in ("create_index_uncommitted", "merge_existing_index_segments"):
        method = getattr(lance.LanceDataset, name)

        def note(self: Any, *given: Any, _method: Any = method, **named: Any) -> Any:
            used.append(self._ds)
            return _method(self, *given, **named)

        monkeypatch.setattr(lance.LanceDataset, name, note)
    docs.ensure_indices()
    kept = docs._core.environment.tables._cache._values.values()
    shared = [table._dataset._ds for table, _ in kept]
    assert used
    assert not [handle for handle in used if any(handle is other for other in shared)]


def test_a_run_that_loses_to_a_delete_builds_for_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with new_graph(tmp_path, doc("a", "red fox"), doc("b", "red hen")) as graph:
        while_building(monkeypatch, lambda _: write(graph, 'delete Doc where slug = "a"'))
        assert graph.ensure_indices().commit is not None
        assert found(graph, 'search($d.body, "red")') == ["b"]
        assert ranked(graph, 'bm25($d.body, "red")') == ["b"]


def test_a_write_to_another_table_does_not_disturb_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with one_table(tmp_path) as graph:
        staged = while_building(monkeypatch, lambda _: write(graph, doc("a", "red fox")))
        report = graph.ensure_indices()
        assert len(staged) == 1
        assert [item.type_key for item in report.built] == ["node:Tag"]
        assert found(graph, 'search($d.body, "red")') == ["a"]


def test_an_insert_that_lost_to_a_run_is_prepared_again(docs: Graph, monkeypatch: pytest.MonkeyPatch):
    from omnigraph.graph import mutations

    prepare = mutations.prepare_mutation
    done: list[int] = []

    def prepare_and_build(*given: Any, **named: Any) -> Any:
        prepared = prepare(*given, **named)
        done.append(1)
        if len(done) == 1:
            docs.ensure_indices()
        return prepared

    monkeypatch.setattr(mutations, "prepare_mutation", prepare_and_build)
    receipt = write(docs, doc("c", "red cat"))
    assert receipt.commit is not None
    assert len(done) == 2
    assert found(docs, 'search($d.body, "red")') == list("abc")
    assert [commit.kind for commit in docs.commits()][:2] == ["mutation", "ensure_indices"]


def test_a_failed_build_changes_nothing_and_the_next_run_succeeds(docs: Graph, monkeypatch: pytest.MonkeyPatch):
    rows, head = everything(docs), docs.snapshot()

    def fail(*given: Any) -> Any:
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(indexes, "stage_indices", fail)
        with pytest.raises(RuntimeError):
            docs.ensure_indices()
    assert docs.snapshot() == head
    assert everything(docs) == rows
    assert docs.pending_recoveries() == []
    assert docs.ensure_indices().commit is not None


def test_writers_and_index_builders_at_once_lose_no_row(tmp_path: Path):
    writers, each, builders = 3, 6, 2
    with new_graph(tmp_path, doc("seed", "red")) as graph:
        barrier = Barrier(writers + builders)

        def insert_some(who: int) -> int:
            barrier.wait()
            lost = 0
            for number in range(each):
                try:
                    write(graph, doc(f"w{who}-{number}", "red"))
                except ConflictError:
                    lost += 1
            return lost

        def build(_: int) -> int:
            barrier.wait()
            return sum(graph.ensure_indices().commit is not None for _ in range(4))

        with ThreadPoolExecutor(writers + builders) as pool:
            inserted = [pool.submit(insert_some, who) for who in range(writers)]
            built = [pool.submit(build, who) for who in range(builders)]
            assert [future.result() for future in inserted] == [0] * writers
            commits = sum(future.result() for future in built)
        expected = sorted(["seed", *(f"w{w}-{n}" for w in range(writers) for n in range(each))])
        kinds = [commit.kind for commit in graph.commits()]
        assert kinds.count("ensure_indices") == commits >= 1
        assert kinds.count("mutation") == 1 + writers * each
        assert found(graph, "") == expected
        assert found(graph, 'search($d.body, "red")') == expected
        graph.ensure_indices()
        assert graph.ensure_indices().commit is None
        assert found(graph, 'search($d.body, "red")') == expected
        assert sorted(ranked(graph, 'bm25($d.body, "red")', limit=None)) == expected


def test_readers_beside_an_index_builder_always_see_whole_answers(tmp_path: Path):
    expected = [f"d{n:02}" for n in range(20)]
    with new_graph(tmp_path, *(doc(name, "red") for name in expected)) as graph:
        barrier = Barrier(3)

        def read(_: int) -> list[list[str]]:
            barrier.wait()
            return [found(graph, 'search($d.body, "red")') for _ in range(15)]

        def build() -> None:
            barrier.wait()
            for number in range(3):
                graph.ensure_indices()
                append(graph, Tag=[{"id": f"t{number}", "name": f"t{number}"}])

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read, who) for who in range(2)]
            pool.submit(build).result()
            for reader in readers:
                assert all(answer == expected for answer in reader.result())
