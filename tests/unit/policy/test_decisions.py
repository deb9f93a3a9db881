"""What a policy allows, by which rule, and what it says about it."""

from __future__ import annotations

import doctest
import importlib
import logging
import threading

import pytest

from omnigraph.errors import PolicyDeniedError
from omnigraph.policy.policy import READ_ONLY, Policy, PolicyGate
from omnigraph.policy.rules import Action, PolicyRequest
from support.policies import papers
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
        (
            PolicyRequest(BOT, Action.INVOKE_QUERY),
            "actor `act-bot` may not run stored queries: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.ADMIN),
            "actor `act-bot` may not maintain the graph: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.GRAPH_LIST),
            "actor `act-bot` may not list the graphs of the server: no rule allows it",
        ),
        (
            PolicyRequest(BOT, Action.CHANGE),
            "actor `act-bot` may not change no particular branch: no rule allows it",
        ),
        (
            PolicyRequest("act-x\n", Action.READ, "main"),
            "actor `act-x\\n` is unknown: it is in no group of the policy",
        ),
        (
            PolicyRequest("x" * 1_000, Action.READ, "main"),
            f"actor `{'x' * 80}…` is unknown: it is in no group of the policy",
        ),
        (
            PolicyRequest(None, Action.CHANGE, "main"),
            "nobody is named who wants to change branch `main`: a policy allows nothing without an actor",
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
        "policy_denial": {
            "action": "branch_merge",
            "actor_id": "act-bot",
            "branch": "draft",
            "target_branch": "main",
        },
    }
    assert (denied.value.http_status, denied.value.exit_code) == (403, 1)


def test_every_decision_of_the_gate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gate = PolicyGate(papers())
    with caplog.at_level(logging.INFO, logger="omnigraph.policy"):
        gate.decide(PolicyRequest(NADIA, Action.CHANGE, "draft"))
        gate.decide(PolicyRequest("a\nb", Action.READ, "main"))
    fields = [
        (r.actor, r.action, r.branch, r.target_branch, r.decision, r.rule) for r in caplog.records
    ]
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
    ("scope", "known"),
    [("", True), (", branch_scope: protected", False), (", branch_scope: unprotected", True)],
)
def test_an_actor_is_known_that_may_do_something_somewhere(scope: str, known: bool) -> None:
    policy = Policy.from_text(
        "version: 1\ngroups: { some: [one] }\n"
        f"rules: [{{ id: r, allow: {{ actors: {{ group: some }}, actions: [change]{scope} }} }}]"
    )
    # No branch is protected, so a rule about protected ones allows nothing.
    assert [policy.knows(actor) for actor in ("one", "two", None)] == [known, False, False]
