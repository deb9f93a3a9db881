"""Every command of capability any on storage and on a server: the same words, the same output."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.cli.config import store_token
from support.cli_graphs import Outcome, Run
from support.cli_twins import ACTOR, READER_TOKEN, TOKEN, Twins, alike, twins


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        with twins(tmp_path_factory.mktemp("twins")) as pair:
            yield pair


@pytest.fixture(autouse=True)
def home(pair: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        f"servers: {{ lab: {{ url: '{pair.url}' }} }}\n"
        "aliases:\n"
        "  older: { server: lab, graph: people, query: older_than, args: [age], format: csv }\n"
        "  add: { server: lab, graph: people, query: add_person, args: [name] }\n"
    )
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder))
    monkeypatch.setenv("OMNIGRAPH_TOKEN_LAB", TOKEN)
    return folder


@pytest.fixture
def both(og: Run, pair: Twins) -> Run:
    """Run a command on the storage and on the server; what they print is the same but for ids, times and addresses."""

    def run(*words: str, is_write: bool = False) -> Outcome:
        actor = ("--as", ACTOR) if is_write else ()
        embedded = og(*words, "--store", pair.store, "--quiet", *actor)
        served = og("--server", "lab", "--graph", "people", "--quiet", *words)
        address = f"{pair.url}/graphs/people"
        assert served.code == embedded.code, served.err + served.out
        assert alike(served.out, address) == alike(embedded.out, pair.store)
        assert alike(served.err, address) == alike(embedded.err, pair.store)
        return served

    return run


PEOPLE = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
BY_AGE = "query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name as name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"


def test_reads_print_the_same(both: Run) -> None:
    for format_ in ("table", "json"):
        assert both("query", "-e", PEOPLE, "--format", format_).code == 0
    assert both("query", "-e", BY_AGE, "--params", '{"age": 40}', "--json").json()["row_count"] >= 2
    both("explain", "-e", PEOPLE, "--json")
    both("snapshot")
    both("snapshot", "--json")
    both("schema", "show")
    both("export", "--type", "Person")
    both("branch", "list", "--json")


def test_single_parameters_are_typed_alike(both: Run, og: Run) -> None:
    bare = "match { $p: Person  $p.age > $age } return { $p.name as name } order { name }"
    found = [both("query", "-e", text, "--param", "age=40", "--json").json()["rows"] for text in (BY_AGE, bare)]
    assert len(found[0]) == len(found[1]) >= 2
    assert both("query", "-e", BY_AGE, "--param", "age=old").code == 1
    stored = ("--server", "lab", "--graph", "people", "query", "older_than")
    assert og(*stored, "--param", "age=200", "--format", "csv").out == "name\n"
    assert "`agee` is not declared" in og(*stored, "--param", "agee=200").err
    assert og("alias", "older", "--param", "age=200").out == "name\n"


def test_refused_reads_print_the_same(both: Run) -> None:
    wrong = "query q() { match { $p: Persn } return { $p.name } }"
    assert both("query", "-e", wrong, "--json").json()["kind"] == "compiler"
    assert both("query", "-e", BY_AGE).code == 1
    assert both("query", "-e", PEOPLE, "--branch", "nope", "--json").code == 1
    assert both("query", "-e", ADD).code == 1
    assert both("export", "--type", "Nope").code == 1
    assert both("commit", "show", "nope").code == 1
    assert both("blob", "get", "node", "Person", "ada", "photo").code == 1


def test_blobs_print_the_same(both: Run, og: Run, pair: Twins, tmp_path: Path) -> None:
    cell = ("node", "Person", "grace", "photo")
    both("blob", "stat", *cell)
    both("blob", "stat", *cell, "--json")
    out = str(tmp_path / "photo")
    words = ("blob", "get", *cell, "--offset", "1", "--length", "3", "--out", out)
    assert og(*words, "--server", "lab", "--graph", "people").code == 0
    assert (tmp_path / "photo").read_bytes() == b"ell"


class Piped:
    """Standard input that every command finds anew."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def buffer(self) -> io.BytesIO:
        return io.BytesIO(self._text.encode())


