"""A load and a mutation are two ways to one graph: they accept the same batches and leave the same rows.

The same holds for the two engines of a load.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import LoadKeyConflictError, LoadRejectedError, OmniError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import keys as keys_module
from support.examples import examples
from support.spark import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

SCHEMA = """
node Paper {
    doi: String @key
    year: I32?
    score: F64?
    stage: enum(draft, final)?
    code: String?
    isbn: String? @unique
    room: String?
    slot: I32?
    @range(year, 0..9)
    @check(code, "^[a-z]*$")
    @unique(room, slot)
}
node Venue { series: String edition: I64 @key(series, edition) city: String? }
node Remark { text: String }
edge Cites: Paper -> Paper { weight: F64? @unique(src, dst) }
edge At: Paper -> Venue @card(0..1)
edge Rates: Paper -> Paper @card(0..2) { topic: String  stars: I32?  @key(src, dst, topic) @unique(topic, dst, src) }
edge Leads: Paper -> Paper @card(2..3) { kind: enum(a, b)? }
"""

_DOIS = st.sampled_from(["p1", "p2", "p3", 'q"\\'])
_VENUES = [("s", 1), ("s", 2), ('t"', 1)]


@dataclass(frozen=True)
class Row:
    """One record: the type, its values, for an edge its ends too."""

    type: str
    data: dict[str, Any]
    ends: tuple[str, str] | None = None


def _ends() -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(_DOIS, _DOIS)


def _present(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


def _venue_id(pair: tuple[str, int]) -> str:
    return json.dumps([str(pair[1]), pair[0]], separators=(",", ":"))


_PAPERS = st.tuples(
    _DOIS,
    _present(
        year=st.sampled_from([0, 5, 9, 9, 10]),
        score=st.sampled_from([0.1, -0.0]),
        stage=st.sampled_from(["draft", "final", "final", "other"]),
        code=st.sampled_from(["a", "b", "", "A"]),
        isbn=st.sampled_from(["i1", "i2", "i3", ""]),
        room=st.sampled_from(["r", "s"]),
        slot=st.integers(0, 2),
    ),
).map(lambda pair: Row("Paper", {"doi": pair[0], **pair[1]}))
_ROWS = st.one_of(
    _PAPERS,
    _PAPERS,
    st.sampled_from(_VENUES).map(lambda v: Row("Venue", {"series": v[0], "edition": v[1]})),
    st.sampled_from(["x", "y"]).map(lambda text: Row("Remark", {"text": text})),
    st.tuples(_ends(), _present(weight=st.just(0.5))).map(lambda p: Row("Cites", p[1], p[0])),
    st.tuples(_ends(), _DOIS, st.integers(0, 2)).map(lambda p: Row("Rates", {"topic": p[1], "stars": p[2]}, p[0])),
    st.tuples(_DOIS, st.sampled_from(_VENUES)).map(lambda p: Row("At", {}, (p[0], _venue_id(p[1])))),
    st.tuples(_DOIS, _DOIS, _DOIS, st.sampled_from(["a", "b", "c"])).map(
        lambda p: Row("Leads", {"kind": p[3]}, (p[0], p[1]))
    ),
)
_LEADING = st.tuples(_DOIS, st.integers(1, 4)).map(lambda p: [Row("Leads", {}, (p[0], "p1")) for _ in range(p[1])])
_BATCHES = st.tuples(st.lists(_ROWS, min_size=1, max_size=6), st.just([]) | st.just([]) | _LEADING).map(
    lambda pair: pair[0] + pair[1]
)
#: Rows that make most batches good: the ends that edges point at.
_GROUND = [
    *(Row("Paper", {"doi": doi}) for doi in ("p1", "p2", "p3", 'q"\\')),
    *(Row("Venue", {"series": s, "edition": n, "city": "c"}) for s, n in _VENUES),
]
_TYPES = {
    "doi": "String",
    "year": "I32",
    "score": "F64",
    "stage": "String",
    "code": "String",
    "isbn": "String",
    "room": "String",
    "slot": "I32",
    "series": "String",
    "edition": "I64",
    "city": "String",
    "text": "String",
    "weight": "F64",
    "kind": "String",
    "topic": "String",
    "stars": "I32",
    "from": "String",
    "to": "String",
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An empty graph, and one with rows in several fragments; examples work on copies."""
    folder = tmp_path_factory.mktemp("templates")
    empty = Graph.init(folder / "empty", SCHEMA)
    shutil.copytree(folder / "empty", folder / "full")
    full = Graph.open(folder / "full")
    mutate(full, _GROUND)
    more = [
        Row("Paper", {"doi": "p1", "isbn": "i1", "room": "r", "slot": 1, "year": 3}),
        Row("Remark", {"text": "old"}),
        Row("Cites", {}, ("p1", "p2")),
        Row("Rates", {"topic": "p1", "stars": 9}, ("p1", "p2")),
        Row("At", {}, ("p2", _venue_id(("s", 1)))),
        *(Row("Leads", {}, ("p3", "p1")) for _ in range(2)),
    ]
    mutate(full, more)
    leading = [Row("Leads", {}, ("p1", "p2")), Row("Leads", {}, ("p1", "p3"))]
    lines = folder / "leading.jsonl"
    lines.write_text(as_lines(leading, {0: "key5", 1: "key6"}), encoding="utf-8")
    full.load(lines, mode="append", engine="local")
    assert empty.snapshot().pins["node:Paper"].row_count == 0  # type: ignore[index]  # a table key is a text
    return {"empty": folder / "empty", "full": folder / "full"}


