"""Which graph a command line means: flags against the capability of a command, profiles and defaults."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from omnigraph.cli.capabilities import RULES, Capability, ScopeFlag, legend
from omnigraph.cli.config import Defaults, OperatorConfig, Profile
from omnigraph.cli.main import app_with, arranged, wants_json
from omnigraph.cli.scope import ScopeFlags, ServerScope, StoreScope, resolve_scope, token_of
from omnigraph.cli.scoped import begins_with_graph
from omnigraph.client.addresses import graph_in_url, owner_of, parse_address, server_url
from support.cli_graphs import History, Run
from support.graphs import PAPERS
from support.subtests import each_case

LAB = "http://127.0.0.1:9000"
FAR = "https://far.example/og"
CONFIG = OperatorConfig(
    servers={"lab": LAB, "far": FAR, "papers": f"{LAB}/graphs/papers"},
    profiles={
        "work": Profile(server="lab", default_graph="papers"),
        "plain": Profile(server="lab"),
        "disk": Profile(store="disk.omni"),
        "group": Profile(cluster="c"),
        "empty": Profile(),
        "both": Profile(server="lab", store="x"),
        "odd": Profile(store="x", default_graph="g"),
        "lost": Profile(server="nowhere"),
    },
)
SERVER_DEFAULT = OperatorConfig(
    servers=CONFIG.servers, profiles=CONFIG.profiles, defaults=Defaults(server="lab", default_graph="papers")
)
STORE_DEFAULT = OperatorConfig(defaults=Defaults(store="s3://bucket/g"))


def resolve(command="query", config=CONFIG, active=None, **flags):
    return resolve_scope(ScopeFlags(**flags), RULES[command], config, active)


@each_case(
    ("flags", "expected"),
    [
        pytest.param({"store": "g.omni"}, StoreScope("g.omni"), id="store"),
        pytest.param({"uri": "s3://b/g"}, StoreScope("s3://b/g"), id="uri"),
        pytest.param({"positional": "g.omni"}, StoreScope("g.omni"), id="argument"),
        pytest.param({"server": "lab"}, ServerScope(LAB, None, "lab"), id="name"),
        pytest.param({"server": f"{LAB}/"}, ServerScope(LAB), id="url"),
        pytest.param({"server": "lab", "graph": "g"}, ServerScope(LAB, "g", "lab"), id="graph"),
        pytest.param({"server": "papers"}, ServerScope(LAB, "papers", "papers"), id="in the url"),
        pytest.param({"server": f"{FAR}/graphs/a"}, ServerScope(FAR, "a"), id="below a prefix"),
        pytest.param({"uri": LAB}, ServerScope(LAB), id="uri of a server"),
        pytest.param({"positional": f"{LAB}/graphs/a"}, ServerScope(LAB, "a"), id="argument url"),
        pytest.param({"uri": LAB, "graph": "a"}, ServerScope(LAB, "a"), id="uri and graph"),
        pytest.param({"uri": "HTTP://127.0.0.1"}, ServerScope("HTTP://127.0.0.1"), id="capitals"),
        pytest.param({"profile": "work"}, ServerScope(LAB, "papers", "lab"), id="profile"),
        pytest.param({"profile": "work", "graph": "b"}, ServerScope(LAB, "b", "lab"), id="profile, graph"),
        pytest.param({"profile": "disk"}, StoreScope("disk.omni"), id="profile of a store"),
    ],
)
def test_a_scope_is_what_the_flags_say(flags, expected) -> None:
    assert resolve(**flags) == expected


@each_case(
    ("config", "active", "flags", "expected"),
    [
        pytest.param(SERVER_DEFAULT, None, {}, ServerScope(LAB, "papers", "lab"), id="default"),
        pytest.param(STORE_DEFAULT, None, {}, StoreScope("s3://bucket/g"), id="default store"),
        pytest.param(SERVER_DEFAULT, None, {"graph": "b"}, ServerScope(LAB, "b", "lab"), id="other graph"),
        pytest.param(SERVER_DEFAULT, "disk", {}, StoreScope("disk.omni"), id="active profile"),
        pytest.param(SERVER_DEFAULT, "disk", {"profile": "plain"}, ServerScope(LAB, None, "lab"), id="flag"),
        pytest.param(SERVER_DEFAULT, "disk", {"store": "x"}, StoreScope("x"), id="explicit"),
        pytest.param(SERVER_DEFAULT, None, {"server": "far"}, ServerScope(FAR, None, "far"), id="no"),
    ],
)
def test_an_explicit_address_goes_before_a_profile_and_a_profile_before_the_defaults(
    config, active, flags, expected
) -> None:
    assert resolve(config=config, active=active, **flags) == expected


@each_case(
    ("command", "flags", "text"),
    [
        pytest.param("query", {}, "give it as the first argument, or with --store or --server", id="none"),
        pytest.param("doctor", {}, "give it as the first argument, or with --store", id="storage"),
        pytest.param("graphs list", {}, "no server is addressed", id="no server"),
        pytest.param("load", {"positional": "a", "store": "b"}, "the argument and --store", id="2"),
        pytest.param("query", {"uri": "a", "server": "lab"}, "--uri and --server", id="uri+server"),
        pytest.param("query", {"store": "a", "server": "lab"}, "give the graph once", id="s+s"),
        pytest.param("query", {"store": "a", "profile": "work"}, "not both", id="with a profile"),
        pytest.param("query", {"store": LAB}, f"is a server: give --server {LAB}", id="store url"),
        pytest.param("query", {"store": " "}, "--store is empty", id="blank"),
        pytest.param("query", {"store": "a", "graph": "g"}, "a is one graph already", id="graph"),
        pytest.param("query", {"server": "lob"}, "there is no server `lob`", id="unknown server"),
        pytest.param("query", {"server": "ftp://x"}, "there is no server `ftp://x`", id="scheme"),
        pytest.param("query", {"server": "http://"}, "names no host", id="no host"),
        pytest.param("query", {"server": "http://a b"}, "is not an address", id="space"),
        pytest.param("query", {"server": "http://a:x"}, "is not an address", id="port"),
        pytest.param("query", {"server": "http://a:90000"}, "is not an address", id="large port"),
        pytest.param("query", {"server": "http://u:p@a"}, "use `omnigraph login`", id="user"),
        pytest.param("query", {"server": "http://a/?t=1"}, "ends with a query", id="parameters"),
        pytest.param("query", {"server": "papers", "graph": "b"}, "one graph already", id="other"),
        pytest.param("query", {"profile": "nope"}, "there is no profile `nope`", id="no profile"),
        pytest.param("query", {"profile": "empty"}, "and has none", id="empty profile"),
        pytest.param("query", {"profile": "both"}, "and has server and store", id="both"),
        pytest.param("query", {"profile": "odd"}, "`default_graph` beside `store`", id="odd"),
        pytest.param("query", {"profile": "lost"}, "there is no server `nowhere`", id="lost"),
        pytest.param("query", {"profile": "group"}, "clusters cannot be used yet", id="cluster"),
        pytest.param("doctor", {"cluster": "c"}, "clusters cannot be used yet", id="--cluster"),
        pytest.param("doctor", {"positional": LAB}, "works on the storage", id="direct url"),
        pytest.param("doctor", {"profile": "work"}, "profile `work` (http", id="direct profile"),
        pytest.param("doctor", {"store": "a", "graph": "g"}, "one graph already", id="direct graph"),
        pytest.param("graphs list", {"profile": "disk"}, "asks a server", id="served store"),
    ],
)
def test_a_scope_that_cannot_be_meant_is_refused_with_what_to_do(command, flags, text) -> None:
    with pytest.raises(click.BadParameter) as caught:
        resolve(command, **flags)
    assert text in str(caught.value)


def test_a_default_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(click.BadParameter, match=r"the default in your configuration .*papers"):
        resolve("optimize", SERVER_DEFAULT)
    with pytest.raises(click.BadParameter, match="--graph chooses a graph of a server"):
        resolve("query", STORE_DEFAULT, graph="g")


ALL = {"server": "lab", "cluster": "c", "graph": "g", "store": "s", "actor": "ann", "profile": "work"}
_FIELD = {flag: name for flag, name in zip(ScopeFlag, ALL, strict=True)}


@each_case("command", list(RULES))
def test_a_flag_that_a_command_cannot_use_is_refused_and_the_first_one_is_named(command) -> None:
    rule = RULES[command]
    refused = [flag for flag in ScopeFlag if flag not in rule.flags]
    for index, flag in enumerate(refused):
        given = {_FIELD[other]: ALL[_FIELD[other]] for other in refused[index:]}
        with pytest.raises(click.BadParameter) as caught:
            resolve(command, **given)
        assert str(caught.value).startswith(f"`{command}` does not take {flag}: ")


def test_the_table_is_the_one_of_the_specification() -> None:
    takes = {name: {str(flag) for flag in rule.flags} for name, rule in RULES.items()}
    reads = {"--server", "--graph", "--store", "--profile"}
    assert takes["query"] == takes["log"] == takes["blob get"] == reads
    assert takes["load"] == takes["branch merge"] == takes["schema apply"] == reads | {"--as"}
    assert takes["graphs list"] == {"--server", "--profile"}
    assert takes["cleanup"] == {"--cluster", "--graph", "--store", "--profile"}
    assert takes["schema plan"] == {"--store", "--profile"}
    assert takes["init"] == takes["login"] == takes["alias"] == set()
    assert {rule.capability for rule in RULES.values()} >= {Capability.ANY, Capability.DIRECT}


def _commands(command, path: str = ""):
    for name, child in getattr(command, "commands", {}).items():
        full = f"{path} {name}".strip()
        if hasattr(child, "commands"):
            yield from _commands(child, full)
        else:
            yield full, child


def test_every_command_has_a_rule_and_every_rule_a_command() -> None:
    found = {name for name, _ in _commands(app_with())}
    assert found - {"schema get"} == set(RULES)


def test_every_command_parses_all_scope_flags_and_shows_those_it_can_use() -> None:
    for name, command in _commands(app_with()):
        shown = {word for item in command.params if not getattr(item, "hidden", False) for word in item.opts}
        known = {word for item in command.params for word in item.opts}
        assert {"--server", "--cluster", "--store", "--as", "--profile", "--graph"} <= known, name
        assert {"--yes", "--quiet", "--graph-id"} <= known, name
        rule = RULES[name.replace("schema get", "schema show")]
        assert ("--server" in shown) == (ScopeFlag.SERVER in rule.flags), name
        assert ("--as" in shown) == (ScopeFlag.AS in rule.flags), name


def test_the_help_ends_with_the_commands_per_capability(og: Run) -> None:
    text = og("--help").out
    assert text.rstrip().endswith(" ".join(legend().split()[-1:]))
    assert "branch list|create|delete|merge" in text
    assert "    direct   the storage of a graph, never through a server:" in text


# ---- addresses


@each_case(
    ("url", "owner"),
    [
        (LAB, "lab"),
        (f"{LAB}/graphs/other", "lab"),
        (f"{LAB}/graphs/papers", "papers"),
        (f"{LAB}/graphs/papers/x", "papers"),
        (f"{LAB}/graphs/papersx", "lab"),
        ("http://127.0.0.1:90", None),
        ("http://127.0.0.1:9000@evil.example", None),
        ("https://127.0.0.1:9000", None),
        ("https://far.example", None),
        ("https://far.example:443/og", "far"),
        ("https://far.example.evil/og", None),
        ("https://far.example/ogre", None),
    ],
)
def test_an_address_belongs_to_the_longest_server_that_it_begins_with(url, owner) -> None:
    assert owner_of(url, CONFIG.servers) == owner


def test_a_graph_within_an_address_is_its_last_part() -> None:
    assert graph_in_url(f"{FAR}/graphs/a") == "a"
    assert graph_in_url(FAR) is graph_in_url(f"{FAR}/graphs/") is None
    assert graph_in_url(f"{FAR}/graphs/a/b") is None
    assert server_url(f"{FAR}//") == FAR


@each_case("url", [LAB, f"{LAB}/graphs/a", f"{FAR}/graphs/a", f"{LAB}/graphs/a/graphs/b", f"{LAB}/graphs/graphs/a"])
def test_commands_and_the_client_read_the_same_graph_out_of_an_address(url: str) -> None:
    scope, address = resolve(server=url), parse_address(url)
    assert isinstance(scope, ServerScope)
    assert (scope.url, scope.graph) == (address.base, address.graph)


@pytest.mark.parametrize(
    ("flags", "token"),
    [
        ({"server": "papers"}, "of papers"),
        ({"server": f"{LAB}/graphs/papers"}, "of papers"),
        ({"server": LAB, "graph": "papers"}, "of papers"),
        ({"server": f"{LAB}/graphs/notes"}, "of lab"),
        ({"server": "http://127.0.0.1:90/graphs/papers"}, None),
    ],
    ids=str,
)
def test_a_server_configured_by_the_address_of_a_graph_has_its_token_there(
    flags, token, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOKEN_PAPERS", "of papers")
    monkeypatch.setenv("OMNIGRAPH_TOKEN_LAB", "of lab")
    monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN", raising=False)
    assert token_of(resolve(**flags), CONFIG) == token


# ---- words


@each_case(
    ("words", "expected"),
    [
        ("--store g query -e q", "query --store g -e q"),
        ("--store=g --json query", "query --store=g --json"),
        ("--server lab branch --graph g list", "branch list --server lab --graph-id g"),
        ("--graph g log --graph", "log --graph-id g --graph"),
        ("--graph=g log", "log --graph-id=g"),
        ("log --graph", "log --graph"),
        ("--quiet alias x -- -5", "alias --quiet x -- -5"),
        ("--store g check --query q", "lint --store g --query q"),
        ("query lint --query q", "lint --query q"),
        ("read -e q", "query -e q"),
        ("branch --help", "branch --help"),
        ("--version", "--version"),
        ("--json", "--json"),
        ("", ""),
    ],
)
def test_global_flags_may_stand_before_the_command(words, expected) -> None:
    assert arranged(words.split(), {"branch"}) == expected.split()


def test_json_behind_the_end_of_flags_is_an_argument() -> None:
    assert wants_json(["query", "--json"])
    assert not wants_json(["alias", "x", "--", "--json"])


# ---- the graph among the arguments


@each_case(
    ("words", "names", "is_addressed", "expected"),
    [
        pytest.param(["papers"], 0, False, True, id="a command without names"),
        pytest.param(["papers.omni"], 1, False, True, id="suffix"),
        pytest.param(["s3://bucket/papers"], 1, False, True, id="s3"),
        pytest.param(["http://127.0.0.1:9000/graphs/papers"], 1, False, True, id="url"),
        pytest.param(["./papers"], 2, False, True, id="path"),
        pytest.param(["here"], 1, False, True, id="folder with a graph"),
        pytest.param(["here", "main"], 2, False, True, id="folder before a name"),
        pytest.param(["empty"], 1, False, False, id="folder without one"),
        pytest.param(["recent"], 1, False, False, id="name"),
        pytest.param(["", "main"], 2, False, False, id="empty word"),
        pytest.param(["papers", "main", "sale"], 2, False, True, id="one word more than names"),
        pytest.param(["here"], 1, True, False, id="folder beside a flag"),
        pytest.param(["v1.omni"], 1, True, False, id="suffix beside a flag"),
        pytest.param(["main", "sale", "more"], 2, True, False, id="too many beside a flag"),
        pytest.param(["node", "Page", "https://example.org", "scan"], 4, False, False, id="an id may be an address"),
    ],
)
def test_the_first_word_is_the_graph_if_it_looks_like_one_or_no_name_is_left_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, names, is_addressed, expected
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("here/__manifest", "empty"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert begins_with_graph(words, names, is_addressed=is_addressed) is expected


SOME = "query some() { match { $i: Item } return { $i.k as k } order { k } }"


def test_every_form_of_naming_a_graph_means_the_same(og: Run, past: History) -> None:
    lines = {
        "query": ("-e", SOME),
        "explain": ("-e", SOME),
        "branch list": (),
        "snapshot": (),
        "log": ("--graph",),
        "commit show": (past.commits[3],),
        "commit changes": (past.commits[3],),
        "diff": ("main", "side"),
        "changes poll": ("--start", "beginning"),
        "schema show": (),
        "recovery list": (),
    }
    for command, rest in lines.items():
        ways = ((past.uri,), ("--store", past.uri), ("--uri", past.uri))
        first, *others = (og(*command.split(), *way, *rest) for way in ways)
        assert (first.code, first.err) == (0, ""), command
        assert first.out
        assert others == [first, first], command


def test_a_query_by_its_name_stands_behind_the_graph(og: Run, past: History, tmp_path: Path) -> None:
    file = tmp_path / "items.gq"
    file.write_text('query some() { match { $i: Item } return { $i.k } } query none() { delete Item where k = "z" }')
    for words in (("query", past.uri, "some"), ("mutate", past.uri, "none"), ("explain", past.uri, "some")):
        assert og(*words, "--query", str(file)).code == 0


@each_case(
    ("words", "said"),
    [
        ("diff main ./x.omni", "./x.omni looks like the address of a graph: give it as the first argument, once"),
        ("diff main side papers.omni", "the graph comes first: give papers.omni before main"),
        ("branch create sale papers.omni", "the graph comes first: give papers.omni before sale"),
        ("query recent s3://bucket/x", "the graph comes first: give s3://bucket/x before recent"),
        ("query s3://bucket/x --server http://127.0.0.1:1", "give the graph once"),
        ("branch delete s3://bucket/x --store y", "give the graph once"),
        ("snapshot a --store b", "give the graph once"),
        ("snapshot one.omni two.omni", "unexpected extra argument two.omni"),
        ("branch list x --store g.omni", "give the graph once"),
        ("diff main side more --store x", "unexpected extra argument more"),
        ("commit show papers.omni", "Missing argument 'COMMIT'"),
        ("query papers.gq", "pass it with --query papers.gq"),
        ("mutate g.omni papers.gq", "pass it with --query papers.gq"),
        ("lint papers.pg", "papers.pg looks like a schema file: pass it with --schema papers.pg"),
        ("explain papers.pg -e x", "pass it with --schema papers.pg"),
        ("init g.omni papers.pg", "pass it with --schema papers.pg"),
        ("init g.omni people.csv --yes", "people.csv looks like a table: pass it with --from-data people.csv"),
        ("schema plan g.omni papers.pg", "pass it with --schema papers.pg"),
        ("load g.omni csv.yaml --mode append", "csv.yaml looks like a mapping: pass it with --mapping csv.yaml"),
        ("load g.omni more.jsonl --mode append", "pass it with --data more.jsonl"),
        ("explain 'query q() { match { $p: Paper } return { $p } }'", "pass it with -e"),
        ("optimize --store http://127.0.0.1:1", "give the path or the s3:// address of the storage"),
        ("optimize http://127.0.0.1:1", "give the path or the s3:// address of the storage"),
        ("optimize --server http://127.0.0.1:1", "give its path or s3:// address"),
    ],
)
def test_a_graph_in_another_place_is_told_its_place(og: Run, words: str, said: str) -> None:
    refused = og(*shlex.split(words))
    assert (refused.code, refused.out) == (2, "")
    assert said in " ".join(refused.err.split())
    assert said in og(*shlex.split(words), "--json").json()["error"]


def test_the_usage_shows_the_graph_first_and_everything_that_is_required(og: Run) -> None:
    usages = {
        "branch create": "[GRAPH] NAME [OPTIONS]",
        "diff": "[GRAPH] FROM TO [OPTIONS]",
        "query": "[GRAPH] [NAME] [OPTIONS]",
        "schema plan": "[GRAPH] --schema FILE [OPTIONS]",
        "init": "URI [OPTIONS]",
        "queries list": "[SERVER] [OPTIONS]",
        "alias": "NAME [ARGS]... [OPTIONS]",
    }
    for command, usage in usages.items():
        text = og(*command.split(), "--help").out
        assert text.splitlines()[0] == f"Usage: omnigraph {command} {usage}"
        assert "<str>" not in text
        assert "list[" not in text


# ---- `omnigraph policy`: files checked, tested and asked before a server uses them


SERVER = """
version: 1
groups: { all: [act-nadia] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
"""
CASES = """
version: 1
cases:
  - { id: bots read, actor: act-bot, action: read, branch: main, expect: allow }
  - { id: main is safe, actor: act-ivo, action: change, branch: main, expect: deny }
  - { id: publish, actor: act-ivo, action: branch_merge, branch: d, target_branch: main, expect: allow }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "papers.yaml").write_text(PAPERS)
    (tmp_path / "server.yaml").write_text(SERVER)
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "serve.yaml").write_text(
        "graphs: {papers: {store: p.omni, policy: papers.yaml}, free: {store: f.omni}}\npolicy: server.yaml\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_valid_policy_is_counted(og: Run, folder: Path) -> None:
    assert og("policy", "validate", "papers.yaml").out == (
        "papers.yaml is valid: a policy of a graph with 3 actors, 2 groups, 3 rules\n"
    )
    assert json.loads(og("policy", "validate", "papers.yaml", "--json").out) == {
        "policies": [
            {
                "file": "papers.yaml",
                "about": "graph",
                "actors": 3,
                "groups": 2,
                "rules": 3,
                "protected_branches": ["main"],
            }
        ]
    }


def test_a_broken_policy_is_shown_with_its_places(og: Run, folder: Path) -> None:
    (folder / "papers.yaml").write_text(PAPERS.replace("readers }", "reader }").replace("1", "2"))
    run = og("policy", "validate", "papers.yaml")
    assert run.code == 1
    assert "papers.yaml:1:10: error policy_invalid: there is only version 1" in run.err
    assert "papers.yaml:6:31: error policy_invalid: there is no group `reader`" in run.err
    assert "hint: did you mean `readers`?" in run.err
    found = json.loads(og("policy", "validate", "papers.yaml", "--json").out)
    assert [item["line"] for item in found["diagnostics"]] == [1, 6]


def test_all_policies_of_a_configuration_are_checked(og: Run, folder: Path) -> None:
    lines = og("policy", "validate", "--config", "serve.yaml").out.splitlines()
    assert [line.partition(" with ")[0].rpartition("/")[2] for line in lines] == [
        "server.yaml is valid: a policy of a server",
        "papers.yaml is valid: a policy of a graph",
    ]
    (folder / "server.yaml").write_text(PAPERS)
    run = og("policy", "validate", "--config", "serve.yaml")
    assert (run.code, "is about a graph" in run.err) == (1, True)


def test_cases_are_run(og: Run, folder: Path) -> None:
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml")
    assert (run.code, run.out.splitlines()[-1]) == (0, "3 cases, 0 failed")
    (folder / "cases.yaml").write_text(CASES.replace("expect: deny", "expect: allow"))
    run = og("policy", "test", "--config", "serve.yaml", "--graph", "papers", "--tests", "cases.yaml")
    assert run.code == 1
    assert run.out.splitlines() == [
        "OK    bots read: allow: actor `act-bot` may read branch `main`: rule `everyone-reads` allows it",
        "FAIL  main is safe: expected allow, got deny: actor `act-ivo` may not change branch `main`, "
        "which is protected: no rule allows it",
        "OK    publish: allow: actor `act-ivo` may merge branch `d` into branch `main`: "
        "rule `curators-publish` allows it",
        "3 cases, 1 failed",
    ]
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml", "--json")
    found = json.loads(run.out)
    assert (run.code, found["ok"], found["passed"], found["failed"]) == (1, False, 2, 1)
    assert found["cases"][1] == {
        "id": "main is safe",
        "passed": False,
        "expect": "allow",
        "decision": "deny",
        "rule": None,
        "message": found["cases"][1]["message"],
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 2", ":2:10: error policy_invalid: there is only version 1"),
        ("action: read", "action: look", "`look` is not an action"),
        ("expect: deny", "expect: maybe", "a case expects `allow` or `deny`, not `maybe`"),
        ("id: publish", "id: bots read", "the id 'bots read' is given twice"),
        ("id: publish, actor: act-ivo", "id: publish", "a case has no `actor`"),
        ("branch: d,", "brunch: d,", "`brunch` is not a key of a case"),
        ("cases:", "casus:", "a file of cases has no `cases`"),
    ],
)
def test_wrong_cases_are_refused(og: Run, folder: Path, old: str, new: str, message: str) -> None:
    assert old in CASES
    (folder / "cases.yaml").write_text(CASES.replace(old, new))
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml")
    assert run.code == 1
    assert message in run.err