def test_writes_and_the_history_print_the_same(
    both: Run, og: Run, pair: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story, told by both graphs: every command sees what those before it did."""
    rows = tmp_path / "more.jsonl"
    rows.write_text('{"type": "Person", "data": {"name": "mary", "age": 91}}\n')
    load = ("load", "--data", str(rows), "--mode", "merge")
    both(*load, "--dry-run", is_write=True)
    both(*load, "--json", is_write=True)
    rows.write_text('{"type": "Person", "data": {"nme": "x"}}\n')
    refused = both(*load, "--json", is_write=True)
    assert refused.code == 1
    for record in ('{"type": "Person", "data": {"name": "vera"}}', '{"type": "Person", "data": {"nme": "x"}}'):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdin", Piped(f"{record}\n"))
            piped = both("load", "--data", "-", "--mode", "merge", "--json", is_write=True)
        assert piped.code == (0 if "vera" in record else 1)
    assert '"source": "<stdin>"' in piped.out
    both("branch", "create", "draft", "--json", is_write=True)
    both("mutate", "-e", ADD, "--params", '{"name": "kay"}', "--branch", "draft", "--dry-run", is_write=True)
    both("mutate", "-e", ADD, "--params", '{"name": "kay"}', "--branch", "draft", is_write=True)
    both("mutate", "-e", ADD, "--params", '{"name": "lee"}', "--json", is_write=True)
    both("diff", "main", "draft")
    both("diff", "main", "draft", "--json")
    both("branch", "merge", "draft", "--dry-run", is_write=True)
    merged = both("branch", "merge", "draft", "--json", is_write=True).json()
    assert (merged["outcome"], merged["actor_id"]) == ("merged", ACTOR)
    both("log")
    both("log", "--graph")
    both("log", "--graph", "--json")
    both("commit", "list", "--json")
    both("commit", "list", "--actor", ACTOR)
    both("commit", "list", "--filter", f"actor={ACTOR}", "--all-branches")
    both("changes", "poll", "--start", "beginning", "--json")
    for store, words in (
        (pair.store, ("--store", pair.store)),
        (pair.url, ("--server", "lab", "--graph-id", "people")),
    ):
        head = og("commit", "list", *words, "--json").json()["commits"][0]["graph_commit_id"]
        shown = og("commit", "show", head, *words).out
        changed = og("commit", "changes", head, *words).out
        parts = [alike(text) for text in (shown, changed)]
        assert "merged parent" in shown, store
        if store == pair.store:
            embedded = parts
    assert parts == embedded
    # The server is not this machine: what is lost there needs a word.
    at = ("--server", "lab", "--graph", "people")
    assert og("branch", "delete", "draft", *at).code == 2
    both("branch", "delete", "draft", "--yes", "--json", is_write=True)


def test_schema_changes_print_the_same(both: Run, tmp_path: Path, og: Run, pair: Twins) -> None:
    schema = tmp_path / "next.pg"
    accepted = og("schema", "show", pair.store).out
    schema.write_text(accepted.replace("year: I32?", "year: I32?  venue: String?"))
    apply = ("schema", "apply", "--schema", str(schema))
    both(*apply, "--json", is_write=True)
    both(*apply, is_write=True)
    schema.write_text(accepted.replace("age: I32?", "age: String?"))
    assert both(*apply, "--json", is_write=True).code == 1


def test_a_conditional_write_that_lost_exits_with_4(both: Run, og: Run, pair: Twins) -> None:
    words = ("mutate", "-e", ADD, "--params", '{"name": "zoe"}', "--if-commit", "0" * 26, "--json")
    lost = both(*words, is_write=True)
    assert (lost.code, "precondition_failure" in lost.json()) == (4, True)


def test_a_baseline_and_an_export_to_a_file(og: Run, pair: Twins, tmp_path: Path) -> None:
    at = ("--server", "lab", "--graph", "people")
    told = og("changes", "baseline", "--out", str(tmp_path / "base.jsonl"), "--json", *at).json()
    lines = (tmp_path / "base.jsonl").read_text().splitlines()
    assert len(lines) == told["entities"] > 0
    exported = og("export", "--out", str(tmp_path / "all.jsonl"), "--json", *at).json()
    assert (tmp_path / "all.jsonl").read_text() == og("export", *at).out
    assert exported["files"] == [str(tmp_path / "all.jsonl")]


# ---- what only servers have


def test_stored_queries_run_by_name(og: Run, pair: Twins) -> None:
    at = ("--server", "lab", "--graph", "people")
    rows = og("query", "older_than", "--params", '{"age": 80}', "--format", "csv", *at)
    assert "grace" in rows.out.splitlines()
    preview = og("mutate", "add_person", "--param", "name=ida", "--dry-run", *at).out
    assert preview.splitlines()[:2] == [
        "1 node, 0 edges would change on main; nothing was written",
        "  node:Person  +1 ~0 -0",
    ]
    receipt = og("mutate", "add_person", "--params", '{"name": "ida"}', "--json", *at).json()
    assert (receipt["affected_nodes"], receipt["actor_id"]) == (1, ACTOR)
    # The other twin gets the same commit: tests that compare the two run before and after this one.
    words = ("mutate", "-e", ADD, "--params", '{"name": "ida"}', "--as", ACTOR, "--quiet")
    assert og(*words, "--store", pair.store).code == 0
    for words in (("query", "add_person"), ("mutate", "people"), ("query", "nothing")):
        refused = og(*words, *at, "--json")
        assert refused.code == 1
        assert refused.json()["kind"] in ("bad_request", "not_found")


def test_a_stored_query_needs_a_server(og: Run, pair: Twins) -> None:
    for words in (("query", "people"), ("mutate", "add_person")):
        refused = og(*words, "--store", pair.store)
        assert refused.code == 2
        assert "stored on a server" in refused.err
    past = og("query", "people", "--server", "lab", "--graph", "people", "--graph-version", "1")
    assert past.code == 2


def test_an_alias_runs_a_stored_read_and_never_a_mutation(og: Run) -> None:
    assert og("alias", "older", "80").out.splitlines()[0] == "name"
    assert og("alias", "older", "80", "--json").json()["query_name"] == "older_than"
    by_name = og("alias", "older", "80", "--params", '{"age": 200}')
    assert by_name.out == "name\n"
    refused = og("alias", "add", "eve")
    assert refused.code == 1
    assert "mutate" in refused.err


def test_the_graphs_of_a_server_are_listed(og: Run, pair: Twins, monkeypatch) -> None:
    listed = og("graphs", "list", "--server", "lab")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["people", "twin"]
    found = og("graphs", "list", "--server", pair.url, "--json").json()["graphs"]
    assert [item["graph_id"] for item in found] == ["people", "twin"]
    monkeypatch.setenv("OMNIGRAPH_TOKEN_LAB", READER_TOKEN)
    denied = og("graphs", "list", "--server", "lab", "--json")
    assert (denied.code, denied.json()["code"]) == (1, "forbidden")


# ---- scope, tokens and consent


def test_a_server_with_several_graphs_asks_which(og: Run) -> None:
    refused = og("branch", "list", "--server", "lab")
    assert refused.code == 1
    assert "people, twin" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ("branch", "list", "--uri", "URL/graphs/people"),
        ("branch", "list", "--server", "URL/graphs/people"),
        ("--graph=people", "branch", "--server", "URL", "list"),
    ],
    ids=" ".join,
)
def test_a_server_may_be_given_by_its_address(og: Run, pair: Twins, words) -> None:
    outcome = og(*(word.replace("URL", pair.url) for word in words))
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "main")


def test_a_token_of_another_server_is_not_sent(
    og: Run, pair: Twins, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.yaml").write_text("servers: { lab: { url: 'http://127.0.0.1:1' } }")
    store_token("lab", TOKEN)
    outcome = og("branch", "list", "--server", f"{pair.url}/graphs/people", "--json")
    assert (outcome.code, outcome.json()["code"]) == (1, "unauthorized")
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKEN)
    assert og("branch", "list", "--server", f"{pair.url}/graphs/people").code == 0


def test_a_wrong_token_is_told_in_a_sentence(og: Run, monkeypatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOKEN_LAB", "guessed-token")
    outcome = og("branch", "list", "--server", "lab", "--graph", "people", "--json")
    assert (outcome.code, outcome.json()["code"]) == (1, "unauthorized")
    assert "guessed-token" not in outcome.out + outcome.err


def test_the_stored_token_of_a_server_is_used(og: Run, monkeypatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_TOKEN_LAB")
    at = ("--server", "lab", "--graph", "people")
    refused = og("branch", "list", *at)
    assert (refused.code, "omnigraph login" in refused.err) == (1, True)
    assert og("login", "lab", "--token", TOKEN).code == 0
    assert og("branch", "list", *at).code == 0


def test_an_actor_is_refused_on_a_server(og: Run) -> None:
    at = ("--server", "lab", "--graph", "people")
    for words in (("branch", "create", "x"), ("mutate", "-e", ADD), ("mutate", "add_person")):
        refused = og(*words, *at, "--as", "eve")
        assert refused.code == 2
        assert "follows from the token" in refused.err


def test_what_a_server_cannot_do_is_refused_before_it_is_asked(og: Run, tmp_path: Path) -> None:
    at = ("--server", "lab", "--graph", "people")
    engine = og("load", "--data", "x", "--mode", "merge", "--engine", "spark", *at)
    assert (engine.code, "--engine works on storage" in engine.err) == (2, True)
    schema = tmp_path / "next.pg"
    schema.write_text("node A { a: String @key }")
    for words in (
        ("branch", "merge", "draft"),
        ("diff", "main", "draft"),
        ("schema", "apply", "--schema", str(schema)),
    ):
        for engine_name in ("spark", "local"):
            refused = og(*words, "--engine", engine_name, *at)
            assert (refused.code, "--engine works on storage" in refused.err) == (2, True), words
    over = og("load", "--data", "x", "--mode", "overwrite", *at, "--json")
    assert (over.code, "give --yes" in json.loads(over.out)["error"]) == (2, True)
    parquet = og("export", "--out", str(tmp_path / "x"), "--format", "parquet", *at)
    assert (parquet.code, "storage" in parquet.err) == (1, True)


def test_a_write_names_the_server_before_it_is_sent(og: Run, pair: Twins) -> None:
    words = ("branch", "create", "x", "--server", "lab", "--graph", "twin")
    denied = og(*words)
    echo, _, reason = denied.err.partition("\n")
    assert (denied.code, denied.out) == (1, "")
    assert echo == f"branch create in {pair.url}/graphs/twin (served)"
    assert og(*words, "--quiet").err == reason


def test_the_graph_that_is_assumed_is_named_before_it_is_written_to(
    og: Run, pair: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not tell its graphs, so `default` is meant: the echo and the question say so."""
    monkeypatch.setenv("OMNIGRAPH_TOKEN_LAB", READER_TOKEN)
    assumed = f"{pair.url}/graphs/default"
    written = og("branch", "create", "x", "--server", "lab")
    echo, _, reason = written.err.partition("\n")
    assert (written.code, echo) == (1, f"branch create in {assumed} (served)")
    assert og("branch", "create", "x", "--server", "lab", "--quiet").err == reason
    asked = og("branch", "delete", "x", "--server", "lab")
    assert (asked.code, f"this deletes branch x of {assumed}: give --yes" in asked.err) == (2, True)


def test_a_write_to_one_of_several_graphs_is_refused_before_any_is_named(og: Run) -> None:
    refused = og("branch", "create", "x", "--server", "lab")
    assert (refused.code, "(served)" in refused.err) == (1, False)
    assert "people, twin" in refused.err


def test_nobody_at_an_address_is_told_in_a_sentence(og: Run) -> None:
    outcome = og("branch", "list", "--server", "http://127.0.0.1:1/graphs/g", "--json")
    assert outcome.code == 1
    assert "http://127.0.0.1:1" in outcome.json()["error"]
