"""Rules as Cedar policies, and their evaluation.

Rules travel as Cedar's JSON form and never as text, so that no name can end a string and begin a policy. A request
carries the actor, the action and two truth values at most: whether its branches are protected is looked up before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omnigraph.errors import InternalError
from omnigraph.policy.rules import Action, PolicyRules, Rule, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    return {
        "templates": {},
        "templateLinks": [],
        "staticPolicies": {rule.id: _permit(rule) for rule in rules.rules},
    }


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
            for attribute, scope in (
                (_BRANCH, rule.branch_scope),
                (_TARGET, rule.target_branch_scope),
            )
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