def test_a_decision_is_explained(og: Run, folder: Path) -> None:
    words = ("policy", "explain", "papers.yaml", "--actor", "act-nadia", "--action")
    merge = og(*words, "branch_merge", "--branch", "d", "--target-branch", "main", "--json")
    assert json.loads(merge.out) == {
        "actor": "act-nadia",
        "action": "branch_merge",
        "branch": "d",
        "target_branch": "main",
        "decision": "allow",
        "rule": "curators-publish",
        "message": "actor `act-nadia` may merge branch `d` into branch `main`: rule `curators-publish` allows it",
    }
    denied = og(*words, "read", "--branch", "main")
    assert (denied.code, denied.out.startswith("deny: actor `act-nadia` may not read")) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("validate",), 2, "give exactly one of FILE and --config"),
        (("validate", "papers.yaml", "--config", "serve.yaml"), 2, "give exactly one of FILE"),
        (("validate", "papers.yaml", "--graph", "papers"), 2, "--graph chooses among"),
        (("validate", "missing.yaml"), 1, "cannot read missing.yaml"),
        (("validate", "--config", "serve.yaml", "--graph", "free"), 1, "`free` has no policy in"),
        (("validate", "--config", "serve.yaml", "--graph", "gone"), 1, "there is no graph `gone`"),
        (("explain", "papers.yaml", "--actor", "a", "--action", "reed"), 2, "did you mean `read`?"),
        (("explain", "papers.yaml", "--actor", "a"), 2, "--action"),
    ],
)
def test_wrong_arguments_are_told(og: Run, folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    run = og("policy", *words)
    assert run.code == code
    assert message in " ".join(run.err.split())
