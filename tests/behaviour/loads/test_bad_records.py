"""Every rule of load data, broken among many good lines: the report names the place, and the graph stays as it is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRecord, BadRequestError, LoadKeyConflictError, LoadRejectedError, LoadReport, OmniError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.sources import inputs as line_reading
from omnigraph.pipeline.sources import parts, records
from support.loads import edge, files_of, good_lines, ids_of, new_graph, rows_of, thing, write_lines
from support.subtests import each_case

FEW = 300
MANY = 20_000
#: The id of the committed place: the members of a key are ordered by name, the number comes first.
PLACE = '["1","s"]'


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph that no test changes: all that these tests do to it is refused."""
    return new_graph(tmp_path_factory.mktemp("graph") / "g.omni")


@pytest.fixture(scope="module")
def few() -> list[bytes]:
    return good_lines(FEW)


@pytest.fixture(scope="module")
def many() -> list[bytes]:
    return good_lines(MANY)


def root_of(graph: Graph) -> Path:
    from pathlib import Path

    return Path(graph._core.environment.location.uri)


def refused(graph: Graph, path: Path, mode: str = "append", **options: Any) -> Any:
    """The error of a load that must be refused, after a look that nothing of it is left."""
    before, commit = files_of(root_of(graph)), graph.snapshot().commit_id
    with pytest.raises(OmniError) as caught:
        graph.load(path, mode=mode, **({"engine": "local"} | options))
    assert graph.snapshot().commit_id == commit
    assert files_of(root_of(graph)) == before
    return caught.value


