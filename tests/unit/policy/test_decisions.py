"""What a policy allows, by which rule, and what it says about it."""

from __future__ import annotations

import doctest
import importlib
import logging
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ConfigurationError, InputFileError, PolicyDeniedError
from omnigraph.policy.policy import READ_ONLY, Policy, PolicyGate
from omnigraph.policy.rules import Action, PolicyRequest
from support.examples import examples
from support.graphs import PAPERS, papers
from support.subtests import each_case

NADIA, BOT = "act-nadia", "act-bot"


@each_case(
    ("request_", "rule"),
    [
        (PolicyRequest(BOT, Action.READ, "main"), "everyone-reads"),
        (PolicyRequest(BOT, Action.READ, "draft"), "everyone-reads"),
        (PolicyRequest(BOT, Action.READ), "everyone-reads"),
        (PolicyRequest(BOT, Action.EXPORT, "main"), "everyone-reads"),
        (PolicyRequest(BOT, Action.CHANGE, "draft"), None),
        (PolicyRequest(NADIA, Action.READ, "main"), None),
        (PolicyRequest(NADIA, Action.CHANGE, "draft"), "curators-edit-drafts"),
        (PolicyRequest("act-ivo", Action.CHANGE, "draft"), "curators-edit-drafts"),
        (PolicyRequest(NADIA, Action.CHANGE, "main"), None),
        (PolicyRequest(NADIA, Action.CHANGE), None),
        (PolicyRequest(NADIA, Action.BRANCH_MERGE, "draft", "main"), "curators-publish"),
        (PolicyRequest(NADIA, Action.BRANCH_MERGE, "main", "draft"), None),
        (PolicyRequest(NADIA, Action.BRANCH_MERGE, "draft"), None),
        (PolicyRequest(NADIA, Action.GRAPH_LIST), None),
        (PolicyRequest("nobody", Action.READ, "main"), None),
        (PolicyRequest("", Action.READ, "main"), None),
        (PolicyRequest(None, Action.READ, "main"), None),
    ],
)
def test_the_example_of_the_specification(request_: PolicyRequest, rule: str | None) -> None:
    decision = papers().decide(request_)
    assert (decision.allowed, decision.rule) == (rule is not None, rule)


@each_case("spelling", [" main", "main ", "\tmain\n", "\u2003main"])
def test_spaces_around_a_branch_do_not_lift_its_protection(spelling: str) -> None:
    assert not papers().decide(PolicyRequest(NADIA, Action.CHANGE, spelling)).allowed
    assert papers().decide(PolicyRequest(NADIA, Action.BRANCH_MERGE, "draft", spelling)).allowed


def test_the_smallest_id_of_the_matching_rules_is_named() -> None:
    policy = Policy.from_text("""
version: 1
groups: { one: [ada], two: [ada] }
rules:
  - { id: b, allow: { actors: { group: one }, actions: [read] } }
  - { id: a, allow: { actors: { group: two }, actions: [read, change] } }
  - { id: A0, allow: { actors: { group: two }, actions: [change] } }
""")
    assert policy.decide(PolicyRequest("ada", Action.READ, "main")).rule == "a"
    assert policy.decide(PolicyRequest("ada", Action.CHANGE, "main")).rule == "A0"


@each_case(
    ("request_", "message"),
    [
        (
            PolicyRequest(NADIA, Action.CHANGE, "draft"),
            "actor `act-nadia` may change branch `draft`: rule `curators-edit-drafts` allows it",
        ),
        (
            PolicyRequest(NADIA, Action.SCHEMA_APPLY, None, "main"),
            "actor `act-nadia` may not apply a schema to branch `main`, which is protected: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.BRANCH_MERGE, "draft", "next"),
            "actor `act-bot` may not merge branch `draft` into branch `next`: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.BRANCH_CREATE, "main", "draft"),
            "actor `act-bot` may not create branch `draft` from branch `main`: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.BRANCH_DELETE, None, "draft"),
            "actor `act-bot` may not delete branch `draft`: no rule allows it",
        ),
        (PolicyRequest(BOT, Action.INVOKE_QUERY), "actor `act-bot` may not run stored queries: no rule allows it"),
        (PolicyRequest(BOT, Action.ADMIN), "actor `act-bot` may not maintain the graph: no rule allows it"),
        (
            PolicyRequest(BOT, Action.GRAPH_LIST),
            "actor `act-bot` may not list the graphs of the server: no rule allows it",
        ),
        (PolicyRequest(BOT, Action.CHANGE), "actor `act-bot` may not change no particular branch: no rule allows it"),
        (PolicyRequest("act-x\n", Action.READ, "main"), "actor `act-x\\n` is unknown: it is in no group of the policy"),
        (
            PolicyRequest("x" * 1_000, Action.READ, "main"),
            f"actor `{'x' * 80}…` is unknown: it is in no group of the policy",
        ),
        (
            PolicyRequest(None, Action.CHANGE, "main"),
            "no actor is given to change branch `main`: a policy allows nothing without an actor",
        ),
    ],
)
def test_a_decision_is_explained_in_a_sentence(request_: PolicyRequest, message: str) -> None:
    assert papers().decide(request_).message == message


