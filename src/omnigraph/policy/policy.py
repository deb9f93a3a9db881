"""Policies: Cedar decisions in sentences, the gate in front of a graph, and test cases."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

from omnigraph.core.extras import need
from omnigraph.errors import BadRequestError, InternalError
from omnigraph.frozen import frozen
from omnigraph.policy.rules import (
    CODE,
    Action,
    Decision,
    PolicyRequest,
    PolicyRules,
    Rule,
    Scope,
    check_version,
    read_action,
    read_rules,
    shown,
    unique_id,
)

if TYPE_CHECKING:
    from omnigraph.core.yaml_files import YamlDocument, YamlValue


# ---- Rules as Cedar policies, and their evaluation
#
# Rules travel as Cedar's JSON form and never as text, so that no name can end a string and begin a policy. A request
# carries the actor, the action and two truth values at most: whether its branches are protected is looked up before.


_BRANCH = "branch_is_protected"
_TARGET = "target_is_protected"
_GRAPH_ACTIONS = ", ".join(action for action in Action if not action.is_for_server)
_SCHEMA = f"""
entity Group;
entity Actor in [Group];
entity Graph;
entity Server;
action {_GRAPH_ACTIONS} appliesTo {{
  principal: Actor, resource: Graph, context: {{ {_BRANCH}?: Bool, {_TARGET}?: Bool }}
}};
action {Action.GRAPH_LIST} appliesTo {{ principal: Actor, resource: Server }};
"""
#: Stands for every actor that is in no group. No file can name it: ids are not blank.
_STRANGER = ""


class CedarRules:
    """Rules that were compiled and checked once. Immutable and thread-safe."""

    def __init__(self, rules: PolicyRules) -> None:
        need("cedarpy", "a policy")
        import cedarpy

        self._evaluate = cedarpy.is_authorized
        self._actors = frozenset().union(*rules.groups.values())
        try:
            schema = cedarpy.Schema.from_str(_SCHEMA)
            self._policies = cedarpy.PolicySet.from_json_str(json.dumps(_policy_set(rules)))
            self._entities = cedarpy.Entities.from_json_str(json.dumps(_entities(rules)), schema)
            checked = cedarpy.validate_policies(str(self._policies), schema)
        except ValueError as error:
            raise InternalError(f"the compiled policy is not valid Cedar: {error}") from error
        if not checked.validation_passed:
            raise InternalError(f"the compiled policy does not fit its schema: {checked.errors}")

    def matching(
        self,
        actor: str,
        action: Action,
        *,
        branch_is_protected: bool | None = None,
        target_is_protected: bool | None = None,
    ) -> list[str]:
        """The ids of the rules that allow it, smallest first; None stands for a request without that branch."""
        context: Mapping[str, bool | None] = {}
        if not action.is_for_server:
            context = {_BRANCH: branch_is_protected, _TARGET: target_is_protected}
        request = {
            "principal": _uid("Actor", actor if actor in self._actors else _STRANGER),
            "action": _uid("Action", action),
            "resource": _uid("Server" if action.is_for_server else "Graph", "this"),
            "context": {name: value for name, value in context.items() if value is not None},
        }
        answer = self._evaluate(request, self._policies, self._entities)
        return sorted(answer.diagnostics.reasons) if answer.allowed else []


def _policy_set(rules: PolicyRules) -> dict[str, object]:
    return {"templates": {}, "templateLinks": [], "staticPolicies": {rule.id: _permit(rule) for rule in rules.rules}}


def _permit(rule: Rule) -> dict[str, object]:
    everyone = {"op": "All"}
    members = {"op": "in", "entity": _uid("Group", rule.group or "")}
    is_server_rule = any(action.is_for_server for action in rule.actions)
    return {
        "effect": "permit",
        "principal": everyone if rule.group is None else members,
        "action": {"op": "in", "entities": [_uid("Action", name) for name in sorted(rule.actions)]},
        "resource": {"op": "is", "entity_type": "Server" if is_server_rule else "Graph"},
        "conditions": [
            {"kind": "when", "body": _is(attribute, protected=scope is Scope.PROTECTED)}
            for attribute, scope in ((_BRANCH, rule.branch_scope), (_TARGET, rule.target_branch_scope))
            if scope is not Scope.ANY
        ],
    }


def _is(attribute: str, *, protected: bool) -> dict[str, object]:
    """`context has attribute && context.attribute`, or with the second part negated."""
    context = {"Var": "context"}
    value: dict[str, object] = {".": {"left": context, "attr": attribute}}
    right = value if protected else {"!": {"arg": value}}
    return {"&&": {"left": {"has": {"left": context, "attr": attribute}}, "right": right}}


def _entities(rules: PolicyRules) -> list[dict[str, object]]:
    groups_of: dict[str, list[dict[str, str]]] = {}
    for group, actors in rules.groups.items():
        for actor in actors:
            groups_of.setdefault(actor, []).append(_uid("Group", group))
    return [
        *(_entity(_uid("Group", name), []) for name in rules.groups),
        *(_entity(_uid("Actor", name), groups) for name, groups in groups_of.items()),
    ]


def _entity(uid: dict[str, str], parents: list[dict[str, str]]) -> dict[str, object]:
    return {"uid": uid, "attrs": {}, "parents": parents}


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": str(name)}


# ---- The policy


class Policy:
    """The access rules of one graph, or of a server. Immutable and thread-safe.

    >>> from omnigraph import Action, Policy, PolicyRequest
    >>> policy = Policy.from_text('''
    ... version: 1
    ... groups: { curators: [act-nadia] }
    ... protected_branches: [main]
    ... rules:
    ...   - id: drafts
    ...     allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
    ... ''')
    >>> policy.decide(PolicyRequest("act-nadia", Action.CHANGE, "draft")).rule
    'drafts'
    >>> policy.decide(PolicyRequest("act-nadia", Action.CHANGE, "main")).message
    'actor `act-nadia` may not change branch `main`, which is protected: no rule allows it'
    """

    def __init__(self, rules: PolicyRules) -> None:
        self.rules = rules
        self._actors = frozenset().union(*rules.groups.values())
        #: Answers of `knows`: they are asked for with every request, and never change.
        self._known: dict[str, bool] = {}

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Policy:
        """The policy of a YAML file, compiled and checked.

        Raises:
            InputFileError: the file cannot be read.
            ConfigurationError: it is wrong; `diagnostics` holds every finding with its place.
        """
        from omnigraph.core.yaml_files import YamlDocument

        return cls._compiled(YamlDocument.read(str(path), code=CODE))

    @classmethod
    def from_text(cls, text: str, file: str = "<policy>") -> Policy:
        """The policy of a YAML text; `file` is the name under which mistakes are reported.

        Raises:
            ConfigurationError: it is wrong; `diagnostics` holds every finding with its place.
        """
        from omnigraph.core.source import SourceText
        from omnigraph.core.yaml_files import YamlDocument

        return cls._compiled(YamlDocument(SourceText(text, file), code=CODE))

    @classmethod
    def allowing(cls, rule: str, actions: Iterable[Action]) -> Policy:
        """The policy of one rule: every actor may do these actions, on every branch."""
        return cls(PolicyRules(rules=(Rule(id=rule, group=None, actions=frozenset(actions)),)))

    @classmethod
    def _compiled(cls, document: YamlDocument) -> Policy:
        policy = cls(read_rules(document))
        # A policy that cannot be evaluated is found when it is read, not at the first request.
        _ = policy._cedar
        return policy

    @property
    def actors(self) -> int:
        """The number of actors it knows."""
        return len(self._actors)

    @property
    def is_for_server(self) -> bool:
        """Whether it can be the policy of a server: it holds no rule about a graph."""
        return not self._kinds - {True}

    @property
    def is_for_graph(self) -> bool:
        """Whether it can be the policy of a graph: it holds no rule about a server."""
        return not self._kinds - {False}

    def decide(self, request: PolicyRequest) -> Decision:
        """Whether a request is allowed, by which rule, and a sentence about it. Takes well below a millisecond."""
        if request.actor is None:
            reason = f"no actor is given to {request.describe()}: a policy allows nothing without an actor"
            return Decision(False, None, reason)
        matching = self._cedar.matching(
            request.actor,
            request.action,
            branch_is_protected=self._is_protected(request.branch),
            target_is_protected=self._is_protected(request.target_branch),
        )
        who = f"actor {shown(request.actor)}"
        if matching:
            message = f"{who} may {request.describe()}: rule {shown(matching[0])} allows it"
            return Decision(True, matching[0], message)
        if request.actor not in self._actors and not self._knows_everyone:
            return Decision(False, None, f"{who} is unknown: it is in no group of the policy")
        message = f"{who} may not {request.describe()}{self._state(request)}: no rule allows it"
        return Decision(False, None, message)

    def could(self, actor: str | None, action: Action) -> bool:
        """Whether the actor may do the action on some branch. Answers before the branch is known."""
        if actor is None:
            return False
        states = (True, False) if self.rules.protected_branches else (False,)
        return any(
            self._cedar.matching(actor, action, branch_is_protected=state, target_is_protected=state)
            for state in states
        )

    def knows(self, actor: str | None) -> bool:
        """Whether the actor may do anything at all, on some branch: to others, what it protects need not exist."""
        if actor is None:
            return False
        if actor not in self._known:
            self._known[actor] = any(self.could(actor, action) for action in Action)
        return self._known[actor]

    @cached_property
    def _cedar(self) -> CedarRules:
        return CedarRules(self.rules)

    @cached_property
    def _kinds(self) -> frozenset[bool]:
        return frozenset(a.is_for_server for rule in self.rules.rules for a in rule.actions)

    @cached_property
    def _knows_everyone(self) -> bool:
        return any(rule.group is None for rule in self.rules.rules)

    def _is_protected(self, branch: str | None) -> bool | None:
        return None if branch is None else branch in self.rules.protected_branches

    def _state(self, request: PolicyRequest) -> str:
        """The protection of the branch that rules look at, as text for a message."""
        key = request.action.scope_key
        if key is None:
            return ""
        branch = request.branch if key == "branch_scope" else request.target_branch
        return ", which is protected" if self._is_protected(branch) else ""


#: The policy of a server that has tokens and no policy file: every actor may read, and nothing else.
READ_ONLY = Policy.allowing("default-read-only", [Action.READ])


# ---- The policy gate


_log = logging.getLogger(__name__)


class PolicyGate:
    """Holds one policy, which can be replaced while others ask. Thread-safe.

    Every decision is logged at INFO, with the members `actor`, `action`, `branch`, `target_branch`, `decision` and
    `rule` on the record.
    """

    def __init__(self, policy: Policy) -> None:
        # One reference, read once per decision, so that no decision mixes two policies.
        self._policy = policy

    @classmethod
    def for_graph(cls, policy: Policy | PolicyGate | str | PathLike[str]) -> PolicyGate:
        """The gate of a graph: the one that is given, or a new one with a policy or a policy file.

        Raises:
            BadRequestError: the policy is about a server.
            InputFileError: the file cannot be read.
            ConfigurationError: it is wrong.
        """
        gate = policy
        if not isinstance(gate, PolicyGate):
            gate = cls(gate if isinstance(gate, Policy) else Policy.from_file(gate))
        if not gate.policy.is_for_graph:
            raise BadRequestError("the policy is about a server, and this is a graph: give it another one")
        return gate

    @property
    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._policy

    def replace(self, policy: Policy) -> None:
        """Let another policy decide from now on; decisions that have begun end with the old one."""
        self._policy = policy

    def decide(self, request: PolicyRequest) -> Decision:
        """The decision of the policy."""
        decision = self._policy.decide(request)
        _log.info(
            "policy: %s, %s",
            decision.word,
            decision.message,
            extra={
                "actor": request.actor,
                "action": str(request.action),
                "branch": request.branch,
                "target_branch": request.target_branch,
                "decision": decision.word,
                "rule": decision.rule,
            },
        )
        return decision

    def authorize(self, request: PolicyRequest) -> Decision:
        """The decision of the policy, when it allows.

        Raises:
            PolicyDeniedError: it does not.
        """
        decision = self.decide(request)
        if not decision.allowed:
            raise request.denied(decision)
        return decision

    def could(self, actor: str | None, action: Action) -> bool:
        """Whether the actor may do the action on some branch."""
        return self._policy.could(actor, action)

    def knows(self, actor: str | None) -> bool:
        """Whether the actor may do anything at all, on some branch."""
        return self._policy.knows(actor)


# ---- Policy tests


_ANSWERS = ("allow", "deny")


@frozen(kw_only=True)
class PolicyCase:
    """One request and the answer that is expected."""

    id: str
    request: PolicyRequest
    is_allowed: bool


@frozen(kw_only=True)
class CaseResult:
    """The result of one policy test."""

    case: PolicyCase
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether it said what was expected."""
        return self.decision.allowed == self.case.is_allowed

    @property
    def expected(self) -> str:
        """`allow` or `deny`."""
        return _ANSWERS[not self.case.is_allowed]

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "id": self.case.id,
            "passed": self.passed,
            "expect": self.expected,
            "decision": self.decision.word,
            "rule": self.decision.rule,
            "message": self.decision.message,
        }