def cut_small(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Make parts of files so small that there are several."""
    monkeypatch.setattr(parts, "_SMALLEST_PART_BYTES", size)
    monkeypatch.setattr(parts, "_LARGEST_PART_BYTES", size)


def at(path: Path, line: int | None, **rest: Any) -> dict[str, Any]:
    return {"source": str(path), "line": line, "unit": "line", **rest}


# ---- one record alone


@dataclass(frozen=True, slots=True)
class Bad:
    """A record, and all that the report has to say about it besides its place."""

    name: str
    line: str | bytes
    rule: str
    words: str
    field: str | None = None
    value: str | None = None
    type_key: str | None = "node:Thing"

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> bytes:
        return self.line if isinstance(self.line, bytes) else self.line.encode()

    def expected(self, path: Path, line: int) -> dict[str, Any]:
        return at(path, line, type_key=self.type_key, field=self.field, value=self.value, rule=self.rule)


def no_record(name: str, line: str | bytes, words: str, rule: str = "invalid record", *about: str) -> Bad:
    """What is about no type, because it has none."""
    field, value = about or (None, None)
    return Bad(name, line, rule, words, field, value, type_key=None)


def unknown(name: str, line: str, field: str, value: str, words: str = "", rule: str = "unknown field") -> Bad:
    type_key = "edge:Near" if '"edge"' in line else "node:Thing"
    return Bad(name, line, rule, words or f"`{field}`", field, value, type_key)


def wrong(field: str, value: object, shown: str, words: str) -> Bad:
    """A value that does not fit its property."""
    name = f"{field} {value!r}"[:60]
    return Bad(name, thing("x", **{field: value}), f"invalid value for Thing.{field}", words, field, shown)


def raw(field: str, text: str, shown: str, words: str) -> Bad:
    """As `wrong`, for numbers that Python would spell in another way."""
    line = thing("x", **{field: 0}).replace(f'"{field}": 0', f'"{field}": {text}')
    return Bad(f"{field} {text}", line, f"invalid value for Thing.{field}", words, field, shown)


STRUCTURE = [
    no_record("no json", '{"type": "Thing", "data": {', "invalid JSON", "invalid JSON"),
    no_record("a text", "a, b, c", "invalid JSON", "invalid JSON"),
    no_record("two objects", f"{thing('x')} {thing('y')}", "Extra data", "invalid JSON"),
    no_record("not UTF-8", thing("x").encode().replace(b'"x"', b'"\xff"'), "UTF-8", "invalid JSON"),
    no_record("NaN", thing("x", f64=float("nan")), "NaN is not a JSON value", "invalid JSON"),
    no_record("infinity", thing("x", f64=float("inf")), "Infinity is not a JSON value", "invalid JSON"),
    *(
        no_record(
            f"duplicate member{where}", f'{{"type": "Thing", {text}}}', f"`{name}` is given twice", "duplicate member"
        )
        for where, name, text in (
            ("", "type", '"type": "Thing", "data": {}'),
            (" of the data", "must", '"data": {"name": "x", "must": 1, "must": 2}'),
            (" at depth", "b", '"data": {"name": "x", "must": 1, "tags": [{"a": {"b": 1, "b": 1}}]}'),
        )
    ),
    no_record("a list", "[1]", "a record is a JSON object"),
    no_record("neither type nor edge", '{"data": {}}', "`type` (node) or `edge`"),
    no_record("both type and edge", '{"type": "Thing", "edge": "Near"}', "not both"),
    no_record("unknown node type", '{"type": "Thin", "data": {}}', "mean `Thing`", "unknown type", "type", "Thin"),
    no_record(
        "node types are exact", '{"type": "thing", "data": {}}', "no node type `thing`", "unknown type", "type", "thing"
    ),
    no_record(
        "unknown edge type",
        '{"edge": "Far", "from": "a", "to": "b"}',
        "no edge type `Far`",
        "unknown type",
        "edge",
        "Far",
    ),
    no_record("a type that is no text", '{"type": 1, "data": {}}', "text", "unknown type", "type", "1"),
    Bad(
        "data is no object",
        '{"type": "Thing", "data": [1]}',
        "invalid record",
        "`data` is not an object",
        "data",
        "[1]",
    ),
    Bad("data is null", '{"type": "Thing", "data": null}', "invalid record", "`data` is not an object", "data"),
    unknown("unknown envelope field", thing("x").replace('"data"', '"extra": 7, "data"'), "extra", "7"),
    unknown("ends of a node", thing("x").replace('"data"', '"from": "ann", "data"'), "from", "ann"),
    unknown("unknown data field", thing("x", txt="hello"), "txt", "hello", words="did you mean `text`"),
    unknown("unknown field of an edge", edge("Near", "bob", PLACE, wait=1), "wait", "1"),
    *(
        unknown(f"reserved {name}", thing("x", **{name: 1}), name, "1", rule="reserved field")
        for name in ("_rowid", "_rowaddr", "_tombstone", "src", "dst")
    ),
    unknown("src in the data of an edge", edge("Near", "bob", PLACE, src="bob"), "src", "bob", rule="reserved field"),
]

NULL = "may not be null"
VALUES = [
    Bad("a missing value", '{"type": "Thing", "data": {"name": "x"}}', "missing value for Thing.must", NULL, "must"),
    Bad("a null value", thing("x", must=None), "missing value for Thing.must", NULL, "must"),
    Bad("a missing key", '{"type": "Thing", "data": {"must": 1}}', "missing value for Thing.name", NULL, "name"),
    wrong("must", "1", "1", "is not"),
    wrong("text", 7, "7", "String"),
    wrong("text", ["a"], "['a']", "String"),
    wrong("flag", "true", "true", "Bool"),
    wrong("flag", 0, "0", "Bool"),
    wrong("i32", "7", "7", "I32"),
    wrong("i32", True, "true", "I32"),
    wrong("i32", 1.5, "1.5", "I32"),
    wrong("i64", {"a": 1}, "{'a': 1}", "I64"),
    wrong("u32", [1], "[1]", "U32"),
    wrong("u64", "1", "1", "U64"),
    wrong("f32", "0.5", "0.5", "F32"),
    wrong("f64", True, "true", "F64"),
    wrong("i32", 2**31, "2147483648", "range"),
    wrong("i32", -(2**31) - 1, "-2147483649", "range"),
    wrong("i64", 2**63, "9223372036854775808", "range"),
    wrong("i64", -(2**63) - 1, "-9223372036854775809", "range"),
    wrong("u32", 2**32, "4294967296", "range"),
    wrong("u32", -1, "-1", "range"),
    wrong("u64", 2**64, "18446744073709551616", "range"),
    wrong("u64", -1, "-1", "range"),
    raw("f64", "1e999", "inf", "finite"),
    raw("f32", "-1e999", "-inf", "finite"),
    wrong("f32", 3.5e38, "3.5e+38", "F32"),
    wrong("day", "2023-02-29", "2023-02-29", "not a day of the calendar"),
    wrong("day", "29.2.2024", "29.2.2024", "YYYY-MM-DD"),
    wrong("day", 2**31, "2147483648", "range"),
    wrong("day", 0.5, "0.5", "Date"),
    wrong("at", "2024-13-01T00:00:00Z", "2024-13-01T00:00:00Z", "not a time of the calendar"),
    wrong("at", "2024-01-01T00:00:00.0001Z", "2024-01-01T00:00:00.0001Z", "milliseconds"),
    wrong("at", "yesterday", "yesterday", "YYYY-MM-DD"),
    wrong("at", False, "false", "DateTime"),
    wrong("stage", 1, "1", "String"),
    wrong("tags", "a", "a", "list"),
    wrong("tags", ["a", None], "['a', None]", "item 2: null"),
    wrong("tags", ["a", 1], "['a', 1]", "item 2"),
    wrong("counts", [1, 2**63], "[1, 9223372036854775808]", "item 2"),
    wrong("vec", [1.0, 2.0], "[1.0, 2.0]", "3"),
    wrong("vec", [1.0, 2.0, 3.0, 4.0], "[1.0, 2.0, 3.0, 4.0]", "3"),
    wrong("vec", [1, None, 3], "[1, None, 3]", "null"),
    wrong("vec", [1, "2", 3], "[1, '2', 3]", '"2"'),
    wrong("vec", [1, True, 3], "[1, True, 3]", "true"),
    wrong("vec", [1.0, 1e39, 3.0], "[1.0, 1e+39, 3.0]", "F32"),
    wrong("vec", "1,2,3", "1,2,3", "list"),
    wrong("data", "base64:a b", "base64:a b", "base64"),
    wrong("data", "base64:YQ", "base64:YQ", "base64"),
    wrong("data", 1, "1", "Blob"),
    wrong("data", "s3://bucket/x.png", "s3://bucket/x.png", "external blob is not allowed"),
    wrong("data", "file:///etc/passwd", "file:///etc/passwd", "external blob is not allowed"),
    Bad(
        "an enum", thing("x", stage="printed"), "invalid enum value for Thing.stage", "draft, final", "stage", "printed"
    ),
    Bad(
        "an enum of an edge",
        edge("Near", "bob", PLACE, role="third"),
        "invalid enum value for Near.role",
        *("first, last", "role", "third", "edge:Near"),
    ),
    Bad("below a range", thing("x", year=1599), "@range violation on Thing.year", "1600..2100", "year", "1599"),
    Bad("above a range", thing("x", year=2101), "@range violation on Thing.year", "1600..2100", "year", "2101"),
    Bad("a check", thing("x", code="ab1"), "@check violation on Thing.code", "^[A-Z]{2}[0-9]+$", "code", "ab1"),
    Bad(
        "a check that a line break does not pass",
        thing("x", code="AB1\n"),
        "@check violation on Thing.code",
        *("does not match", "code", "AB1\n"),
    ),
    Bad("an id that is not the key", thing("x", id="y"), "id of Thing is not its key", "the key makes 'x'", "id", "y"),
    Bad(
        "an id that spells the members in another order",
        '{"type": "Place", "data": {"series": "q", "number": 7, "id": "[\\"q\\",\\"7\\"]"}}',
        "id of Place is not its key",
        *("the key makes", "id", '["q","7"]', "node:Place"),
    ),
    Bad(
        "an id that is no text",
        '{"type": "Note", "data": {"id": 7, "text": "a"}}',
        "invalid `id` of Note",
        *("String", "id", "7", "node:Note"),
    ),
    Bad(
        "an edge without a source",
        f'{{"edge": "Near", "to": {json.dumps(PLACE)}}}',
        "missing `from` of Near",
        *("needs the id of a Thing", "from", None, "edge:Near"),
    ),
    Bad(
        "an edge without a target",
        '{"edge": "Near", "from": "bob", "to": null}',
        "missing `to` of Near",
        *("needs the id of a Place", "to", None, "edge:Near"),
    ),
    Bad(
        "an end that is no text",
        '{"edge": "Leads", "from": "bob", "to": 7}',
        "invalid `to` of Leads",
        *("String", "to", "7", "edge:Leads"),
    ),
]
EVERY = [*STRUCTURE, *VALUES]


def told(record: BadRecord) -> dict[str, Any]:
    """What a report says about a record, without the message."""
    body = dict(record.to_json())
    del body["message"]
    return body


def spread(lines: Sequence[bytes], bad: Sequence[Bad]) -> tuple[list[bytes], list[int]]:
    """The lines with each bad one in place of an edge, at about even distances; and at which lines they are."""
    step = len(lines) // len(bad)
    places = [(number + 1) * step // 5 * 5 for number in range(len(bad))]
    changed = list(lines)
    for place, item in zip(places, bad, strict=True):
        changed[place - 1] = item.bytes
    return changed, places


def by_place(report: LoadReport) -> list[dict[str, Any]]:
    return sorted((told(record) for record in report.examples), key=lambda item: item["line"])


@pytest.fixture(scope="module")
def scattered(
    graph: Graph, many: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, int], LoadRejectedError]:
    """One file with every bad record among 20,000 lines, where each one is at, and how its load ends.

    Blocks are so small that each bad record is alone among good ones: all others are read the fast way.
    """
    lines, places = spread(many, EVERY)
    path = write_lines(tmp_path_factory.mktemp("scattered") / "in.jsonl", lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reading, "_BLOCK_BYTES", 8 * 1024)
        error = refused(graph, path)
    return path, {str(bad): place for bad, place in zip(EVERY, places, strict=True)}, error


@each_case("bad", EVERY, ids=str)
def test_a_bad_record_among_good_ones_is_named_with_its_line_field_value_and_rule(
    scattered: tuple[Path, dict[str, int], LoadRejectedError], bad: Bad
):
    path, places, error = scattered
    line = places[str(bad)]
    (record,) = [record for record in error.report.examples if record.line == line]
    assert told(record) == bad.expected(path, line)
    assert bad.words in record.message
    assert record.location == f"{path}:{line}"


def test_nothing_but_the_bad_records_is_complained_about(scattered: tuple[Path, dict[str, int], LoadRejectedError]):
    _, places, error = scattered
    assert len(places) == len(EVERY), "every name once"
    assert type(error) is LoadRejectedError
    assert error.report.totals == Counter(bad.rule for bad in EVERY)
    assert sorted(record.line or 0 for record in error.report.examples) == sorted(places.values())


@pytest.mark.parametrize("bad", [STRUCTURE[0], VALUES[0], VALUES[-1]], ids=str)
def test_a_single_bad_record_refuses_the_whole_load_and_its_message_says_where(
    graph: Graph, few: list[bytes], tmp_path: Path, bad: Bad
):
    line = FEW // 2
    path = write_lines(tmp_path / "in.jsonl", [*few[: line - 1], bad.bytes, *few[line:]])
    error = refused(graph, path)
    assert error.report.totals == {bad.rule: 1}
    (record,) = error.report.examples
    assert told(record) == bad.expected(path, line)
    assert f"{path}:{line}: {record.message}" in str(error)


def test_every_bad_record_in_many_lines_of_several_parts_is_found_and_the_mended_file_loads(
    many: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
):
    cut_small(monkeypatch, 192 * 1024)
    graph = new_graph(tmp_path / "g.omni")
    # In the second part and in the last one: the others are read the fast way.
    first, second = EVERY[::2], EVERY[1::2]
    some, places = spread(many[3_000:5_000], first)
    more, more_places = spread(many[18_000:], second)
    path = write_lines(tmp_path / "in.jsonl", [*many[:3_000], *some, *many[5_000:18_000], *more])
    assert len(parts.cut_graph_files(str(path), 2, is_strict=True)) > 5
    error = refused(graph, path, engine="spark", spark=spark)
    assert type(error) is LoadRejectedError
    assert by_place(error.report) == [
        *(bad.expected(path, 3_000 + line) for bad, line in zip(first, places, strict=True)),
        *(bad.expected(path, 18_000 + line) for bad, line in zip(second, more_places, strict=True)),
    ]
    assert error.report.total == len(EVERY)

    write_lines(path, many)
    result = graph.load(path, mode="append", engine="spark", spark=spark)
    assert sum(result.rows.values()) == MANY
    assert len(rows_of(graph, "node:Thing")) == 3 + MANY * 2 // 5
    assert len(rows_of(graph, "edge:Leads")) == 1 + MANY // 5


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_lines_are_counted_over_files_comments_and_blank_lines(
    graph: Graph, tmp_path: Path, engine: str, request: pytest.FixtureRequest
):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    folder = tmp_path / "in"
    folder.mkdir()
    first = write_lines(folder / "a.jsonl", [b"\xef\xbb\xbf// a comment", b"", b"  ", b"{"])
    second = write_lines(folder / "b.jsonl", [b"//", thing("x").encode() + b"\r", thing("y", i32="1").encode()])
    error = refused(graph, folder, engine=engine, spark=spark)
    assert [(record.source, record.line) for record in error.report.examples] == [(str(first), 4), (str(second), 3)]


def test_several_faults_of_one_record_are_all_told(graph: Graph, tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [thing("x", i32="a", year=1, code="-", must=None).encode()])
    error = refused(graph, path)
    assert error.report.totals == {
        "invalid value for Thing.i32": 1,
        "missing value for Thing.must": 1,
        "@range violation on Thing.year": 1,
        "@check violation on Thing.code": 1,
    }


@pytest.mark.parametrize("block", [64 * 1024, 8 * 1024 * 1024], ids=["over blocks", "in a block"])
def test_a_line_that_is_too_long_is_refused_and_the_lines_behind_it_keep_their_numbers(
    graph: Graph, few: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
):
    monkeypatch.setattr(line_reading, "_BLOCK_BYTES", block)
    for module in (line_reading, records):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 100_000)
    long = thing("x", text="a" * 400_000).encode()
    lines = [*few[:9], long, *few[10:19], b"{", *few[20:]]
    path = write_lines(tmp_path / "in.jsonl", lines)
    error = refused(graph, path)
    assert error.report.totals == {"line too long": 1, "invalid JSON": 1}
    assert [(item.rule, item.line) for item in error.report.examples] == [("line too long", 10), ("invalid JSON", 20)]
    assert "97.7 KiB" in error.report.examples[0].message


def test_a_line_of_the_allowed_length_is_loaded(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = thing("x", text="a" * 400_000).encode()
    path = write_lines(tmp_path / "in.jsonl", [line])
    monkeypatch.setattr(line_reading, "_BLOCK_BYTES", 64 * 1024)
    for module in (line_reading, records):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", len(line))
    assert graph.load(path, mode="append", engine="local", dry_run=True).rows == {"node:Thing": 1}
    for module in (line_reading, records):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", len(line) - 1)
    assert refused(graph, path).report.totals == {"line too long": 1}


def test_a_line_of_too_many_structural_tokens_is_refused(graph: Graph, few: list[bytes], tmp_path: Path):
    line = thing("x", counts=[0] * 131_072).encode()
    path = write_lines(tmp_path / "in.jsonl", [*few, line])
    error = refused(graph, path)
    assert [(item.rule, item.line) for item in error.report.examples] == [("line too complex", FEW + 1)]


def test_deep_nesting_is_a_bad_record_and_no_crash(graph: Graph, tmp_path: Path):
    line = b'{"type": "Thing", "data": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    error = refused(graph, write_lines(tmp_path / "in.jsonl", [line]))
    assert error.report.total == 1
    assert error.report.examples[0].line == 1


# ---- totals and examples


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_totals_count_all_violations_and_the_first_100_of_each_rule_are_shown(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, request: pytest.FixtureRequest
):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    cut_small(monkeypatch, 64 * 1024)
    lines = good_lines(5000)
    years, numbers = range(10, 2510, 10), range(5, 1205, 10)
    for line in years:
        lines[line - 1] = thing(f"x{line}", year=line + 3000).encode()
    for line in numbers:
        lines[line - 1] = thing(f"x{line}", i32="?").encode()
    path = write_lines(tmp_path / "in.jsonl", lines)
    error = refused(graph, path, engine=engine, spark=spark)
    report = error.report
    assert report.totals == {"@range violation on Thing.year": 250, "invalid value for Thing.i32": 120}
    assert report.total == 370
    shown = {rule: [item.line for item in report.examples if item.rule == rule] for rule in report.totals}
    assert shown == {
        "@range violation on Thing.year": list(years)[:100],
        "invalid value for Thing.i32": list(numbers)[:100],
    }


def test_a_report_reads_well_and_survives_json(graph: Graph, tmp_path: Path):
    lines = [thing(f"x{number}", year=1).encode() for number in range(250)]
    path = write_lines(tmp_path / "in.jsonl", lines)
    error = refused(graph, path)
    assert error.report.render(2).splitlines() == [
        "@range violation on Thing.year: 250 records",
        f"  {path}:1: @range violation on Thing.year: 1 is outside 1600..2100",
        f"  {path}:2: @range violation on Thing.year: 1 is outside 1600..2100",
        "  … and 248 more",
        "relations (ends of edges, @unique, counts) were checked without the 250 records that are wrong by themselves",
    ]
    assert len(error.report.render().splitlines()) == 103
    body = json.loads(json.dumps(error.to_json()))
    assert (body["kind"], body["code"], error.http_status) == ("bad_request", "bad_request", 400)
    assert body["error"].startswith("the load was refused, nothing was written: 250 violations\n")
    assert "… and 240 more" in body["error"]
    assert body["report"]["total"] == 250
    rules = {item["rule"]: item for item in body["report"]["rules"]}
    assert {name: item["total"] for name, item in rules.items()} == error.report.totals
    assert len(rules["@range violation on Thing.year"]["examples"]) == 100
    assert rules["@range violation on Thing.year"]["examples"][0] == at(
        path,
        1,
        type_key="node:Thing",
        field="year",
        value="1",
        rule="@range violation on Thing.year",
        message="@range violation on Thing.year: 1 is outside 1600..2100",
    )


def test_a_report_of_text_that_is_no_text_can_be_written_to_a_file(graph: Graph, tmp_path: Path):
    lines = [
        thing("x", text="a\ud800b").encode(),
        b'{"type": "a\\ud800b"}',
        b'{"type": "Thing", "data": {"name": "x", "must": 1, "a\\ud800b": 1}}',
    ]
    error = refused(graph, write_lines(tmp_path / "in.jsonl", lines))
    assert error.report.total == 3
    (tmp_path / "out.txt").write_text(str(error), encoding="utf-8")
    (tmp_path / "out.json").write_text(json.dumps(error.to_json(), ensure_ascii=False), encoding="utf-8")


def test_a_long_value_is_cut_in_the_report(graph: Graph, tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [thing("x", code="a" * 5000).encode()])
    (record,) = refused(graph, path).report.examples
    assert record.value == "a" * 200 + "… (5,000 characters)"


# ---- rules between records


@dataclass(frozen=True, slots=True)
class Broken:
    """Records behind good ones that break a rule between rows, and the examples: position, field, value, rule."""

    name: str
    lines: tuple[str, ...]
    examples: tuple[tuple[int, str, str, str], ...]
    words: str = ""
    modes: tuple[str, ...] = ("append", "merge")
    total: int | None = None

    @property
    def type_key(self) -> str:
        record = json.loads(self.lines[-1])
        return f"edge:{record['edge']}" if "edge" in record else f"node:{record['type']}"


UNIQUE = "@unique violation on Thing.isbn"
COMPOSITE = "@unique violation on Thing.(room, slot)"
ALL_MODES = ("append", "merge", "overwrite")
FIRST_ROWS = ("append", "overwrite")
BETWEEN = [
    Broken(
        "a key given twice",
        (thing("x1"), thing("x2"), thing("x1")),
        ((1, "id", "x1", "duplicate id of Thing"),),
        "'x1' of Thing is given 2 times",
        FIRST_ROWS,
    ),
    Broken(
        "a composite key given twice",
        ('{"type": "Place", "data": {"series": "q", "number": 1}}',) * 3,
        ((1, "id", '["1","q"]', "duplicate id of Place"),),
        "given 3 times",
        FIRST_ROWS,
        2,
    ),
    Broken(
        "an explicit id given twice",
        ('{"type": "Note", "data": {"id": "n", "text": "a"}}',) * 2,
        ((1, "id", "n", "duplicate id of Note"),),
        modes=FIRST_ROWS,
    ),
    Broken(
        "an explicit id of an edge given twice",
        (edge("Near", "bob", PLACE, id="e"),) * 2,
        ((1, "id", "e", "duplicate id of Near"),),
        modes=FIRST_ROWS,
    ),
    Broken(
        "a unique value twice in the input",
        (thing("x1", isbn="q"), thing("x2", isbn="q")),
        ((2, "isbn", "q", UNIQUE),),
        "'q' belongs to 'x1' and to 'x2'",
        ALL_MODES,
    ),
    Broken(
        "a unique value of a committed row",
        (thing("x1", isbn="i-ann"),),
        ((1, "isbn", "i-ann", UNIQUE),),
        "'i-ann' belongs to 'x1' and to 'ann'",
    ),
    Broken(
        "a unique value in the input and in a committed row",
        (thing("x1", isbn="q"), thing("x2", isbn="i-ann"), thing("x3", isbn="q")),
        ((2, "isbn", "i-ann", UNIQUE), (3, "isbn", "q", UNIQUE)),
    ),
    Broken(
        "a unique pair twice in the input",
        (thing("x1", room="r", slot=1), thing("x2", room="r", slot=2), thing("x3", room="r", slot=1)),
        ((3, "room, slot", "(r, 1)", COMPOSITE),),
        "belongs to 'x1' and to 'x3'",
        ALL_MODES,
    ),
    Broken(
        "a unique pair of a committed row",
        (thing("x1", room="a", slot=1),),
        ((1, "room, slot", "(a, 1)", COMPOSITE),),
        "belongs to 'x1' and to 'ann'",
    ),
    Broken(
        "a missing source",
        (edge("Near", "bob", PLACE), edge("Near", "ghost", PLACE)),
        ((2, "from", "ghost", "src of Near not found in Thing"),),
        "src 'ghost' not found in Thing",
        ALL_MODES,
    ),
    Broken(
        "a missing target",
        (edge("near", "bob", "ghost"), edge("Near", "ann", "bob")),
        ((1, "to", "ghost", "dst of Near not found in Place"), (2, "to", "bob", "dst of Near not found in Place")),
        "not found in Place",
        ALL_MODES,
    ),
    Broken(
        "more edges than allowed in the input",
        (edge("Leads", "bob", "ann"), edge("Leads", "bob", "cid")),
        ((2, "from", "bob", "@card violation on edge Leads"),),
        "'bob' has 2 edges, allowed are 0..1",
        ALL_MODES,
    ),
    Broken(
        "more edges than allowed with committed ones",
        (edge("Leads", "ann", "cid"),),
        ((1, "from", "ann", "@card violation on edge Leads"),),
        "'ann' has 2 edges, allowed are 0..1",
    ),
    Broken(
        "fewer edges than needed",
        (edge("Reviews", "bob", "ann"),),
        ((1, "from", "bob", "@card violation on edge Reviews"),),
        "'bob' has 1 edges, allowed are 2..3",
        ALL_MODES,
    ),
    Broken(
        "more edges than allowed where some are needed",
        (edge("Reviews", "ann", "ann"), edge("Reviews", "ann", "ann")),
        ((2, "from", "ann", "@card violation on edge Reviews"),),
        "'ann' has 4 edges, allowed are 2..3",
    ),
]
#: What keeps an overwrite from stranding the edges that stay.
PLACE_LINE = b'{"type": "Place", "data": {"series": "s", "number": 1}}'
KEPT = (*(thing(name).encode() for name in ("ann", "bob", "cid")), PLACE_LINE)
RELATIONS = [pytest.param(item, mode, id=f"{item.name}-{mode}") for item in BETWEEN for mode in item.modes]


@each_case(("broken", "mode"), RELATIONS)
def test_a_rule_between_records_names_the_record_that_breaks_it(
    graph: Graph, few: list[bytes], tmp_path: Path, broken: Broken, mode: str
):
    good = [*few, *KEPT] if mode == "overwrite" else few
    path = write_lines(tmp_path / "in.jsonl", [*good, *(line.encode() for line in broken.lines), *[b"//"] * 9])
    error = refused(graph, path, mode)
    assert type(error) is LoadRejectedError
    assert by_place(error.report) == [
        at(path, len(good) + position, type_key=broken.type_key, field=field, value=value, rule=rule)
        for position, field, value, rule in broken.examples
    ]
    assert error.report.total == (broken.total or len(broken.examples))
    assert all(broken.words in record.message for record in error.report.examples)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_the_good_records_around_the_broken_ones_load_in_every_mode(
    graph: Graph, few: list[bytes], tmp_path: Path, mode: str
):
    good = [*few, *KEPT] if mode == "overwrite" else few
    path = write_lines(tmp_path / "good.jsonl", good)
    result = graph.load(path, mode=mode, engine="local", dry_run=True)
    assert sum(result.rows.values()) == len(good)


def test_an_append_of_existing_ids_names_them_all_and_is_a_conflict(graph: Graph, few: list[bytes], tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [*few[:9], thing("cid").encode(), *few[10:], thing("bob").encode()])
    error = refused(graph, path)
    assert type(error) is LoadKeyConflictError
    assert (error.entity_kind, error.type_name, error.entity_id) == ("node", "Thing", "cid")
    assert error.report.totals == {"key_conflict of Thing": 2}
    assert [told(record) for record in error.report.examples] == [
        at(path, 10, type_key="node:Thing", field="id", value="cid", rule="key_conflict of Thing"),
        at(path, FEW + 1, type_key="node:Thing", field="id", value="bob", rule="key_conflict of Thing"),
    ]
    body = json.loads(json.dumps(error.to_json()))
    assert (body["kind"], body["code"], error.http_status) == ("key_conflict", "conflict", 409)
    assert body["key_conflict"] == {"entity_kind": "node", "type_name": "Thing", "entity_id": "cid"}
    assert body["report"] == error.report.to_json()
    assert f"{path}:10: a node of type Thing with id 'cid' exists already" in body["error"]


def test_an_overwrite_that_strands_edges_names_the_edges_of_the_graph(graph: Graph, tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [thing("ann").encode(), thing("bob").encode()])
    error = refused(graph, path, "overwrite")
    assert type(error) is LoadRejectedError
    (found,) = error.report.examples
    rule = "dst of Reviews not found in Thing"
    assert told(found) == at(path, None, type_key="edge:Reviews", field="to", value="cid", rule=rule) | {
        "source": "graph"
    }
    assert found.location == "graph"
    assert re.fullmatch(r"edge Reviews '[0-9A-Z]{26}': dst 'cid' not found in Thing", found.message)
    # The last rows of a composite key.
    path = write_lines(path, [b'{"type": "Place", "data": {"series": "s", "number": 2}}'])
    (found,) = refused(graph, path, "overwrite").report.examples
    assert (found.type_key, found.field, found.value) == ("edge:Near", "to", PLACE)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_totals_between_records_are_exact_and_no_rule_shows_more_than_100(graph: Graph, tmp_path: Path, mode: str):
    lines = [
        *(edge("Near", f"ghost{number:03}", PLACE) for number in range(250)),
        *(thing(f"x{number:03}-{n}", isbn=f"q{number:03}") for number in range(120) for n in "abc"),
        *(edge("Leads", "bob", "cid") for _ in range(7)),
    ]
    path = write_lines(tmp_path / "in.jsonl", [line.encode() for line in lines])
    report = refused(graph, path, mode).report
    assert report.totals == {UNIQUE: 240, "src of Near not found in Thing": 250, "@card violation on edge Leads": 1}
    shown = {rule: [x for x in report.examples if x.rule == rule] for rule in report.totals}
    assert {rule: len(found) for rule, found in shown.items()} == {
        UNIQUE: 100,
        "src of Near not found in Thing": 100,
        "@card violation on edge Leads": 1,
    }
    assert [item.line for item in shown["src of Near not found in Thing"]] == list(range(1, 101))
    assert "has 7 edges" in shown["@card violation on edge Leads"][0].message


def test_a_rule_that_is_broken_inside_the_input_and_against_the_graph_shows_100_in_all(tmp_path: Path):
    graph = new_graph(tmp_path / "g.omni")
    old = [thing(f"old{number}", isbn=f"o{number}").encode() for number in range(150)]
    graph.load(write_lines(tmp_path / "old.jsonl", old), mode="append", engine="local")
    lines = [thing(f"x{number}", isbn=f"o{number}").encode() for number in range(150)]
    lines += [thing(f"y{number}", isbn=f"q{number % 150}").encode() for number in range(300)]
    report = refused(graph, write_lines(tmp_path / "in.jsonl", lines)).report
    assert report.totals == {UNIQUE: 300}
    assert len(report.examples) == 100


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_rules_between_records_of_many_parts_are_checked_by_spark_in_the_same_words(
    many: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any, mode: str
):
    cut_small(monkeypatch, 128 * 1024)
    graph = new_graph(tmp_path / "g.omni")
    broken = [
        thing("x1", isbn="q"),
        thing("x2", isbn="i-ann"),
        edge("Near", "ghost", PLACE),
        thing("x3", isbn="q"),
        edge("Near", "bob", "ghost"),
        edge("Leads", "ann", "bob"),
        thing("x4", room="a", slot=1),
    ]
    size = len(many) // (len(broken) + 1)
    places = [(number + 1) * size for number in range(len(broken))]
    lines = list(many)
    for shift, (place, line) in enumerate(zip(places, broken, strict=True)):
        lines.insert(place + shift - 1, line.encode())
    numbers = [place + shift for shift, place in enumerate(places)]
    path = write_lines(tmp_path / "in.jsonl", lines)
    report = refused(graph, path, mode, engine="spark", spark=spark).report
    assert report.total == 6
    assert sorted((item.line, item.field, item.rule) for item in report.examples) == [
        (numbers[1], "isbn", UNIQUE),
        (numbers[2], "from", "src of Near not found in Thing"),
        (numbers[3], "isbn", UNIQUE),
        (numbers[4], "to", "dst of Near not found in Place"),
        (numbers[5], "from", "@card violation on edge Leads"),
        (numbers[6], "room, slot", COMPOSITE),
    ]


#: Records that are wrong by themselves among others, what they are refused for, and what refers to them.
MIXED = [
    (thing("x1", year=1), "@range violation on Thing.year"),
    (thing("x2", txt="t"), "unknown field"),
    ('{"type": "Thing", "data": {"must": 1}}', "missing value for Thing.name"),
    ("{", "invalid JSON"),
    (thing("x3", isbn="q"), None),
    (thing("x4", isbn="q"), UNIQUE),
    (edge("Near", "x1", PLACE), "src of Near is a bad record of Thing"),
    (edge("Near", "ghost", PLACE), "src of Near not found in Thing"),
    (edge("Leads", "x3", "x2"), "dst of Leads is a bad record of Thing"),
    (edge("Leads", "x3", "x4"), "@card violation on edge Leads"),
    (edge("Near", "x2", PLACE, role="third"), "invalid enum value for Near.role"),
]


@pytest.mark.parametrize(("mode", "engine"), [("append", "local"), ("merge", "local"), ("merge", "spark")])
def test_one_report_names_wrong_values_and_what_is_wrong_between_the_other_records(
    graph: Graph,
    tmp_path: Path,
    mode: str,
    engine: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
):
    options: dict[str, Any] = {"engine": engine}
    if engine == "spark":
        from omnigraph.spark import worker_choice

        # Little data goes the way of much data.
        monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)
        options["spark"] = request.getfixturevalue("spark")
    path = write_lines(tmp_path / "in.jsonl", [line.encode() for line, _ in MIXED])
    error = refused(graph, path, mode, **options)
    assert type(error) is LoadRejectedError
    expected = {line: rule for line, (_, rule) in enumerate(MIXED, start=1) if rule is not None}
    assert {record.line: record.rule for record in error.report.examples} == expected
    assert error.report.totals == Counter(expected.values())
    assert (error.report.relations_checked, error.report.not_compared) == (True, 5)
    assert error.message.endswith("were checked without the 5 records that are wrong by themselves")
    texts = {record.line: record.message for record in error.report.examples}
    assert texts[9] == "edge Leads: dst 'x2' is a bad record of Thing"


def test_an_edge_to_a_row_that_exists_is_good_whatever_the_record_of_its_node_is(tmp_path: Path):
    """The record would replace the row, which stays."""
    graph = new_graph(tmp_path / "g.omni")
    lines = [thing("ann", year=1).encode(), edge("Near", "ann", PLACE).encode()]
    report = refused(graph, write_lines(tmp_path / "in.jsonl", lines), "merge").report
    assert report.totals == {"@range violation on Thing.year": 1}
    # An overwrite takes the row away.
    lines += KEPT[1:]
    report = refused(graph, write_lines(tmp_path / "in.jsonl", lines), "overwrite").report
    assert report.totals == {
        "@range violation on Thing.year": 1,
        "src of Near is a bad record of Thing": 1,
        "src of Leads is a bad record of Thing": 1,
        "src of Reviews is a bad record of Thing": 2,
    }


def test_wrong_values_and_ids_that_exist_are_no_conflict(graph: Graph, tmp_path: Path):
    lines = [thing("ann").encode(), thing("x", year=1).encode()]
    error = refused(graph, write_lines(tmp_path / "in.jsonl", lines))
    assert type(error) is LoadRejectedError
    assert error.report.totals == {"@range violation on Thing.year": 1, "key_conflict of Thing": 1}


def test_a_dry_run_finds_the_same_faults(graph: Graph, tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [edge("Near", "ghost", PLACE).encode()])
    assert refused(graph, path, dry_run=True).report == refused(graph, path).report


# ---- what is no fault


GOOD: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    (thing("x", id="x"), lambda row: row["id"] == "x"),
    (thing("x", i32=-(2**31), u64=2**64 - 1), lambda row: row["u64"] == 2**64 - 1),
    (thing("x", day=-1, at=0), lambda row: str(row["day"]) == "1969-12-31"),
    (thing("x", f64=5e-324, f32=1), lambda row: (row["f64"], row["f32"]) == (5e-324, 1.0)),
    (thing("x", vec=[1, 2.5, -0.0], tags=[], code=None), lambda row: row["tags"] == []),
    (thing("x", year=1600, stage="final", code="AB1"), lambda row: row["year"] == 1600),
]


def test_values_at_the_edge_of_every_rule_are_loaded(tmp_path: Path):
    graph = new_graph(tmp_path / "g.omni")
    for line, is_right in GOOD:
        path = write_lines(tmp_path / "in.jsonl", [line.encode()])
        graph.load(path, mode="merge", engine="local")
        (row,) = [row for row in rows_of(graph, "node:Thing") if row["id"] == "x"]
        assert is_right(row), line


def test_a_merge_may_reuse_a_unique_value_that_it_frees_and_keeps_the_last_of_equal_ids(tmp_path: Path):
    graph = new_graph(tmp_path / "g.omni")
    lines = [thing("bob", isbn="i-ann"), thing("ann", isbn="i-ann"), thing("ann", isbn="new")]
    path = write_lines(tmp_path / "in.jsonl", [line.encode() for line in lines])
    assert graph.load(path, mode="merge", engine="local").superseded == 1
    rows = {row["id"]: row["isbn"] for row in rows_of(graph, "node:Thing")}
    assert rows == {"ann": "new", "bob": "i-ann", "cid": None}


def test_the_compatible_grammar_still_refuses_values_and_counts_records(graph: Graph, tmp_path: Path):
    lines = [thing("x").replace("{", "{\n").encode(), thing("y", i32=2**31).encode()]
    path = write_lines(tmp_path / "in.jsonl", lines)
    error = refused(graph, path, grammar="compatible")
    assert [told(record) for record in error.report.examples] == [
        at(
            path,
            2,
            type_key="node:Thing",
            field="i32",
            value="2147483648",
            unit="record",
            rule="invalid value for Thing.i32",
        )
    ]


def test_a_refused_load_of_a_new_branch_leaves_no_branch(graph: Graph, tmp_path: Path):
    path = write_lines(tmp_path / "in.jsonl", [edge("Near", "ghost", PLACE).encode()])
    error = refused(graph, path, branch="dev", base="main")
    assert isinstance(error, BadRequestError)
    assert graph.branches() == ["main"]


def test_the_mended_file_loads_after_every_refusal(few: list[bytes], tmp_path: Path):
    graph = new_graph(tmp_path / "g.omni")
    path = tmp_path / "in.jsonl"
    for bad in (b"{", thing("ann").encode(), edge("Near", "ghost", PLACE).encode()):
        refused(graph, write_lines(path, [*few, bad]))
    graph.load(write_lines(path, few), mode="append", engine="local")
    assert len(ids_of(graph, "node:Thing")) == 3 + FEW * 2 // 5
