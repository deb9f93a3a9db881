"""Edges with a key: every writer takes them as it takes nodes with a key, and a source of them can be loaded again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, LoadKeyConflictError, LoadRejectedError
from omnigraph.graph.graph import Graph
from support.graphs import run
from support.loads import files_of, rows_of
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key }
node Slot { series: String  number: I32  @key(series, number) }
edge Knows: Person -> Person @card(0..2) { since: I32?  why: String?  @key(@src, @dst)  @unique(dst, src) }
edge Rated: Person -> Slot { topic: String  ratio: F64  day: Date  stars: I32?  @key(src, dst, ratio, topic, day) }
"""
PEOPLE = [{"type": "Person", "data": {"name": name}} for name in ("ann", "bob", "cid", 'd"é')]
SLOT = {"type": "Slot", "data": {"series": 's"\\', "number": 1}}
SLOT_ID = '["1","s\\"\\\\"]'
Load = Callable[..., Any]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture
def load(graph: Graph, tmp_path: Path) -> Load:
    def load(*records: dict[str, Any], mode: str = "merge", **options: Any) -> Any:
        source = tmp_path / "x.jsonl"
        source.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
        return graph.load(source, mode=mode, engine="local", **options)

    load(*PEOPLE, SLOT, knows("ann", "bob", since=1, why="first"), mode="append")
    return load


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def rated(source: str, ratio: float, **data: Any) -> dict[str, Any]:
    values = {"topic": "a", "day": "1970-01-03", "ratio": ratio} | data
    return {"edge": "Rated", "from": source, "to": SLOT_ID, "data": values}


def held(graph: Graph, branch: str = "main") -> dict[str, tuple[int | None, str | None]]:
    return {row["id"]: (row["since"], row["why"]) for row in rows_of(graph, "edge:Knows", branch)}


def told(graph: Graph, older: str, newer: str) -> dict[str, str]:
    return {change.id: str(change.op) for change in graph.diff(older, newer)}


# ---- ids


def test_the_id_is_an_array_of_the_ends_and_the_spellings_of_the_other_members(graph: Graph, load: Load) -> None:
    """In the order of the numbers of the properties, which is alphabetical at first: day, ratio, topic."""
    load(rated('d"é', 1.0, topic="x\n"), rated("ann", -0.0), rated("ann", 2.5))
    found = [json.loads(row["id"]) for row in rows_of(graph, "edge:Rated")]
    assert sorted(found) == sorted(
        [['d"é', SLOT_ID, "2", "1", "x\n"], ["ann", SLOT_ID, "2", "0", "a"], ["ann", SLOT_ID, "2", "2.5", "a"]]
    )
    (plain,) = [row["id"] for row in rows_of(graph, "edge:Rated") if row["topic"] == "x\n"]
    assert plain == '["d\\"é","[\\"1\\",\\"s\\\\\\"\\\\\\\\\\"]","2","1","x\\n"]'


def test_a_mutation_and_a_load_make_the_same_ids(graph: Graph, load: Load) -> None:
    load(rated("ann", 0.1, stars=1))
    result = graph.mutate(
        "query q($to: String) "
        '{ insert Rated { from: "ann", to: $to, ratio: 0.1, topic: "a", day: date("1970-01-03"), stars: 2 } }',
        {"to": SLOT_ID},
    )
    assert result.affected_edges == 1
    assert [row["stars"] for row in rows_of(graph, "edge:Rated")] == [2]


# ---- writers


def test_an_insert_replaces_the_edge_with_that_key(graph: Graph, load: Load) -> None:
    before = graph.snapshot().commit_id
    result = run(graph, 'insert Knows { from: "ann", to: "bob", since: 2 } insert Knows { from: "bob", to: "ann" }')
    assert result.affected_edges == 2
    assert held(graph) == {'["ann","bob"]': (2, None), '["bob","ann"]': (None, None)}
    assert told(graph, before, "main") == {'["ann","bob"]': "update", '["bob","ann"]': "insert"}


def test_the_last_of_two_inserts_of_one_key_counts(graph: Graph, load: Load) -> None:
    run(graph, 'insert Knows { from: "ann", to: "cid", since: 1 } insert Knows { from: "ann", to: "cid", since: 2 }')
    assert held(graph)['["ann","cid"]'] == (2, None)


