"""Cedar decides as ten lines of Python do, whatever the names are."""

from __future__ import annotations

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.policy.policy import Policy
from omnigraph.policy.rules import Action, PolicyRequest

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
requests = st.builds(
    PolicyRequest, st.sampled_from(NAMES), st.sampled_from(Action), branches, branches
)


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policies(), st.lists(requests, min_size=5, max_size=12), st.data())
def test_cedar_decides_as_the_model_does(
    body: dict, asked: list[PolicyRequest], data: st.DataObject
) -> None:
    policy = Policy.from_text(yaml.safe_dump(body, allow_unicode=True))
    members = [actor for group in body["groups"].values() for actor in group]
    for request in asked:
        actor = data.draw(st.sampled_from([*members, request.actor]))
        known = PolicyRequest(actor, request.action, request.branch, request.target_branch)
        decision = policy.decide(known)
        assert decision.rule == model(body, known)
        assert decision.allowed == (decision.rule is not None)
        assert policy.could(actor, request.action) or not decision.allowed