def test_what_an_actor_could_do_is_known_before_the_branch_is() -> None:
    policy = papers()
    assert policy.could(NADIA, Action.CHANGE)
    assert policy.could(NADIA, Action.BRANCH_MERGE)
    assert not policy.could(NADIA, Action.READ)
    assert policy.could(BOT, Action.EXPORT)
    assert not policy.could(BOT, Action.CHANGE)
    assert not policy.could("nobody", Action.READ)
    assert not policy.could(None, Action.READ)


def test_nobody_could_touch_protected_branches_when_there_are_none() -> None:
    policy = Policy.from_text("""
version: 1
groups: { all: [ada] }
rules: [{ id: r, allow: { actors: { group: all }, actions: [change], branch_scope: protected } }]
""")
    assert not policy.could("ada", Action.CHANGE)


@each_case("action", list(Action))
def test_the_default_policy_lets_everybody_read_and_nothing_else(action: Action) -> None:
    for actor in (NADIA, "", "\ud800", "x" * 100_000):
        for branch in (None, "main", "draft"):
            decision = READ_ONLY.decide(PolicyRequest(actor, action, branch, branch))
            assert decision.allowed == (action is Action.READ)
            assert "unknown" not in decision.message
        assert READ_ONLY.could(actor, action) == (action is Action.READ)
    assert not READ_ONLY.decide(PolicyRequest(None, action, "main")).allowed


def test_a_policy_of_a_server_says_who_may_list_graphs() -> None:
    policy = Policy.from_text("""
version: 1
groups: { all: [ada] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
""")
    assert policy.decide(PolicyRequest("ada", Action.GRAPH_LIST)).rule == "list"
    assert policy.could("ada", Action.GRAPH_LIST)
    assert not policy.decide(PolicyRequest("ada", Action.READ, "main")).allowed
    assert (policy.is_for_server, policy.is_for_graph) == (True, False)
    assert (papers().is_for_server, papers().is_for_graph) == (False, True)


def test_a_policy_without_rules_denies_everything_everywhere() -> None:
    policy = Policy.from_text("version: 1\ngroups: { all: [ada, eve] }")
    assert not any(policy.decide(PolicyRequest("ada", a, "main", "main")).allowed for a in Action)
    assert (policy.is_for_server, policy.is_for_graph, policy.actors) == (True, True, 2)


def test_the_gate_raises_what_it_denies() -> None:
    gate = PolicyGate(papers())
    allowed = gate.authorize(PolicyRequest(NADIA, Action.CHANGE, "draft"))
    assert allowed.rule == "curators-edit-drafts"
    with pytest.raises(PolicyDeniedError, match="may not merge") as denied:
        gate.authorize(PolicyRequest(BOT, Action.BRANCH_MERGE, "draft", "main"))
    assert denied.value.to_json() == {
        "error": denied.value.message,
        "kind": "policy",
        "code": "forbidden",
        "policy_denial": {"action": "branch_merge", "actor_id": "act-bot", "branch": "draft", "target_branch": "main"},
    }
    assert (denied.value.http_status, denied.value.exit_code) == (403, 1)