def test_an_edge_that_is_replaced_counts_once_for_its_source(graph: Graph, load: Load) -> None:
    run(graph, 'insert Knows { from: "ann", to: "cid" }')
    run(graph, 'insert Knows { from: "ann", to: "cid", since: 5 } insert Knows { from: "ann", to: "bob", since: 5 }')
    with pytest.raises(BadRequestError, match=r"'ann' has 3 edges, allowed are 0\.\.2"):
        run(graph, 'insert Knows { from: "ann", to: "ann" } insert Knows { from: "ann", to: "bob" }')
    assert held(graph) == {'["ann","bob"]': (5, None), '["ann","cid"]': (5, None)}


def test_a_preview_tells_replaced_edges_from_new_ones(graph: Graph, load: Load) -> None:
    text = 'query q() { insert Knows { from: "ann", to: "bob", since: 2 } insert Knows { from: "bob", to: "ann" } }'
    (changed,) = graph.mutate(text, dry_run=True).changes
    assert (changed.type_key, changed.inserted, changed.updated) == ("edge:Knows", 1, 1)


def test_an_edge_that_was_deleted_can_come_again(graph: Graph, load: Load) -> None:
    run(graph, 'delete Knows where from = "ann"')
    assert held(graph) == {}
    load(knows("ann", "bob"), mode="append")
    assert held(graph) == {'["ann","bob"]': (None, None)}


def test_a_merge_load_replaces_and_the_last_record_wins(graph: Graph, load: Load) -> None:
    receipt = load(knows("ann", "bob", since=2), knows("bob", "cid", since=3), knows("ann", "bob", since=4))
    (edges,) = receipt.edges
    assert (edges.entities_loaded, edges.superseded, edges.repeated) == (3, 1, 0)
    assert held(graph) == {'["ann","bob"]': (4, None), '["bob","cid"]': (3, None)}


def test_an_append_is_a_conflict_that_names_the_key(graph: Graph, load: Load) -> None:
    before = files_of(Path(graph.uri))
    with pytest.raises(LoadKeyConflictError) as refused:
        load(knows("bob", "ann"), knows("ann", "bob"), mode="append")
    (example,) = refused.value.report.examples
    assert (example.value, example.line) == ('["ann","bob"]', 2)
    assert (refused.value.entity_kind, refused.value.type_name) == ("edge", "Knows")
    assert files_of(Path(graph.uri)) == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_two_records_of_one_key_are_refused(load: Load, mode: str) -> None:
    with pytest.raises(LoadRejectedError, match="is given 2 times") as refused:
        load(knows("bob", "ann"), knows("bob", "ann", since=1), mode=mode)
    assert refused.value.report.totals["duplicate id of Knows"] == 1


@each_case(("rule", "since"), [("first", 1), ("last", 2)])
def test_a_load_may_say_which_of_them_counts(graph: Graph, load: Load, rule: str, since: int) -> None:
    load(knows("bob", "ann", since=1), knows("bob", "ann", since=2), mode="overwrite", on_duplicate=rule)
    assert held(graph) == {'["bob","ann"]': (since, None)}


def test_an_id_that_a_record_brings_is_the_one_of_its_key(graph: Graph, load: Load) -> None:
    load({**knows("bob", "ann"), "id": '["bob","ann"]'})
    assert '["bob","ann"]' in held(graph)
    for given in ("e1", '["ann","bob"]', '["bob", "ann"]'):
        for grammar in ("strict", "compatible"):
            with pytest.raises(LoadRejectedError, match="id of Knows is not its key"):
                load({**knows("bob", "ann"), "id": given}, grammar=grammar)


def test_old_spellings_of_ends_are_old_spellings_of_the_edge(tmp_path: Path) -> None:
    """Exports of old give dates as texts, in the ids of nodes and so in those of their edges."""
    graph = Graph.init(tmp_path / "days.omni", "node Day { day: Date @key } edge Next: Day -> Day { @key(src, dst) }")
    lines = [
        *({"type": "Day", "data": {"id": day, "day": day}} for day in ("1970-01-02", "1970-01-03")),
        {"edge": "Next", "from": "1970-01-02", "to": "1970-01-03", "data": {"id": '["1970-01-02","1970-01-03"]'}},
    ]
    source = tmp_path / "days.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    graph.load(source, mode="append", engine="local", grammar="compatible")
    assert rows_of(graph, "edge:Next") == [{"id": '["1","2"]', "src": "1", "dst": "2"}]


def test_a_key_holds_when_two_writers_bring_it(graph: Graph, load: Load) -> None:
    """Both were open at the same commit; the later one replaces the edge of the earlier one."""
    with Graph.open(graph.uri) as other:
        other.refresh()
        run(graph, 'insert Knows { from: "bob", to: "cid", since: 1 }')
        run(other, 'insert Knows { from: "bob", to: "cid", since: 2 }')
    graph.refresh()
    assert held(graph)['["bob","cid"]'] == (2, None)


