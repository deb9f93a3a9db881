"""`omnigraph query`: what every format prints, and what every flag selects or refuses."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from omnigraph.graph.graph import Graph
from support.cli_graphs import ALL_COLUMNS, EMPTY, FULL, NULLS, History, Outcome, Run, Terminal, all_values, minute
from support.subtests import each_case

FORMATS = ["table", "kv", "csv", "jsonl", "json"]
SOME = """
query some() {
  match { $t: Thing }
  return { $t.name as name, $t.text as text, $t.flag as flag, $t.i64 as big, $t.at as at,
           $t.tags as tags, $t.days as days, $t.vec as vec }
  order { name }
}
"""
EVERYTHING = f"query everything() {{ match {{ $t: Thing }} return {{ {ALL_COLUMNS} }} order {{ name }} }}"
NOTHING = """
query nothing() {
  match { $t: Thing { name: "nobody" } }
  return { $t.name as name, $t.at as at, $t.vec as vec }
}
"""
BY_NAME = "query by_name($n: String) { match { $t: Thing { name: $n } } return { $t.name as name } }"
KEYS = "query keys() { match { $i: Item } return { $i.k as k } order { k } }"


def echo(og: Run, store: str, text: str, *words: str, columns: str = "$x as x") -> Outcome:
    """One row with a text that is given."""
    read = f'query q($x: String) {{ match {{ $t: Thing {{ name: "nulls" }} }} return {{ {columns} }} }}'
    params = json.dumps({"x": text})
    return og("query", "--store", store, "-e", read, "--params", params, *words)


# ---- formats


def test_a_table_is_fitted_and_shows_line_breaks_as_escapes(og: Run, things: str) -> None:
    outcome = og("query", "--store", things, "-e", SOME)
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out == (
        "3 rows from branch main via some\n"
        "name   text                         flag   big                at                        "
        "tags                 days                          vec\n"
        "-----  ---------------------------  -----  -----------------  ------------------------  "
        "-------------------  ----------------------------  -----------------\n"
        "empty                               false  -9007199254740991  1970-01-01T00:00:00.000Z  "
        "[]                   []                            null\n"
        'full   say "hi", then\\ngo\\tnow\\rok  true   9007199254740992   2024-02-29T12:34:56.789Z  '
        '["x", "é, \\"y\\"\\n"]  ["2024-01-01", "1969-12-31"]  [0.5, 2.0, -3.25]\n'
        "nulls  null                         null   null               null                      "
        "null                 null                          null\n"
    )


def test_kv_is_one_block_per_row_and_keeps_each_value_on_its_line(og: Run, things: str) -> None:
    """Otherwise a value could pass for another row."""
    outcome = og("query", "--store", things, "-e", SOME, "--format", "kv")
    assert outcome.out == (
        "3 rows from branch main via some\n"
        "row 1\n"
        "  name: empty\n"
        "  text: \n"
        "  flag: false\n"
        "  big: -9007199254740991\n"
        "  at: 1970-01-01T00:00:00.000Z\n"
        "  tags: []\n"
        "  days: []\n"
        "  vec: null\n"
        "row 2\n"
        "  name: full\n"
        '  text: say "hi", then\\ngo\\tnow\\rok\n'
        "  flag: true\n"
        "  big: 9007199254740992\n"
        "  at: 2024-02-29T12:34:56.789Z\n"
        '  tags: ["x", "é, \\"y\\"\\n"]\n'
        '  days: ["2024-01-01", "1969-12-31"]\n'
        "  vec: [0.5, 2.0, -3.25]\n"
        "row 3\n"
        "  name: nulls\n"
        "  text: null\n"
        "  flag: null\n"
        "  big: null\n"
        "  at: null\n"
        "  tags: null\n"
        "  days: null\n"
        "  vec: null\n"
    )


def test_csv_quotes_by_the_rfc(og: Run, things: str) -> None:
    outcome = og("query", "--store", things, "-e", SOME, "--format", "csv")
    assert outcome.out == (
        "name,text,flag,big,at,tags,days,vec\n"
        "empty,,false,-9007199254740991,1970-01-01T00:00:00.000Z,[],[],null\n"
        'full,"say ""hi"", then\ngo\tnow\rok",true,9007199254740992,2024-02-29T12:34:56.789Z,'
        '"[""x"", ""é, \\""y\\""\\n""]","[""2024-01-01"", ""1969-12-31""]","[0.5, 2.0, -3.25]"\n'
        "nulls,null,null,null,null,null,null,null\n"
    )


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\r\nb", "\n", '"', ",", "", " ", "null"])
def test_csv_reads_back_as_it_was(og: Run, things: str, text: str) -> None:
    for columns, expected in (("$x as x, 7 as n", [text, "7"]), ("$x as x", [text])):
        outcome = echo(og, things, text, "--format", "csv", columns=columns)
        rows = list(csv.reader(io.StringIO(outcome.out, newline="")))
        assert rows[1:] == [expected]


def test_jsonl_holds_rows_only_and_the_count_goes_to_stderr(og: Run, things: str) -> None:
    outcome = og("query", things, "-e", EVERYTHING, "--format", "jsonl")
    rows = outcome.out.split("\n")[:-1]
    assert [json.loads(row) for row in rows] == [all_values(row) for row in (EMPTY, FULL, NULLS)]
    assert '"é, \\"y\\"\\n"' in rows[1], "characters stay readable"
    assert outcome.err == "3 rows from branch main via everything\n"
    quiet = og("query", things, "-e", EVERYTHING, "--format", "jsonl", "--quiet")
    assert (quiet.out, quiet.err) == (outcome.out, "")


def test_an_envelope_is_the_first_line_of_jsonl(og: Run, things: str) -> None:
    outcome = og("query", things, "-e", EVERYTHING, "--format", "jsonl", "--envelope")
    first, *rows = outcome.out.split("\n")[:-1]
    assert first == ('{"kind": "metadata", "query_name": "everything", "target": {"branch": "main"}, "row_count": 3}')
    assert (len(rows), outcome.err) == (3, "")


@pytest.mark.parametrize("words", [("--json",), ("--format", "json")], ids=" ".join)
def test_json_is_the_read_envelope_with_every_type(og: Run, things: str, words) -> None:
    outcome = og("query", "--store", things, "-e", EVERYTHING, *words)
    body = outcome.json()
    with Graph.open(things, read_only=True) as graph:
        head = graph.snapshot().commit_id
    assert body == {
        "query_name": "everything",
        "target": {"branch": "main"},
        "row_count": 3,
        "columns": list(all_values(NULLS)),
        "rows": [all_values(row) for row in (EMPTY, FULL, NULLS)],
        "graph_commit_id": head,
    }
    assert outcome.out == json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    full = body["rows"][1]
    assert (full["i64"], full["u64"], full["u32"]) == (str(2**53), str(2**63 - 1), 2**32 - 1)
    assert full["counts"] == [1, str(-(2**53))]
    assert (body["rows"][0]["i64"], body["rows"][0]["u64"]) == (-(2**53) + 1, 2**53 - 1)


def test_the_largest_safe_integers_and_the_first_unsafe_ones(og: Run, things: str) -> None:
    text = (
        "query q($a: I64, $b: I64, $c: I64, $d: I64) "
        '{ match { $t: Thing { name: "nulls" } } return { $a, $b, $c, $d } }'
    )
    edges = {"a": 2**53 - 1, "b": 2**53, "c": -(2**53) + 1, "d": -(2**53)}
    outcome = og("query", "--store", things, "-e", text, "--params", json.dumps(edges), "--format", "jsonl")
    assert outcome.out.splitlines()[0] == (
        '{"a": 9007199254740991, "b": "9007199254740992", "c": -9007199254740991, "d": "-9007199254740992"}'
    )


def test_sums_that_are_not_finite_are_null(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node N { g: String x: F64 }") as graph:
        for group, x in (("up", 1.7e308), ("up", 1.6e308), ("down", -1.7e308), ("down", -1.6e308)):
            graph.mutate("query q($g: String, $x: F64) { insert N { g: $g, x: $x } }", {"g": group, "x": x})
    text = "query q() { match { $n: N } return { $n.g as g, sum($n.x) as s } order { g } }"
    body = og("query", "--store", graph.uri, "-e", text, "--json").json()
    assert body["rows"] == [{"g": "down", "s": None}, {"g": "up", "s": None}]


def columns_of(line: str) -> list[int]:
    """Where the cells of a table line begin, in terminal columns."""
    place, starts, blank = 0, [0], 0
    for character in line:
        if character == " ":
            blank += 1
        else:
            if blank >= 2:
                starts.append(place)
            blank = 0
        if not unicodedata.combining(character):
            place += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return starts


def test_wide_and_combining_characters_keep_columns_aligned(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node N { name: String @key n: I32 }") as graph:
        for name in ("日本語", "plain", "e\u0301le\u0300ve", "ＦＵＬＬ", "한국"):
            graph.mutate("query q($n: String) { insert N { name: $n, n: 1 } }", {"n": name})
    text = "query q() { match { $n: N } return { $n.name as name, $n.n as number, $n.name as again } }"
    _, *lines = og("query", "--store", graph.uri, "-e", text).out.splitlines()
    assert len(lines) == 2 + 5
    assert {tuple(columns_of(line)) for line in lines} == {(0, 10, 18)}


def width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("x" * 80, "x" * 80, id="fits"),
        pytest.param("x" * 81, "x" * 79 + "…", id="too long"),
        pytest.param("x" * 500, "x" * 79 + "…", id="far too long"),
        pytest.param("x" * 78 + "\n" + "y", "x" * 78 + "\\…", id="the escape counts"),
        pytest.param("日" * 40, "日" * 40, id="wide fits"),
        pytest.param("日" * 41, "日" * 39 + "…", id="wide too long"),
    ],
)
def test_a_table_cell_has_80_columns_at_most(og: Run, things: str, text: str, shown: str) -> None:
    last = echo(og, things, text, columns="$x as x, 1 as one").out.splitlines()[-1]
    cell, _, _ = last.rpartition("  1")
    assert cell.rstrip() == shown
    assert width(cell.rstrip()) <= 80


@pytest.mark.parametrize("format_", ["kv", "csv", "jsonl", "json"])
def test_only_tables_shorten_values(og: Run, things: str, format_: str) -> None:
    out = echo(og, things, "x" * 500, "--format", format_).out
    assert "x" * 500 in out
    assert "…" not in out


@pytest.mark.parametrize("format_", ["table", "kv"])
def test_no_control_character_reaches_the_terminal(og: Run, things: str, format_: str) -> None:
    """A value could otherwise move the cursor, recolour the screen or ring the bell."""
    out = echo(og, things, "\x1b[31mred\x1b[0m\x07\x00\x0b\x85.", "--format", format_).out
    assert "red" in out
    assert {c for c in out if unicodedata.category(c) == "Cc"} == {"\n"}


def test_a_result_without_rows_still_has_columns(og: Run, things: str) -> None:
    printed = {name: og("query", "--store", things, "-e", NOTHING, "--format", name) for name in FORMATS}
    assert {outcome.code for outcome in printed.values()} == {0}
    assert printed["csv"].out == "name,at,vec\n"
    assert (printed["jsonl"].out, printed["jsonl"].err) == ("", "0 rows from branch main via nothing\n")
    body = printed["json"].json()
    assert (body["row_count"], body["columns"], body["rows"]) == (0, ["name", "at", "vec"], [])
    assert printed["table"].out.startswith("0 rows from branch main via nothing\n")
    assert "null" not in printed["table"].out
    assert printed["kv"].out == "0 rows from branch main via nothing\n"


def test_columns_stand_in_the_order_of_the_projection(og: Run, things: str) -> None:
    text = 'query q() { match { $t: Thing { name: "full" } } return { $t.i32 as z, $t.name as a, $t.flag as m } }'
    out = {name: og("query", "--store", things, "-e", text, "--format", name).out for name in FORMATS}
    assert out["table"].splitlines()[1:] == ["z   a     m", "--  ----  ----", "-5  full  true"]
    assert out["kv"].splitlines()[1:] == ["row 1", "  z: -5", "  a: full", "  m: true"]
    assert out["csv"] == "z,a,m\n-5,full,true\n"
    assert out["jsonl"].splitlines()[0] == '{"z": -5, "a": "full", "m": true}'
    body = json.loads(out["json"])
    assert body["columns"] == list(body["rows"][0]) == ["z", "a", "m"]


def test_columns_without_an_alias_have_their_run_time_names(og: Run, things: str) -> None:
    text = 'query q($x: I32) { match { $t: Thing { name: "full" } } return { $t, $t.i32, $x, "a" } }'
    out = og("query", "--store", things, "-e", text, "--params", '{"x": 1}', "--format", "csv").out
    assert out == "t,t.i32,x,literal\nfull,-5,1,a\n"
    grouped = "query q() { match { $t: Thing } return { count($t), max($t.name) } }"
    assert og("query", "--store", things, "-e", grouped, "--format", "csv").out == ("count,max\n3,nulls\n")


@pytest.mark.parametrize("format_", ["table", "kv"])
def test_the_header_counts_rows_and_names_branch_and_query(og: Run, past: History, format_: str) -> None:
    def header(*words: str) -> str:
        printed = og("query", "--store", past.uri, "-e", KEYS, "--format", format_, *words)
        return printed.out.splitlines()[0]

    assert header() == "1 row from branch main via keys"
    assert header("--branch", "side") == "3 rows from branch side via keys"
    assert header("--snapshot", past.commits[1]) == f"0 rows from snapshot {past.commits[1]} via keys"


# ---- on a terminal


def test_a_terminal_gets_a_fitted_coloured_table_and_a_pipe_the_plain_one(
    og: Run, screen: Callable[..., str], things: str
) -> None:
    words = ("query", things, "-e", EVERYTHING)
    coloured = screen(*words)
    assert "\x1b[1mname" in coloured
    assert coloured.splitlines()[-1].endswith("more columns to the right: --format kv shows all\x1b[0m")
    plain = screen(*words, "--color", "never")
    assert max(map(width, plain.splitlines())) <= 60
    assert "\x1b" not in plain
    assert plain == screen(*words, NO_COLOR="1") == screen(*words, TERM="dumb")
    assert og(*words).out.startswith("3 rows from branch main via everything\nname ")
    assert "\x1b[1mname" in og(*words, "--color", "always").out


def test_more_lines_than_the_screen_has_go_to_the_pager(
    screen: Callable[..., str], things: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    pager = shlex.join([sys.executable, "-c", f"import sys; open({str(kept)!r}, 'w').write(sys.stdin.read())"])
    words = ("query", things, "-e", SOME, "--color", "never")
    whole = screen(*words, PAGER=pager)
    assert not kept.exists()
    assert screen(*words, lines=4, PAGER=pager) == ""
    assert kept.read_text() == whole
    kept.unlink()
    for given, environment in (
        ("--no-pager", pager),
        ("--quiet", ""),
        ("--quiet", "cat"),
        ("--quiet", "no-such-pager"),
    ):
        assert screen(*words, given, lines=4, PAGER=environment) == whole
    assert not kept.exists()


def test_a_limit_holds_for_every_format(og: Run, screen: Callable[..., str], things: str) -> None:
    words = ("query", things, "-e", "match { $t: Thing } return { $t.name as name } order { name }", "--limit", "2")
    assert og(*words).out.splitlines()[0] == "first 2 of 3 rows from branch main"
    assert og(*words, "--format", "csv").out == "name\nempty\nfull\n"
    assert og(*words, "--format", "jsonl").err == "2 rows from branch main\n"
    body = og(*words, "--json").json()
    assert (len(body["rows"]), body["row_count"], body["truncated"]) == (2, 3, True)
    assert screen(*words, "--color", "never").splitlines()[-1] == "first 2 of 3 rows from branch main; more: --limit N"
    assert "Invalid value for '--limit'" in og(*words[:-1], "-1").err


# ---- where the query and its parameters come from


def test_a_query_comes_from_a_file_or_the_command_line(og: Run, things: str, tmp_path: Path) -> None:
    path = tmp_path / "q.gq"
    path.write_text(SOME, encoding="utf-8")
    printed = [
        og("query", "--store", things, *words).out
        for words in (("-e", SOME), ("--query-string", SOME), ("--query", str(path)))
    ]
    assert printed[0] == printed[1] == printed[2]
    assert printed[0].startswith("3 rows")


def test_a_text_without_a_name_is_a_query(og: Run, past: History) -> None:
    read, write = "match { $i: Item { k: $k } } return { $i.k as k }", 'delete Item where k = "nothing"'
    found = og("query", past.uri, "-e", read, "--params", '{"k": "b"}')
    assert found.out == "1 row from branch main\nk\n-\nb\n"
    assert og("mutate", past.uri, "-e", write).out == "nothing matched, nothing changed\n"
    assert og("explain", past.uri, "-e", read).out.startswith("read query($k: String)")
    judged = og("lint", past.uri, "-e", f"{write} {write}")
    assert (judged.code, judged.out) == (0, "OK    mutation query\n1 query, 0 errors, 0 warnings\n")
    wrong = og("query", past.uri, "-e", "match { $i: Item\n $i.kk = 1 } return { $i.k }")
    assert wrong.err.startswith("<query>:2:2: error T6")


def test_a_name_selects_among_several_queries(og: Run, things: str, tmp_path: Path) -> None:
    path = tmp_path / "q.gq"
    path.write_text(f"{SOME}\n{NOTHING}\n{BY_NAME}", encoding="utf-8")
    for words, header in (
        (("some",), "3 rows from branch main via some"),
        (("nothing",), "0 rows from branch main via nothing"),
        (("by_name", "--params", '{"n": "full"}'), "1 row from branch main via by_name"),
    ):
        outcome = og("query", "--store", things, "--query", str(path), *words)
        assert outcome.out.splitlines()[0] == header
    unnamed = og("query", "--store", things, "--query", str(path))
    assert unnamed.code == 1
    assert "holds 3 queries, name one: some, nothing, by_name" in unnamed.err
    unknown = og("query", "--store", things, "--query", str(path), "sum", "--json")
    assert unknown.code == 1
    assert unknown.json()["available"] == ["some", "nothing", "by_name"]


def test_a_finding_in_a_file_names_the_file(og: Run, things: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.gq"
    path.write_text("query q() { match { $t: Thng } return { $t.name } }", encoding="utf-8")
    for command in ("query", "explain", "mutate"):
        outcome = og(command, "--store", things, "--query", str(path))
        assert outcome.code == 1
        assert outcome.err.startswith(f"{path}:1:25: error T1: "), command
        assert "did you mean `Thing`?" in outcome.err
    path.write_text(f"{SOME}\n{NOTHING}", encoding="utf-8")
    several = og("query", "--store", things, "--query", str(path))
    assert several.err.startswith(f"{path} holds 2 queries")


def test_parameters_come_from_the_command_line_or_a_file(og: Run, things: str, tmp_path: Path) -> None:
    path = tmp_path / "params.json"
    path.write_text('{"n": "full"}', encoding="utf-8")
    inline = og("query", "--store", things, "-e", BY_NAME, "--params", '{"n": "full"}')
    filed = og("query", "--store", things, "-e", BY_NAME, "--params-file", str(path))
    assert inline.out == filed.out == "1 row from branch main via by_name\nname\n----\nfull\n"


class ClosedPipe(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_closed_pipe_ends_a_command_without_a_word(
    things: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    monkeypatch.setattr("sys.stdout", ClosedPipe())
    with pytest.raises(SystemExit) as ended:
        main(["query", things, "-e", SOME, "--format", format_])
    assert (ended.value.code, capsys.readouterr().err) == (141, "")


def test_text_and_parameters_come_from_standard_input(og: Run, things: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(text: str, *words: str) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return og("query", things, *words, "--format", "csv")

    assert piped(BY_NAME, "--query", "-", "--param", "n=full").out == "name\nfull\n"
    assert piped('{"n": "full"}', "-e", BY_NAME, "--params", "-").out == "name\nfull\n"
    assert piped("match { $t: Thing }", "--query", "-").err.startswith("<stdin>:1:20: error Q000")
    both = piped(BY_NAME, "--query", "-", "--params", "-")
    assert (both.code, both.err) == (1, "standard input is empty; it can be read once, by one flag\n")


ECHO = """
query echo($t: String?, $b: Bool?, $i: I32?, $l: I64?, $f: F64?, $d: Date?, $at: DateTime?, $ns: [I32]?, $v: Vector(2)?)
{ match { $x: Thing { name: "nulls" } } return { $t, $b, $i, $l, $f, $d, $at, $ns, $v } }
"""


@each_case(
    ("word", "value"),
    [
        ("t=full", "full"),
        ("t=null", "null"),
        ("t=", ""),
        ("$t=a=b", "a=b"),
        ("b=true", True),
        ("b=null", None),
        ("i=-7", -7),
        ("l=9007199254740993", "9007199254740993"),
        ("f=1.5e3", 1500.0),
        ("d=2024-02-29", "2024-02-29"),
        ("at=2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000Z"),
        ("ns=[1, 2]", [1, 2]),
        ("v=[0.5, 1]", [0.5, 1.0]),
    ],
)
def test_a_parameter_is_read_as_the_declared_type(og: Run, things: str, word: str, value: object) -> None:
    name = word.removeprefix("$").partition("=")[0]
    (row,) = og("query", things, "-e", ECHO, "--param", word, "--json").json()["rows"]
    assert row.pop(name) == value
    assert set(row.values()) == {None}


@each_case(
    ("words", "code", "sentence"),
    [
        ("--param b=yes", 1, "`b`: 'yes' is not a Bool: give true or false"),
        ("--param f=x", 1, "`f`: 'x' is not a number"),
        ("--param ns=1", 1, "`ns`: '1' is not a list: give it as JSON, such as [1, 2]"),
        ("--param i=x", 1, '`i`: "x" is not a decimal integer'),
        ("--param tt=x", 1, "`tt` is not declared"),
        ("--param t", 2, "--param takes NAME=VALUE, not `t`"),
        ("--param t=a --param t=b", 2, "the parameter `t` is given twice"),
        ('--param t=a --params {"t":1}', 2, "the parameter `t` is given twice"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(og: Run, things: str, words: str, code: int, sentence: str) -> None:
    refused = og("query", things, "-e", ECHO, *words.split())
    assert (refused.code, refused.out) == (code, "")
    assert sentence in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("declared", "given", "sentence"),
    [
        pytest.param("$n: String", {}, "`n` is missing: it is String", id="missing"),
        pytest.param("$n: String", {"n": None}, "`n`: null does not fit String", id="null"),
        pytest.param("$n: String", {"n": 1}, "`n`: 1 is not a String", id="number for text"),
        pytest.param("$n: I32", {"n": "x"}, "is not a decimal integer", id="text for number"),
        pytest.param("$n: I32", {"n": 2**31}, "out of range for I32", id="range"),
        pytest.param("$n: I32", {"n": 1.5}, "is a float", id="float for integer"),
        pytest.param("$n: Bool", {"n": 1}, "1 is not a Bool", id="number for bool"),
        pytest.param("$n: Date", {"n": "2024-02-30"}, "not a day of the calendar", id="no day"),
        pytest.param("$n: DateTime", {"n": "noon"}, "is not a time of the form", id="no time"),
        pytest.param("$n: [I32]", {"n": 1}, "is not a list", id="no list"),
        pytest.param("$n: Vector(3)", {"n": [1]}, "vector of 1 numbers", id="dimension"),
        pytest.param("$n: I32?", {"n": 1, "m": 2}, "`m` is not declared", id="extra"),
        pytest.param("$n: I32?", {"n": {}}, "an object is not a value", id="object"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    og: Run, things: str, declared: str, given: dict[str, object], sentence: str
) -> None:
    text = f"query q({declared}) {{ match {{ $t: Thing }} return {{ $t.name, $n }} }}"
    words = ("query", "--store", things, "-e", text, "--params", json.dumps(given))
    plain, body = og(*words), og(*words, "--json")
    assert (plain.code, body.code) == (1, 1)
    assert plain.out == body.err == ""
    assert plain.err.startswith("parameters of query `q` do not fit: ")
    assert sentence in plain.err
    assert len(plain.err.splitlines()) == 1
    answer = body.json()
    assert (answer["kind"], answer["code"]) == ("bad_request", "bad_request")
    assert answer["error"] == plain.err.strip()
    assert sentence in "".join(answer["parameters"].values())


def test_a_null_parameter_matches_nothing(og: Run, things: str) -> None:
    text = "query q($n: String?) { match { $t: Thing { name: $n } } return { $t.name } }"
    for params in ("{}", '{"n": null}'):
        outcome = og("query", "--store", things, "-e", text, "--params", params, "--json")
        assert outcome.json()["row_count"] == 0


# ---- refused queries


def test_a_mutation_is_sent_to_mutate_and_changes_nothing(og: Run, past: History) -> None:
    text = 'query add() { insert Item { k: "x" } }'
    outcome = og("query", "--store", past.uri, "-e", text)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "`add` is a mutation: run it with `mutate`\n"
    body = og("query", "--store", past.uri, "-e", text, "--json")
    assert (body.code, body.json()["kind"]) == (1, "bad_request")
    assert og("query", "--store", past.uri, "-e", KEYS, "--format", "csv").out == "k\nb\n"


def test_a_wrong_query_shows_the_place(og: Run, things: str) -> None:
    text = "query q() { match { $t: Thing } return { $t.nam } }"
    plain = og("query", "--store", things, "-e", text)
    assert (plain.code, plain.out) == (1, "")
    assert "error T6" in plain.err
    assert "did you mean `name`?" in plain.err
    body = og("query", "--store", things, "-e", text, "--json").json()
    assert body["kind"] == "compiler"
    assert [item["code"] for item in body["diagnostics"]] == ["T6"]


def test_a_wrong_query_is_found_before_anything_is_printed(og: Run, things: str) -> None:
    """A header line above an error would look like a result."""
    for format_ in FORMATS:
        outcome = og("query", "--store", things, "-e", BY_NAME, "--format", format_)
        assert (outcome.code, outcome.out) == (1, ""), format_


# ---- targets


def keys(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return [row["k"] for row in outcome.json()["rows"]]


@pytest.mark.parametrize(
    ("words", "expected", "commit"),
    [
        pytest.param((), "b", 6, id="the head of main"),
        pytest.param(("--branch", "side"), "abc", 5, id="branch"),
        pytest.param(("--branch", "main"), "b", 6, id="main by name"),
        pytest.param(("--graph-version", "1"), "", 1, id="first version"),
        pytest.param(("--graph-version", "3"), "ab", 3, id="version"),
        pytest.param(("--graph-version", "5"), "ab", 3, id="a version of another branch"),
        pytest.param(("--graph-version", "6"), "b", 6, id="newest version"),
        pytest.param(("--branch", "side", "--graph-version", "4"), "ab", 3, id="fork"),
        pytest.param(("--branch", "side", "--graph-version", "6"), "abc", 5, id="side at 6"),
        pytest.param(("--as-of", minute(2)), "a", 2, id="moment of a commit"),
        pytest.param(("--as-of", "2100-01-01T12:02:59.999999Z"), "a", 2, id="between"),
        pytest.param(("--as-of", "2100-01-01T12:03"), "ab", 3, id="without a zone"),
        pytest.param(("--as-of", "2100-01-01T14:03+02:00"), "ab", 3, id="another zone"),
        pytest.param(("--as-of", "2100-01-02"), "b", 6, id="a day"),
        pytest.param(("--branch", "side", "--as-of", minute(2)), "a", 2, id="inherited"),
        pytest.param(("--branch", "side", "--as-of", minute(9)), "abc", 5, id="side now"),
    ],
)
def test_a_read_looks_where_it_is_told(
    og: Run, past: History, words: tuple[str, ...], expected: str, commit: int
) -> None:
    outcome = og("query", "--store", past.uri, "-e", KEYS, "--json", *words)
    assert keys(outcome) == list(expected)
    assert outcome.json()["graph_commit_id"] == past.commits[commit]
    if not words:
        assert outcome.json()["target"] == {"branch": "main"}


def test_a_snapshot_is_a_commit_of_any_branch(og: Run, past: History) -> None:
    found = {1: "", 2: "a", 3: "ab", 5: "abc", 6: "b"}
    for version, expected in found.items():
        commit = past.commits[version]
        outcome = og("query", "--store", past.uri, "-e", KEYS, "--json", "--snapshot", commit)
        assert keys(outcome) == list(expected)
        body = outcome.json()
        assert (body["target"], body["graph_commit_id"]) == ({"snapshot": commit}, commit)


# ---- spellings


def test_read_is_the_old_name_of_query(og: Run, past: History) -> None:
    old = og("read", "--store", past.uri, "-e", KEYS)
    new = og("query", "--store", past.uri, "-e", KEYS)
    assert (old.code, old.out) == (0, new.out)
    assert old.err == "`read` is deprecated: use `query`\n"
    assert new.err == ""


@pytest.mark.parametrize("spelling", ["--store URI", "--store=URI", "--json --store URI"])
def test_global_flags_may_stand_before_the_command(og: Run, past: History, spelling: str) -> None:
    words = spelling.replace("URI", past.uri).split(" ")
    first = og(*words, "query", "-e", KEYS, "--branch", "side")
    behind = og("query", "-e", KEYS, "--branch", "side", *words)
    assert first.code == 0, first.err
    assert first.out == behind.out
    deprecated = og(*words, "read", "-e", KEYS, "--branch", "side")
    assert deprecated.out == first.out


def test_uri_is_another_spelling_of_store(og: Run, past: History) -> None:
    for words in (("--uri", past.uri), ("--store", Path(past.uri).as_uri())):
        assert og("query", *words, "-e", KEYS, "--format", "csv").out == "k\nb\n"


def test_the_commit_of_a_read_is_a_condition_of_a_write(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node Item { k: String @key }") as graph:
        uri = graph.uri
    head = og("query", "--store", uri, "-e", KEYS, "--json").json()["graph_commit_id"]
    add = ("mutate", "--store", uri, "-e", 'query q() { insert Item { k: "a" } }')
    assert og(*add, "--if-commit", head).code == 0
    assert og(*add, "--if-commit", head).code == 4
    again = og("query", "--store", uri, "-e", KEYS, "--json").json()
    assert again["graph_commit_id"] != head
    assert [row["k"] for row in again["rows"]] == ["a"]


def test_a_read_writes_nothing_into_the_graph(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node Thing { name: String @key } edge Rel: Thing -> Thing") as graph:
        graph.mutate(
            'query q() { insert Thing { name: "a" } insert Thing { name: "b" } insert Rel { from: "a", to: "b" } }'
        )
    before = sorted(path for path in Path(graph.uri).rglob("*"))
    text = "query q() { match { $a: Thing $a rel $b } return { $a.name, $b.name } order { $a.name } }"
    assert og("query", "--store", graph.uri, "-e", text, "--format", "csv").out == "a.name,b.name\na,b\n"
    assert og("explain", "--store", graph.uri, "-e", text, "--analyze").code == 0
    assert sorted(path for path in Path(graph.uri).rglob("*")) == before


# ---- processes


def test_a_reader_that_stops_early_is_no_error_of_ours(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node N { k: I32 }") as graph:
        inserts = " ".join(f"insert N {{ k: {number} }}" for number in range(300))
        graph.mutate(f"query q() {{ {inserts} }}")
    text = "query q() { match { $a: N $b: N } return { $a.k as a, $b.k as b } }"
    words = ["query", "--store", graph.uri, "-e", text, "--format", "csv"]
    with subprocess.Popen(
        [sys.executable, "-m", "omnigraph", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a,b\n"
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert complaint == ""


def test_the_text_is_utf8_also_where_no_language_is_set(things: str) -> None:
    text = 'query q() { match { $t: Thing { name: "full" } } return { $t.tags as tags } }'
    run = subprocess.run(
        [sys.executable, "-m", "omnigraph", "query", "--store", things, "-e", text],
        capture_output=True,
        env={"PATH": "", "LC_ALL": "C"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert '["x", "é, '.encode() in run.stdout


# ---- `omnigraph mutate`


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph with 1,001 items."""
    folder = tmp_path_factory.mktemp("many")
    rows = [json.dumps({"type": "Item", "data": {"k": f"i{number:04}", "n": number}}) for number in range(1_001)]
    (folder / "items.jsonl").write_text("\n".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        with Graph.init(folder / "g.omni", "node Item { k: String @key  n: I32  m: I32? }") as graph:
            graph.load(folder / "items.jsonl", mode="append", engine="local")
            return graph.uri


def test_a_dry_run_shows_what_would_change(og: Run, many: str) -> None:
    before = og("log", many).out
    shown = og("mutate", many, "-e", "update Item set { n: 7 } where n < 5", "--dry-run")
    assert shown.out.splitlines() == [
        "5 nodes, 0 edges would change on main; nothing was written",
        "  node:Item  +0 ~5 -0",
        "    ~ node Item 'i0000'  n: 0 → 7",
        "    ~ node Item 'i0001'  n: 1 → 7",
        "    ~ node Item 'i0002'  n: 2 → 7",
        "    … and 2 more",
    ]
    none = og("mutate", many, "-e", 'delete Item where k = "x"', "--dry-run")
    assert none.out == "0 nodes, 0 edges would change on main; nothing was written\n"
    assert og("log", many).out == before


@pytest.mark.parametrize(
    ("answer", "words", "asked", "code"),
    [
        ("no", (), True, 1),
        ("", (), True, 1),
        ("yes", (), True, 0),
        ("no", ("--yes",), False, 0),
        ("no", ("--json",), False, 0),
        ("no", ("--dry-run",), False, 0),
        ("no", ("-e", "update Item set { m: 1 } where n < 5"), False, 0),
    ],
)
def test_a_large_change_asks_at_a_terminal(
    og: Run, many: str, monkeypatch: pytest.MonkeyPatch, answer: str, words: tuple[str, ...], asked: bool, code: int
) -> None:
    told = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr("sys.stderr", told)
    text = () if "-e" in words else ("-e", "update Item set { m: 0 } where n >= 0")
    before = og("commit", "list", many).out.count("\n")
    done = og("mutate", many, *text, *words)
    assert done.code == code
    assert told.getvalue().startswith("this changes 1,001 nodes and edges. Go on? [yes/no] ") is asked
    assert told.getvalue().endswith("nothing was written\n") is (code == 1)
    writes = code == 0 and "--dry-run" not in words
    assert og("commit", "list", many).out.count("\n") - before == writes


def test_a_large_change_asks_nothing_where_there_is_no_terminal(og: Run, many: str) -> None:
    done = og("mutate", many, "-e", "update Item set { m: 2 } where n >= 0")
    assert (done.code, done.err, done.out.split(" in ")[0]) == (0, "", "1,001 nodes, 0 edges")