def read_cases(path: str | PathLike[str]) -> tuple[PolicyCase, ...]:
    """The cases of a YAML file: `version: 1`, `cases: [{id, actor, action, branch?, target_branch?, expect}]`.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: it is wrong; `diagnostics` holds every finding with its place.
    """
    from omnigraph.core.yaml_files import YamlDocument

    document = YamlDocument.read(str(path), code=CODE)
    names = ("version", "cases")
    members = document.root.members("a file of cases", known=names, required=names)
    check_version(members.get("version"))
    items = members["cases"].items("`cases`") if "cases" in members else []
    ids: set[str] = set()
    cases = [_case(item, ids) for item in items]
    document.raise_errors()
    return tuple(case for case in cases if case is not None)


def run_cases(policy: Policy, cases: Iterable[PolicyCase]) -> list[CaseResult]:
    """Run every case against a policy, in order."""
    return [CaseResult(case=case, decision=policy.decide(case.request)) for case in cases]


def _case(item: YamlValue, ids: set[str]) -> PolicyCase | None:
    needed = ("id", "actor", "action", "expect")
    members = item.members("a case", known=(*needed, "branch", "target_branch"), required=needed)
    name = unique_id(members.get("id"), "a case", ids)
    texts = {
        key: members[key].text(f"`{key}`") for key in ("actor", "branch", "target_branch", "expect") if key in members
    }
    action = read_action(members["action"]) if "action" in members else None
    expect = texts.get("expect")
    if expect is not None and expect not in _ANSWERS:
        members["expect"].error(f"a case expects `allow` or `deny`, not `{expect}`")
    if name is None or action is None or expect not in _ANSWERS:
        return None
    request = PolicyRequest(texts.get("actor"), action, texts.get("branch"), texts.get("target_branch"))
    return PolicyCase(id=name, request=request, is_allowed=expect == "allow")