def test_every_decision_of_the_gate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gate = PolicyGate(papers())
    with caplog.at_level(logging.INFO, logger="omnigraph.policy"):
        gate.decide(PolicyRequest(NADIA, Action.CHANGE, "draft"))
        gate.decide(PolicyRequest("a\nb", Action.READ, "main"))
    fields = [(r.actor, r.action, r.branch, r.target_branch, r.decision, r.rule) for r in caplog.records]
    assert fields == [
        (NADIA, "change", "draft", None, "allow", "curators-edit-drafts"),
        ("a\nb", "read", "main", None, "deny", None),
    ]
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_a_replaced_policy_decides_from_then_on() -> None:
    gate = PolicyGate(papers())
    gate.replace(READ_ONLY)
    assert gate.policy is READ_ONLY
    assert gate.decide(PolicyRequest("nobody", Action.READ, "main")).allowed
    assert not gate.could(NADIA, Action.CHANGE)


def test_threads_get_their_own_answers_while_the_policy_is_replaced() -> None:
    """Each of the two policies allows exactly one of the two requests: no answer may fit neither."""
    gate, policies = PolicyGate(papers()), (papers(), READ_ONLY)
    wrong: list[tuple[str, str | None]] = []
    ended = threading.Event()

    def ask(actor: str, action: Action, rules: set[str | None]) -> None:
        for _ in range(200):
            rule = gate.decide(PolicyRequest(actor, action, "draft")).rule
            if rule not in rules:
                wrong.append((actor, rule))

    def swap() -> None:
        number = 0
        while not ended.is_set():
            gate.replace(policies[number % 2])
            number += 1

    asking = [
        threading.Thread(target=ask, args=(NADIA, Action.CHANGE, {"curators-edit-drafts", None})),
        threading.Thread(target=ask, args=(NADIA, Action.READ, {"default-read-only", None})),
        threading.Thread(target=ask, args=(BOT, Action.CHANGE, {None})),
    ]
    swapping = threading.Thread(target=swap)
    for thread in (swapping, *asking):
        thread.start()
    for thread in asking:
        thread.join()
    ended.set()
    swapping.join()
    assert wrong == []


def test_the_documented_examples_are_true() -> None:
    module = importlib.import_module("omnigraph.policy.policy")
    assert doctest.testmod(module) == doctest.TestResults(failed=0, attempted=4)


@pytest.mark.parametrize(
    ("scope", "known"), [("", True), (", branch_scope: protected", False), (", branch_scope: unprotected", True)]
)
def test_an_actor_is_known_that_may_do_something_somewhere(scope: str, known: bool) -> None:
    policy = Policy.from_text(
        "version: 1\ngroups: { some: [one] }\n"
        f"rules: [{{ id: r, allow: {{ actors: {{ group: some }}, actions: [change]{scope} }} }}]"
    )
    # No branch is protected, so a rule about protected ones allows nothing.
    assert [policy.knows(actor) for actor in ("one", "two", None)] == [known, False, False]


# ---- Policy files: everything that can be wrong with one is said, with its place


GROUPS = "version: 1\ngroups: { all: [ada] }\n"


def rule(allow: str, *, id_: str = "r") -> str:
    return f"{GROUPS}rules:\n  - id: {id_}\n    allow: {{ {allow} }}\n"