def mutate(graph: Graph, rows: list[Row]) -> Any:
    """All rows as statements of one mutation."""
    declared, statements, params = [], [], {}
    for number, row in enumerate(rows):
        values = dict(row.data)
        if row.ends is not None:
            values |= {"from": row.ends[0], "to": row.ends[1]}
        given = []
        for name, value in values.items():
            declared.append(f"${name}{number}: {_TYPES[name]}")
            params[f"{name}{number}"] = value
            given.append(f"{name}: ${name}{number}")
        statements.append(f"insert {row.type} {{ {', '.join(given)} }}")
    return graph.mutate(f"query q({', '.join(declared)}) {{ {' '.join(statements)} }}", params)


def as_lines(rows: list[Row], ids: dict[int, str] | None = None) -> str:
    """All rows as graph records; edges and keyless nodes may get ids."""
    lines = []
    for number, row in enumerate(rows):
        data = dict(row.data)
        if ids and number in ids and row.type not in ("Paper", "Venue", "Rates"):
            data["id"] = ids[number]
        if row.ends is None:
            lines.append({"type": row.type, "data": data})
        else:
            lines.append({"edge": row.type, "from": row.ends[0], "to": row.ends[1], "data": data})
    return "".join(json.dumps(line) + "\n" for line in lines)


def image(graph: Graph, *, with_ids: bool = False) -> dict[str, list[Any]]:
    """All rows of all types; generated ids are left out, those that keys make stay."""
    found: dict[str, list[Any]] = {}
    for key, pin in graph.snapshot().pins.items():
        table = lance.dataset(f"{graph.uri}/{pin.location}", version=pin.version).to_table()
        is_keyed = key in ("node:Paper", "node:Venue", "edge:Rates")
        if not with_ids and not is_keyed:
            table = table.drop_columns(["id"])
        rows = table.to_pylist()
        assert len(rows) == pin.row_count
        found[str(key)] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return found


def outcome(act: Any) -> OmniError | None:
    try:
        act()
    except OmniError as error:
        return error
    return None


#: Stable words of a refusal, by which the two ways are compared.
_WORDS = (
    *("@range violation on Paper.year", "@check violation on Paper.code", "invalid enum value"),
    *("@unique violation on Paper.isbn", "@unique violation on Paper.(room, slot)"),
    *("@unique violation on Cites.(src, dst)", "not found in", "@card violation on edge At"),
    *("@card violation on edge Leads", "@card violation on edge Rates"),
)


def words(error: OmniError) -> set[str]:
    return {word for word in _WORDS if word in error.message}


@pytest.mark.parametrize("start", ["empty", "full"])
@examples(10, thorough=20)
@given(batch=_BATCHES, ids=st.booleans(), grounded=st.integers(0, 3))
def test_a_merge_load_does_what_a_mutation_does(
    templates: dict[str, Path], start: str, batch: list[Row], ids: bool, grounded: int
) -> None:
    rows = [*_GROUND, *batch] if start == "empty" and grounded else batch
    given_ids = {n: f"id{n}" for n in range(len(rows)) if n % 2} if ids else None
    with tempfile.TemporaryDirectory() as folder:
        graphs = []
        for name in ("mutated", "loaded"):
            shutil.copytree(templates[start], f"{folder}/{name}")
            graphs.append(Graph.open(f"{folder}/{name}"))
        mutated, loaded = graphs
        source = Path(folder, "rows.jsonl")
        source.write_text(as_lines(rows, given_ids), encoding="utf-8")
        first = outcome(lambda: mutate(mutated, rows))
        with pytest.MonkeyPatch.context() as patch:
            if grounded % 2:
                # Keys are looked up instead of read, as in a large table.
                patch.setattr(keys_module, "_PROBE_SHARE", 0)
            second = outcome(lambda: loaded.load(source, mode="merge", engine="local"))
        assert (first is None) == (second is None), (first, second)
        assert image(mutated) == image(loaded)
        if first is None or second is None:
            return
        assert type(second).__mro__[1] is type(first) or type(second) is type(first)
        # A mutation reports the first violation, a load all of one stage.
        assert words(first), first
        if not words(first) <= words(second):
            values = set(_WORDS[:3])
            assert words(second) & values, (first, second)