# ---- patches


def test_a_patch_finds_an_edge_by_its_key_or_its_id(graph: Graph, load: Load) -> None:
    load(rated("ann", 1.0, stars=1), rated("ann", 2.0, stars=1), knows("bob", "cid"))
    receipt = load(
        knows("ann", "bob", why="patched"),
        {"edge": "Knows", "id": '["bob","cid"]', "from": "bob", "data": {"since": 7}},
        rated("ann", 1.0, stars=5),
        mode="patch",
    )
    assert {item.name: item.patched for item in receipt.edges} == {"Knows": 2, "Rated": 1}
    assert held(graph) == {'["ann","bob"]': (1, "patched"), '["bob","cid"]': (7, None)}
    assert {row["ratio"]: row["stars"] for row in rows_of(graph, "edge:Rated")} == {1.0: 5, 2.0: 1}


def test_a_patch_may_insert_edges_that_are_not_there(graph: Graph, load: Load) -> None:
    load(knows("ann", "bob", since=9), knows("bob", "ann"), mode="patch", upsert=True)
    assert held(graph) == {'["ann","bob"]': (9, "first"), '["bob","ann"]': (None, None)}


def test_one_of_the_records_of_an_edge_patches_it(graph: Graph, load: Load) -> None:
    records = [knows("ann", "bob", since=2), {"edge": "Knows", "id": '["ann","bob"]', "data": {"since": 3}}]
    with pytest.raises(LoadRejectedError, match="is given 2 times"):
        load(*records, mode="patch")
    load(*records, mode="patch", on_duplicate="last")
    assert held(graph) == {'["ann","bob"]': (3, "first")}


def test_a_patch_of_a_frame_finds_edges_by_its_columns(graph: Graph, load: Load) -> None:
    graph.load(frames={"Knows": [{"from": "ann", "to": "bob", "since": 3}]}, mode="patch")
    assert held(graph) == {'["ann","bob"]': (3, "first")}
    graph.load(frames={"Knows": [{"id": '["ann","bob"]', "since": 4}]}, mode="patch")
    assert held(graph) == {'["ann","bob"]': (4, "first")}
    with pytest.raises(LoadRejectedError, match=r"give its key \(from, to\) or its `id`"):
        graph.load(frames={"Knows": [{"since": 5}]}, mode="patch")


def test_columns_of_a_table_make_the_key(graph: Graph, load: Load, tmp_path: Path) -> None:
    """Ends by the members of their keys, and a number that is a text in the file."""
    row = 'ann,"s""\\",1,a,1.50,1970-01-03'
    (tmp_path / "rated.csv").write_text(f"who,series,number,topic,ratio,day\n{row}\n", "utf-8")
    mapping = {
        "edges": {
            "Rated": {
                "source": str(tmp_path / "rated.csv"),
                "from": "who",
                "to": {"series": "series", "number": "number"},
                "columns": {"topic": "topic", "ratio": "ratio", "day": "day"},
            }
        }
    }
    for _ in range(2):
        graph.load(mapping=mapping, mode="merge", engine="local")
    (edge,) = rows_of(graph, "edge:Rated")
    assert json.loads(edge["id"]) == ["ann", SLOT_ID, "2", "1.5", "a"]


def test_a_unique_over_the_key_may_come_later(graph: Graph, load: Load) -> None:
    """It says nothing new, so no row is looked at."""
    graph.apply_schema(
        SCHEMA.replace("@key(src, dst, ratio,", "@unique(day, src, dst, ratio, topic)  @key(src, dst, ratio,")
    )
    load(rated("ann", 1.0, stars=1), rated("ann", 1.0, stars=2))
    assert [row["stars"] for row in rows_of(graph, "edge:Rated")] == [2]


@each_case(
    ("record", "message"),
    [
        (knows("bob", "ann"), 'unknown id of Knows: there is no edge \'["bob","ann"]\''),
        ({"edge": "Knows", "from": "ann", "data": {"since": 2}}, "missing key of Knows: nothing says which"),
        ({"edge": "Knows", "id": '["ann","bob"]', "to": "cid"}, "which a patch does not change"),
        ({**knows("ann", "cid"), "id": '["ann","bob"]'}, "id of Knows is not its key"),
        (
            {"edge": "Rated", "from": "ann", "to": SLOT_ID, "data": {"topic": "a"}},
            "give its key (from, to, day, ratio, topic) or its `id`",
        ),
        (
            {"edge": "Rated", "id": "x", "data": {"topic": "a"}},
            "the record has the id 'x' and a part of the key: give one of them",
        ),
    ],
)
def test_a_patch_whose_key_does_not_fit_is_refused(load: Load, record: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadRejectedError) as refused:
        load(record, mode="patch")
    (example,) = refused.value.report.examples
    assert message in example.message


