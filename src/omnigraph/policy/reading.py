"""Policy files: YAML in, rules out, every mistake with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from omnigraph.core.ids import check_branch_name
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError
from omnigraph.policy.rules import Action, PolicyRules, Rule, Scope, ScopeKey

if TYPE_CHECKING:
    from omnigraph.core.yaml_files import YamlDocument, YamlValue

#: The code of every finding in a policy file, or in a file of cases.
CODE = "policy_invalid"

_Word = TypeVar("_Word", Action, Scope)


def read_rules(document: YamlDocument) -> PolicyRules:
    """The rules of a policy file.

    Raises:
        ConfigurationError: the file is wrong; `diagnostics` holds everything that was found, with its place.
    """
    members = document.root.members(
        "a policy", known=("version", "groups", "protected_branches", "rules"), required=("version",)
    )
    check_version(members.get("version"))
    groups = _groups(members.get("groups"))
    protected = _branches(members.get("protected_branches"))
    rules = _rules(members.get("rules"), groups)
    document.raise_errors()
    return PolicyRules(groups=groups, protected_branches=protected, rules=rules)


def check_version(version: YamlValue | None) -> None:
    """Record any other version than 1."""
    if version is not None and version.integer("`version`") not in (None, 1):
        version.error("there is only version 1 of this file format")


def read_action(value: YamlValue) -> Action | None:
    """An action by its name."""
    return _word(value, "an action", Action)


def unique_id(value: YamlValue | None, what: str, taken: set[str]) -> str | None:
    """An id that nothing before it has; it is taken from now on."""
    name = None if value is None else _text(value, f"the id of {what}")
    if name is None or value is None:
        return None
    if name in taken:
        value.error(f"the id {name!r} is given twice")
    taken.add(name)
    return name


def _groups(value: YamlValue | None) -> dict[str, frozenset[str]]:
    groups: dict[str, frozenset[str]] = {}
    members = {} if value is None else value.members("`groups`")
    for name, actors in members.items():
        if not name.strip() or not _is_sendable(name):
            actors.key_error("the name of a group is blank or holds half a character")
        items = actors.items(f"group `{name}`")
        if not items and actors.is_list:
            actors.error(f"group `{name}` is empty", "leave it out, or name an actor")
        found = (_text(item, "an actor") for item in items)
        groups[name] = frozenset(actor for actor in found if actor is not None)
    return groups


def _branches(value: YamlValue | None) -> frozenset[str]:
    names = set()
    for item in [] if value is None else value.items("`protected_branches`"):
        text = item.text("a protected branch")
        if text is not None:
            try:
                names.add(check_branch_name(text))
            except BadRequestError as error:
                item.error(error.message)
    return frozenset(names)


def _rules(value: YamlValue | None, groups: Mapping[str, frozenset[str]]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    ids: set[str] = set()
    is_server_file: bool | None = None
    for item in [] if value is None else value.items("`rules`"):
        members = item.members("a rule", known=("id", "allow"), required=("id", "allow"))
        name = unique_id(members.get("id"), "a rule", ids)
        if (allow := members.get("allow")) is None:
            continue
        rule = _rule(name or "?", allow, groups)
        kinds = {action.is_for_server for action in rule.actions}
        if len(kinds) == 1:
            [is_server_rule] = kinds
            if is_server_file is None:
                is_server_file = is_server_rule
            elif is_server_file != is_server_rule:
                item.error(
                    "rules about a server (`graph_list`) and rules about a graph are in one file",
                    "give the server a policy file of its own",
                )
        rules.append(rule)
    return tuple(rules)


def _rule(name: str, allow: YamlValue, groups: Mapping[str, frozenset[str]]) -> Rule:
    members = allow.members("`allow`", known=("actors", "actions", *ScopeKey), required=("actors", "actions"))
    group = None if "actors" not in members else _group(members["actors"], groups)
    actions = frozenset() if "actions" not in members else _actions(members["actions"])
    if len({action.is_for_server for action in actions}) > 1:
        members["actions"].error("`graph_list` is about a server, and the other actions are about a graph")
    scopes = {key: members[key] for key in ScopeKey if key in members}
    if len(scopes) > 1:
        scopes[ScopeKey.TARGET].key_error("a rule has `branch_scope` or `target_branch_scope`, not both")
    else:
        for key, place in scopes.items():
            _check_scope_key(key, place, actions)
    read = {key: _word(place, "a scope", Scope) or Scope.ANY for key, place in scopes.items()}
    return Rule(
        id=name,
        # A rule whose group could not be read never becomes one for every actor: the file is refused.
        group=group or "",
        actions=actions,
        branch_scope=read.get(ScopeKey.BRANCH, Scope.ANY),
        target_branch_scope=read.get(ScopeKey.TARGET, Scope.ANY),
    )


def _group(actors: YamlValue, groups: Mapping[str, frozenset[str]]) -> str | None:
    members = actors.members("`actors`", known=("group",), required=("group",))
    name = members["group"].text("the group") if "group" in members else None
    if name is not None and name not in groups:
        members["group"].error(f"there is no group `{name}`", did_you_mean(name, groups))
    return name


def _actions(value: YamlValue) -> frozenset[Action]:
    items = value.items("`actions`")
    if not items and value.is_list:
        value.error("the rule allows no action")
    found = (read_action(item) for item in items)
    return frozenset(action for action in found if action is not None)


def _check_scope_key(key: ScopeKey, place: YamlValue, actions: frozenset[Action]) -> None:
    for action in sorted(actions):
        if action.scope_key is not key:
            other = action.scope_key
            hint = f"it has `{other}`; give it a rule of its own" if other else "it has no scope"
            place.key_error(f"`{action}` has no `{key}`", hint)


def _word(value: YamlValue, what: str, known: type[_Word]) -> _Word | None:
    text = value.text(what)
    if text is None:
        return None
    try:
        return known(text)
    except ValueError:
        words = [str(word) for word in known]
        value.error(f"`{text}` is not {what}", did_you_mean(text, words))
        return None


def _text(value: YamlValue, what: str) -> str | None:
    text = value.text(what)
    if text is not None and not _is_sendable(text):
        value.error(f"{what} holds half a surrogate pair, not a character")
        return None
    return text


def _is_sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