def test_most_batches_are_neither_all_good_nor_all_bad(templates: dict[str, Path]) -> None:
    """Otherwise the comparison above would say little."""
    seen: set[bool] = set()

    @settings(max_examples=8, database=None)
    @given(batch=_BATCHES)
    def look(batch: list[Row]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(templates["full"], f"{folder}/g")
            seen.add(outcome(lambda: mutate(Graph.open(f"{folder}/g"), batch)) is None)

    look()
    assert seen == {True, False}


# ---- the two engines

_CHANGES = [
    Row("Paper", {"doi": "p2", "year": 1}),
    Row("Paper", {"doi": "new"}),
    Row("Paper", {"doi": "p1", "isbn": "i9"}),
    Row("Paper", {"doi": "p2", "year": 2}),
    Row("Cites", {"weight": 0.5}, ("new", "p1")),
    Row("Rates", {"topic": "p1", "stars": 1}, ("p1", "p2")),
    Row("Rates", {"topic": "t", "stars": 2}, ("p1", "p2")),
    Row("Rates", {"topic": "t", "stars": 3}, ("p1", "p2")),
]
#: Batch, mode, beginning, and whether Spark also does what is usually little enough for this process.
_ENGINE_BATCHES: list[tuple[list[Row], str, str, bool]] = [
    ([*_CHANGES, Row("Leads", {"kind": "a"}, ("p1", "p1"))], "merge", "full", True),
    # An edge moves away from its source, which then has too few.
    ([*_CHANGES, Row("Leads", {}, ("p2", "p1"))], "merge", "full", False),
    ([*_GROUND, Row("Cites", {}, ("p1", "p2")), Row("Remark", {"text": "x"})], "append", "empty", False),
    ([Row("Paper", {"doi": "z"}), Row("Paper", {"doi": "p1"})], "append", "full", False),
    ([Row("Paper", {"doi": "z"}), Row("Rates", {"topic": "p1"}, ("p1", "p2"))], "append", "full", False),
    (
        [Row("Rates", {"topic": "a"}, ("p1", "p2")), Row("Rates", {"topic": "a"}, ("p1", "p2"))],
        "overwrite",
        "full",
        False,
    ),
    ([Row("Remark", {"text": "only"}), Row("Cites", {}, ("p2", "p3"))], "overwrite", "full", False),
    ([Row("Paper", {"doi": "p2", "isbn": "i1"}), Row("Cites", {}, ("p1", "nobody"))], "merge", "full", False),
]


@pytest.mark.parametrize(("rows", "mode", "start", "is_large"), _ENGINE_BATCHES)
def test_both_engines_do_the_same(
    templates: dict[str, Path],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[Row],
    mode: str,
    start: str,
    is_large: bool,
) -> None:
    from omnigraph.spark import joins, worker_choice

    if is_large:
        sizes = {"small_rows": 0, "small_ids": 0, "broadcast_keys": 0}
        monkeypatch.setattr(joins.SparkJoins.__init__, "__kwdefaults__", sizes)
        monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)
    given_ids = {n: f"key{n}" for n in range(len(rows))}
    source = tmp_path / "rows.jsonl"
    source.write_text(as_lines(rows, given_ids), encoding="utf-8")
    results = []
    for engine in ("local", "spark"):
        shutil.copytree(templates[start], tmp_path / engine)
        graph = Graph.open(tmp_path / engine)
        before = row_ids(graph)
        receipt: Any = None
        report: Any = None
        try:
            options: dict[str, Any] = {"spark": spark} if engine == "spark" else {"engine": "local"}
            done = graph.load(source, mode=mode, **options)
            receipt = (done.rows, done.superseded, done.mode)
        except (LoadRejectedError, LoadKeyConflictError) as error:
            found = error.report
            report = (type(error), found.totals, sorted(map(str, found.examples)))
        after = row_ids(graph)
        if mode != "overwrite":
            assert {key: after[key] for key in before} == before
        kept = {key: row_id for key, row_id in after.items() if key in before}
        results.append((receipt, report, image(graph, with_ids=True), kept))
    assert results[0] == results[1]
    receipt, report = results[0][:2]
    assert (receipt is None) != (report is None)


def row_ids(graph: Graph) -> dict[tuple[str, str], int]:
    """The row id of every entity."""
    found = {}
    for key, pin in graph.snapshot().pins.items():
        dataset = lance.dataset(f"{graph.uri}/{pin.location}", version=pin.version)
        for row in dataset.to_table(columns=["id"], with_row_id=True).to_pylist():
            found[str(key), row["id"]] = row["_rowid"]
    return found


def test_the_engines_refuse_an_append_alike(templates: dict[str, Path], tmp_path: Path) -> None:
    """An id that exists is a conflict that names it, whatever else is in the input."""
    shutil.copytree(templates["full"], tmp_path / "g")
    graph = Graph.open(tmp_path / "g")
    source = tmp_path / "rows.jsonl"
    source.write_text(as_lines([Row("Paper", {"doi": "z"}), Row("Paper", {"doi": "p1"})]), "utf-8")
    with pytest.raises(LoadKeyConflictError, match="p1") as caught:
        graph.load(source, mode="append", engine="local")
    assert [(item.value, item.line) for item in caught.value.report.examples] == [("p1", 2)]