# ---- the same source again


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_a_source_that_is_loaded_again_changes_what_changed_in_it(graph: Graph, load: Load, mode: str) -> None:
    upstream = [*PEOPLE, knows("ann", "bob", since=1), knows("ann", "cid", since=1), knows("bob", "cid", since=1)]
    first = load(*upstream, mode=mode).commit
    again = load(*upstream, mode=mode).commit
    assert told(graph, first.commit_id, again.commit_id) == {}
    upstream[-1] = knows("bob", "cid", since=2)
    upstream.append(knows("cid", "ann", since=3))
    upstream.pop(len(PEOPLE))
    last = load(*upstream, mode=mode).commit
    gone = {'["ann","bob"]': "delete"} if mode == "overwrite" else {}
    expected = gone | {'["bob","cid"]': "update", '["cid","ann"]': "insert"}
    assert told(graph, first.commit_id, last.commit_id) == expected
    told_by_commit = {change.id: str(change.op) for change in graph.changes(last.commit_id).changes}
    assert told_by_commit == expected


@pytest.mark.parametrize("name", ["bibliography", "dependencies"])
def test_the_examples_can_be_loaded_again(tmp_path: Path, name: str) -> None:
    folder = Path(__file__).parents[3] / "examples" / name
    with Graph.init(tmp_path / "example.omni", folder / "schema.pg") as example:
        first = example.load(folder / "data.jsonl", mode="append", engine="local")
        again = example.load(folder / "data.jsonl", mode="merge", engine="local")
        assert again.rows == first.rows
        assert told(example, first.commit.commit_id, again.commit.commit_id) == {}


def test_an_export_is_loaded_as_it_is(graph: Graph, load: Load, tmp_path: Path) -> None:
    load(rated("ann", 0.5), rated('d"é', 1.0, topic="x\n"), knows("bob", "ann"))
    graph.export(tmp_path / "export.jsonl", engine="local")
    graph.export(tmp_path / "parts", format="parquet", engine="local")
    inputs: list[dict[str, Any]] = [
        {"source": tmp_path / "export.jsonl"},
        {"mapping": tmp_path / "parts" / "mapping.yaml"},
    ]
    for number, given in enumerate(inputs):
        other = Graph.init(tmp_path / f"other{number}.omni", SCHEMA)
        for mode in ("append", "merge"):
            other.load(**given, mode=mode, engine="local")
            for key in ("edge:Knows", "edge:Rated"):
                assert rows_of(other, key) == rows_of(graph, key)
        assert other.verify().is_sound


# ---- the schema


def test_a_key_comes_with_its_type_and_never_later(graph: Graph, load: Load) -> None:
    wanted = SCHEMA + "edge Likes: Person -> Person { @key(src, dst) }\n"
    graph.apply_schema(wanted)
    run(graph, 'insert Likes { from: "ann", to: "bob" }')
    run(graph, 'insert Likes { from: "ann", to: "bob" }')
    assert [row["id"] for row in rows_of(graph, "edge:Likes")] == ['["ann","bob"]']
    for text in (wanted.replace("{ @key(src, dst) }\n", ""), wanted.replace("ratio, topic, day)", "ratio, topic)")):
        plan = graph.plan_schema(text)
        assert not plan.supported
        with pytest.raises(BadRequestError, match="@key"):
            graph.apply_schema(text)


def test_ids_stay_when_members_and_ends_are_renamed(graph: Graph, load: Load) -> None:
    load(rated("ann", 1.0, stars=1))
    (before,) = rows_of(graph, "edge:Rated")
    renamed = SCHEMA.replace("topic: String", 'a_topic: String @rename_from("topic")').replace(
        "topic, day)", "a_topic, day)"
    )
    graph.apply_schema(
        renamed.replace("node Slot {", 'node Place @rename_from("Slot") {').replace("-> Slot", "-> Place")
    )
    record = rated("ann", 1.0, stars=2)
    record["data"]["a_topic"] = record["data"].pop("topic")
    load(record)
    (after,) = rows_of(graph, "edge:Rated")
    assert (after["id"], after["stars"]) == (before["id"], 2)
