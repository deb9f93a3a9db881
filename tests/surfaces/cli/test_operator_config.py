"""The configuration of the operator, the tokens of servers, and the commands that show and change them."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from omnigraph.cli.commands.query import alias_params
from omnigraph.cli.config import (
    Alias,
    OperatorConfig,
    credentials_path,
    find_token,
    read_credentials,
    read_operator_config,
    store_token,
    token_variable,
)
from omnigraph.cli.rows import RowFormat
from omnigraph.cli.tables import CellLayout
from omnigraph.errors import BadRequestError, ConfigurationError, InputFileError
from support.cli_graphs import Run
from support.subtests import each_case

EXAMPLE = """
operator: { actor: act-nadia }
servers:  { lab: { url: http://127.0.0.1:9000/ } }
clusters: { main: { root: s3://bucket/root } }
profiles:
  disk: { store: graphs/papers.omni }
  far: { server: "https://far.example", default_graph: g }
  broken: { server: lab, store: x }
defaults: { server: lab, default_graph: papers, output: jsonl, table_max_column_width: 12, table_cell_layout: wrap }
aliases:
  recent:
    server: lab
    graph: papers
    query: recent_papers
    args: [since, tag]
    params: { max: 15, ratio: 0.5, since: 2024-01-01, deep: { a: [1, null, true] } }
    format: kv
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder))
    return folder


@pytest.fixture
def configure(home: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        home.mkdir(exist_ok=True)
        path = home / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


# ---- the file


def test_without_a_file_everything_is_empty(home: Path) -> None:
    assert read_operator_config() == OperatorConfig()


@pytest.mark.parametrize("text", ["", "# nothing\n", "servers:\naliases:\n"])
def test_an_empty_file_says_nothing(configure, text: str) -> None:
    configure(text)
    assert read_operator_config() == OperatorConfig()


def test_every_key_is_read(configure, capsys: pytest.CaptureFixture[str]) -> None:
    path = configure(EXAMPLE)
    config = read_operator_config()
    assert (config.actor, config.servers) == ("act-nadia", {"lab": "http://127.0.0.1:9000"})
    assert config.clusters == {"main": "s3://bucket/root"}
    assert config.profiles["disk"].store == str(path.parent / "graphs/papers.omni")
    assert config.profiles["far"].default_graph == "g"
    assert (config.defaults.server, config.defaults.default_graph) == ("lab", "papers")
    assert config.defaults.output is RowFormat.JSONL
    assert config.defaults.table_max_column_width == 12
    assert config.defaults.table_cell_layout is CellLayout.WRAP
    recent = config.aliases["recent"]
    assert (recent.query, recent.args, recent.format) == ("recent_papers", ("since", "tag"), RowFormat.KV)
    assert recent.params == {"max": 15, "ratio": 0.5, "since": "2024-01-01", "deep": {"a": [1, None, True]}}
    assert capsys.readouterr().err == ""


def test_unknown_keys_are_named_with_their_place_and_ignored(configure, capsys: pytest.CaptureFixture[str]) -> None:
    path = configure("operator: { actr: ann }\nthemes: {}\ndefaults: { server: x, colour: red }\n")
    assert read_operator_config().defaults.server == "x"
    told = capsys.readouterr().err
    assert f"{path}:1:13: warning config: `actr` is not a key of `operator`; it is ignored" in told
    assert "did you mean `actor`?" in told
    assert f"{path}:2:1: warning config: `themes`" in told
    assert "`colour` is not a key of `defaults`" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers: [", ":1:11: error config: this is not valid YAML"),
        ("[]", "the configuration is a mapping, not a list"),
        ("servers: { lab: {} }", ":1:17: error config: server `lab` has no `url`"),
        ("servers: { lab: { url: ftp://x } }", "`url` of server `lab` is not an address"),
        ("servers: { lab: { url: 'http://a:b@c' } }", "use `omnigraph login`"),
        ("servers: { 'a b': { url: http://x } }", "`a b` is not a valid name"),
        ("servers: { a: { url: http://x }, a: { url: http://y } }", "`a` is given twice"),
        ("operator: { actor: 5 }", "`actor` is a text, not the value `5`"),
        ("defaults: { output: xml }", "`output` is one of table, kv, csv, jsonl, json, not `xml`"),
        ("defaults: { table_max_column_width: 1 }", "is 2 at least"),
        ("defaults: { table_max_column_width: wide }", "is a whole number"),
        ("defaults: { table_cell_layout: fold }", "is one of truncate, wrap"),
        ("defaults: { store: x, server: y }", "`server` does not go with `store`"),
        ("defaults: { store: x, default_graph: y }", "`default_graph` does not go with `store`"),
        ("aliases: { a: { server: lab } }", "alias `a` has no `query`"),
        ("aliases: { a: { server: lab, query: q, args: since } }", "`args` of alias `a` is a list"),
        ("aliases: { a: { server: lab, query: q, format: tab } }", "`format` is one of"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(configure, text: str, message: str) -> None:
    path = configure(text)
    with pytest.raises(ConfigurationError) as caught:
        read_operator_config()
    assert str(caught.value).startswith(f"{path}:1:")
    assert message in str(caught.value)


def test_all_mistakes_of_a_file_are_reported_at_once(configure, og: Run) -> None:
    configure("servers: { lab: {} }\ndefaults: { output: xml }\n")
    outcome = og("query", "-e", "query q() { }", "--json")
    assert outcome.code == 1
    assert [item["line"] for item in outcome.json()["diagnostics"]] == [1, 2]


# ---- tokens

SERVERS = {"lab": "http://lab:9000", "lab-b": "http://b:9000", "far.x": "https://far"}
STORED = {"lab": "stored-lab", "far.x": "stored-far"}


@each_case(
    ("url", "name", "environment", "expected"),
    [
        ("http://lab:9000", None, {}, "stored-lab"),
        ("http://lab:9000/graphs/g", None, {}, "stored-lab"),
        ("http://lab:9000", "lab", {"OMNIGRAPH_TOKEN_LAB": "own"}, "own"),
        ("http://lab:9000", None, {"OMNIGRAPH_TOKEN_LAB": "own", "OMNIGRAPH_BEARER_TOKEN": "any"}, "own"),
        ("http://lab:9000", None, {"OMNIGRAPH_BEARER_TOKEN": "any"}, "stored-lab"),
        ("http://b:9000", None, {"OMNIGRAPH_BEARER_TOKEN": "any"}, "any"),
        ("https://far/x", None, {"OMNIGRAPH_TOKEN_FAR_X": "own"}, "own"),
        ("http://evil", None, {"OMNIGRAPH_TOKEN_LAB": "own"}, None),
        ("http://lab:90", None, {"OMNIGRAPH_TOKEN_LAB": "own"}, None),
        ("https://lab:9000", None, {"OMNIGRAPH_TOKEN_LAB": "own"}, None),
        ("http://evil", None, {"OMNIGRAPH_BEARER_TOKEN": "any"}, "any"),
        ("http://b:9000", None, {"OMNIGRAPH_BEARER_TOKEN": ""}, None),
    ],
)
def test_the_token_of_a_server_goes_to_no_other(url, name, environment, expected) -> None:
    assert find_token(url, name, SERVERS, environment, lambda: STORED) == expected


def test_the_file_is_not_read_when_the_environment_has_the_token() -> None:
    def never() -> dict[str, str]:
        raise AssertionError

    environment = {"OMNIGRAPH_TOKEN_LAB": "own"}
    assert find_token("http://lab:9000", None, SERVERS, environment, never) == "own"
    assert find_token("http://other", None, SERVERS, environment, never) is None


def test_a_variable_that_two_servers_share_is_refused() -> None:
    servers = {"lab-b": "http://one", "lab_b": "http://two"}
    assert token_variable("lab-b") == token_variable("lab_b") == "OMNIGRAPH_TOKEN_LAB_B"
    with pytest.raises(BadRequestError, match="lab-b, lab_b"):
        find_token("http://one", None, servers, {"OMNIGRAPH_TOKEN_LAB_B": "t"}, dict)


def test_login_keeps_a_token_that_only_its_owner_can_read(configure, og: Run, home: Path) -> None:
    configure(EXAMPLE)
    outcome = og("login", "lab", "--token", "secret-1")
    assert outcome.code == 0
    assert "secret" not in outcome.out + outcome.err
    assert "--token shows the token" in outcome.err
    assert read_credentials() == {"lab": "secret-1"}
    assert stat.S_IMODE(credentials_path().stat().st_mode) == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["config.yaml", "credentials"]
    told = og("login", "lab", "--token", "secret-2", "--json").json()
    assert told == {"server": "lab", "url": "http://127.0.0.1:9000", "credentials": str(home / "credentials")}
    assert read_credentials() == {"lab": "secret-2"}


def test_login_reads_one_line(configure, og: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(EXAMPLE)
    monkeypatch.setattr("sys.stdin", io.StringIO("  from-a-pipe \nnot this\n"))
    assert og("login", "lab").code == 0
    assert read_credentials() == {"lab": "from-a-pipe"}


def test_login_asks_a_person_without_showing_the_token(configure, og: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    configure(EXAMPLE)
    monkeypatch.setattr("sys.stdin", Keyboard())
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed-after-{prompt.strip(': ')}")
    outcome = og("login", "lab")
    assert (outcome.code, outcome.err) == (0, "")
    assert read_credentials() == {"lab": "typed-after-token"}


@pytest.mark.parametrize("token", ["", " ", "two words", "tök", "a\nb", "a\x1b"])
def test_what_cannot_be_a_token_is_not_kept(configure, og: Run, token: str) -> None:
    configure(EXAMPLE)
    assert og("login", "lab", "--token", token).code == 1
    assert not credentials_path().exists()


def test_login_needs_a_server_of_the_configuration(configure, og: Run) -> None:
    configure(EXAMPLE)
    outcome = og("login", "lob", "--token", "t")
    assert outcome.code == 2
    assert "`lob` is not among the `servers`" in outcome.err


def test_logout_forgets_and_may_be_repeated(configure, og: Run) -> None:
    configure(EXAMPLE)
    og("login", "lab", "--token", "secret")
    assert og("logout", "lab").out == "forgot the token of lab\n"
    assert read_credentials() == {}
    again = og("logout", "lab")
    assert (again.code, again.out) == (0, "there is no token of lab\n")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_use_is_refused(home: Path, mode: int) -> None:
    store_token("lab", "secret")
    credentials_path().chmod(mode)
    with pytest.raises(BadRequestError, match="chmod 600"):
        read_credentials()
    with pytest.raises(BadRequestError, match="chmod 600"):
        store_token("far", "other")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tokens": {"lab": 5}}', "secret: x"])
def test_damaged_credentials_are_refused_without_showing_them(home: Path, text: str) -> None:
    store_token("lab", "secret")
    credentials_path().write_text(text)
    with pytest.raises(BadRequestError) as caught:
        read_credentials()
    assert "is damaged" in str(caught.value)
    assert "secret" not in str(caught.value).replace(str(home), "")


def test_credentials_that_cannot_be_written_are_a_typed_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(InputFileError):
        store_token("lab", "secret")


# ---- profiles


def test_profiles_show_what_they_stand_for_and_which_one_holds(
    configure, og: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    configure(EXAMPLE)
    listed = og("profile", "list", "--json").json()["profiles"]
    assert [(item["name"], item["active"], item["valid"]) for item in listed] == [
        ("broken", False, False),
        ("disk", False, True),
        ("far", False, True),
        (None, True, True),
    ]
    assert listed[0]["error"].endswith("and has server and store")
    assert listed[-1] == {
        "name": None,
        "binding": "lab",
        "scope_kind": "server",
        "target": "http://127.0.0.1:9000",
        "valid": True,
        "error": None,
        "default_graph": "papers",
        "active": True,
    }
    assert "*  (defaults)  server  http://127.0.0.1:9000" in og("profile", "list").out
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "disk")
    assert og("profile", "show").out == (
        "profile  disk\nkind     store\n"
        f"binding  {home}/graphs/papers.omni\ntarget   {home}/graphs/papers.omni\nactive   yes\n"
    )
    assert og("profile", "show", "far", "--json").json()["active"] is False
    assert og("profile", "show", "nope").code == 2
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "gone")
    assert "there is no profile `gone`" in og("profile", "show").out


def test_there_may_be_no_profiles(home: Path, og: Run) -> None:
    assert og("profile", "list").out == "no profiles\n"
    assert "no scope holds" in og("profile", "show").err


# ---- what the configuration does to commands


def test_the_operator_is_the_actor_of_embedded_writes(configure, og: Run, tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text("node Item { k: String @key }")
    configure("operator: { actor: act-nadia }\nprofiles: { here: { store: ../g.omni } }\ndefaults: { output: csv }\n")
    assert og("init", str(tmp_path / "g.omni"), "--schema", str(tmp_path / "s.pg")).code == 0
    add = "query add($k: String) { insert Item { k: $k } }"
    own = og("--profile", "here", "mutate", "-e", add, "--params", '{"k": "a"}', "--json")
    assert own.json()["actor_id"] == "act-nadia"
    other = og("mutate", "-e", add, "--params", '{"k": "b"}', "--json", "--as", "ivo", "--profile", "here")
    assert other.json()["actor_id"] == "ivo"
    read = "query keys() { match { $i: Item } return { $i.k as k } order { k } }"
    assert og("query", "-e", read, "--profile=here").out == "k\na\nb\n"
    assert og("query", "-e", read, "--profile=here", "--format", "jsonl").out.count("\n") == 2
    assert og("query", "-e", read, "--profile=here", "--json").json()["row_count"] == 2


def test_tables_follow_the_configured_layout(configure, og: Run, things: str) -> None:
    read = 'query q() { match { $t: Thing { name: "full" } } return { $t.name as name, $t.text as text } }'
    configure("defaults: { table_max_column_width: 12 }")
    truncated = og("query", "--store", things, "-e", read).out.splitlines()
    assert truncated[-1] == 'full  say "hi", t…'
    configure("defaults: { table_max_column_width: 12, table_cell_layout: wrap }")
    wrapped = og("query", "--store", things, "-e", read).out.splitlines()
    assert [line[6:] for line in wrapped[3:]] == ['say "hi", th', "en\\ngo\\tnow\\", "rok"]


# ---- aliases

RECENT = Alias(server="lab", query="q", args=("since", "tag"), params={"max": 15, "tag": "x"})


@each_case(
    ("args", "given", "expected"),
    [
        ([], {}, {"max": 15, "tag": "x"}),
        (["2024"], {}, {"max": 15, "tag": "x", "since": 2024}),
        (["not json", '"5"'], {}, {"max": 15, "since": "not json", "tag": "5"}),
        (["[1, 2]"], {"since": 1, "max": None}, {"max": None, "tag": "x", "since": 1}),
    ],
)
def test_parameters_by_name_go_before_arguments_and_those_before_fixed_ones(args, given, expected) -> None:
    assert alias_params("recent", RECENT, args, given) == expected


def test_an_alias_refuses_more_arguments_than_it_names() -> None:
    with pytest.raises(click.BadParameter, match=r"takes 2 arguments \(since, tag\), not 3"):
        alias_params("recent", RECENT, ["a", "b", "c"], {})


def test_an_unknown_alias_and_a_scope_flag_are_refused(configure, og: Run) -> None:
    configure(EXAMPLE)
    assert "it has recent" in og("alias", "old").err
    assert "an alias says itself" in og("alias", "recent", "--server", "x").err
    body = og("alias", "recent", "--json", "--format", "csv")
    assert (body.code, json.loads(body.out)["kind"]) == (2, "usage")