def findings(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(ConfigurationError) as refused:
        Policy.from_text(text, "p.yaml")
    assert {item.file for item in refused.value.diagnostics} == {"p.yaml"}
    return [(item.line, item.column, item.message) for item in refused.value.diagnostics]


ALL = "actors: { group: all }"


@each_case(
    ("text", "line", "column", "message"),
    [
        ("version: 2", 1, 10, "there is only version 1 of this file format"),
        ("version: '1'", 1, 10, "`version` is a whole number, not the text `1`"),
        ("version: 1.0", 1, 10, "`version` is a whole number, not the value `1.0`"),
        ("groups: {}", 1, 1, "a policy has no `version`"),
        ("", 1, 1, "a policy is a mapping, not nothing"),
        ("- version: 1", 1, 1, "a policy is a mapping, not a list"),
        ("version: [", 1, 11, "this is not valid YAML"),
        ("version: 1\nversion: 1", 2, 1, "the key `version` is given twice"),
        ("version: 1\nrulez: []", 2, 1, "`rulez` is not a key of a policy"),
        ("version: 1\ngroups: { all: [] }", 2, 16, "group `all` is empty"),
        ("version: 1\ngroups: { all: ada }", 2, 16, "group `all` is a list, not the text `ada`"),
        ("version: 1\ngroups: { all: [ada, ' '] }", 2, 22, "an actor is blank"),
        ("version: 1\ngroups: { all: [17] }", 2, 17, "an actor is a text, not the value `17`"),
        ("version: 1\ngroups: { ' ': [ada] }", 2, 11, "the name of a group is blank"),
        ('version: 1\ngroups: { "\\uD800": [ada] }', 2, 11, "the name of a group is blank or"),
        ('version: 1\ngroups: { all: ["\\uD800"] }', 2, 17, "an actor holds half a surrogate pair"),
        ("version: 1\nprotected_branches: main", 2, 21, "`protected_branches` is a list"),
        ("version: 1\nprotected_branches: ['release/*']", 2, 22, "'release/*' is not a branch name"),
        ("version: 1\nprotected_branches: ['']", 2, 22, "a protected branch is blank"),
        (rule(f"{ALL}, actions: [read]", id_="' '"), 4, 9, "the id of a rule is blank"),
        (f"{GROUPS}rules: [{{ id: r }}]", 3, 9, "a rule has no `allow`"),
        (f"{GROUPS}rules: [{{ id: r, allow: {{}}, deny: {{}} }}]", 3, 29, "`deny` is not a key of a rule"),
        (rule("actions: [read]"), 5, 12, "`allow` has no `actors`"),
        (rule(ALL), 5, 12, "`allow` has no `actions`"),
        (rule(f"{ALL}, actions: []"), 5, 47, "the rule allows no action"),
        (rule(f"{ALL}, actions: [reed]"), 5, 48, "`reed` is not an action"),
        (rule("actors: { group: al }, actions: [read]"), 5, 31, "there is no group `al`"),
        (rule("actors: { actor: ada }, actions: [read]"), 5, 24, "`actor` is not a key of `actors`"),
        (rule("actors: ada, actions: [read]"), 5, 22, "`actors` is a mapping, not the text `ada`"),
        (rule(f"{ALL}, actions: [read], branch_scope: all"), 5, 69, "`all` is not a scope"),
        (
            rule(f"{ALL}, actions: [read], branch_scope: any, target_branch_scope: any"),
            5,
            74,
            "a rule has `branch_scope` or `target_branch_scope`, not both",
        ),
        (
            rule(f"{ALL}, actions: [read, branch_merge], branch_scope: any"),
            5,
            69,
            "`branch_merge` has no `branch_scope`",
        ),
        (rule(f"{ALL}, actions: [change], target_branch_scope: any"), 5, 57, "`change` has no `target_branch_scope`"),
        (rule(f"{ALL}, actions: [invoke_query], branch_scope: any"), 5, 63, "`invoke_query` has no `branch_scope`"),
        (rule(f"{ALL}, actions: [admin], target_branch_scope: any"), 5, 56, "`admin` has no `target_branch_scope`"),
        (rule(f"{ALL}, actions: [graph_list], branch_scope: any"), 5, 61, "`graph_list` has no `branch_scope`"),
        (
            rule(f"{ALL}, actions: [read, graph_list]"),
            5,
            47,
            "`graph_list` is about a server, and the other actions are about a graph",
        ),
        (
            rule(f"{ALL}, actions: [read]") + rule(f"{ALL}, actions: [read]").partition("rules:\n")[2],
            6,
            9,
            "the id 'r' is given twice",
        ),
        (
            rule(f"{ALL}, actions: [read]") + rule(f"{ALL}, actions: [graph_list]", id_="s").partition("rules:\n")[2],
            6,
            5,
            "rules about a server (`graph_list`) and rules about a graph are in one file",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, line: int, column: int, message: str) -> None:
    found = findings(text)
    assert any(item[:2] == (line, column) and item[2].startswith(message) for item in found), found


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    text = """\
version: 3
groups: { empty: [] }
protected_branches: [a b]
rules:
  - id: one
    allow: { actors: { group: nobody }, actions: [fly], branch_scope: some }
"""
    assert [line for line, _, _ in findings(text)] == [1, 2, 3, 6, 6, 6]


def test_a_near_word_is_offered() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Policy.from_text(rule("actors: { group: all }, actions: [branch_mege]"))
    assert refused.value.diagnostics[0].hint == "did you mean `branch_merge`?"
    assert refused.value.diagnostics[0].code == "policy_invalid"


def test_aliases_that_hold_themselves_end() -> None:
    assert findings("version: 1\ngroups: &g { all: *g }")
    assert findings("version: 1\nrules: &r [*r]")


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "papers.yaml"
    path.write_text(PAPERS, encoding="utf-8")
    assert Policy.from_file(path).actors == 3
    with pytest.raises(InputFileError, match=r"missing\.yaml"):
        Policy.from_file(tmp_path / "missing.yaml")
    path.write_bytes(b"version: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Policy.from_file(path)


# ---- Cedar decides as ten lines of Python do, whatever the names are


#: Names that mean something to Cedar, to JSON or to YAML, and a few that mean nothing.
NAMES = [
    "ada",
    "a",
    'Actor::"ada"',
    'x"); permit(principal, action, resource); //',
    "back\\slash",
    "line\nbreak",
    "nul\0",
    "Group",
    "?principal",
    "äöü",
    "e\u0301",
    "é",
    "𝔘",
    "\u202eright",
    "x" * 1_100,
]
BRANCHES = ["main", "draft", "release/1", "Main"]
#: Branches that nobody can make; a request may name them all the same.
STRANGE = ['main"', "main\0", "main\\", "::main", "mаin", "x" * 1_100]

names = st.sampled_from(NAMES) | st.text(min_size=1, max_size=5).filter(
    lambda text: text.strip() and text.isprintable()
)
members = st.lists(names, min_size=1, max_size=3)
scopes = st.sampled_from(["any", "protected", "unprotected"])
graph_actions = [action for action in Action if action is not Action.GRAPH_LIST]


@st.composite
def allows(draw: st.DrawFn, groups: list[str]) -> dict[str, object]:
    key = draw(st.sampled_from(["branch_scope", "target_branch_scope", None]))
    fitting = [action for action in graph_actions if key is None or action.scope_key == key]
    chosen = draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=4))
    allow: dict[str, object] = {
        "actors": {"group": draw(st.sampled_from(groups))},
        "actions": [str(action) for action in chosen],
    }
    return allow if key is None else allow | {key: draw(scopes)}


@st.composite
def policies(draw: st.DrawFn) -> dict[str, object]:
    groups = draw(st.dictionaries(names, members, min_size=1, max_size=3))
    ids = draw(st.lists(names, unique=True, max_size=5))
    return {
        "version": 1,
        "groups": groups,
        "protected_branches": draw(st.lists(st.sampled_from(BRANCHES), max_size=2)),
        "rules": [{"id": name, "allow": draw(allows(list(groups)))} for name in ids],
    }


branches = st.none() | st.sampled_from(BRANCHES + STRANGE)
requests = st.builds(PolicyRequest, st.sampled_from(NAMES), st.sampled_from(Action), branches, branches)


def model(policy: dict, request: PolicyRequest) -> str | None:
    """The smallest id of the rules that allow a request."""

    def fits(scope: str, branch: str | None) -> bool:
        protected = branch in policy["protected_branches"]
        return scope == "any" or (branch is not None and protected == (scope == "protected"))

    matching = [
        rule["id"]
        for rule in policy["rules"]
        for allow in [rule["allow"]]
        if request.actor in policy["groups"][allow["actors"]["group"]]
        and request.action in allow["actions"]
        and fits(allow.get("branch_scope", "any"), request.branch)
        and fits(allow.get("target_branch_scope", "any"), request.target_branch)
    ]
    return min(matching, default=None)


@examples(50, thorough=150)
@given(policies(), st.lists(requests, min_size=5, max_size=12), st.data())
def test_cedar_decides_as_the_model_does(body: dict, asked: list[PolicyRequest], data: st.DataObject) -> None:
    policy = Policy.from_text(yaml.safe_dump(body, allow_unicode=True))
    members = [actor for group in body["groups"].values() for actor in group]
    for request in asked:
        actor = data.draw(st.sampled_from([*members, request.actor]))
        known = PolicyRequest(actor, request.action, request.branch, request.target_branch)
        decision = policy.decide(known)
        assert decision.rule == model(body, known)
        assert decision.allowed == (decision.rule is not None)
        assert policy.could(actor, request.action) or not decision.allowed
