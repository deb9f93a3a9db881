"""Actions, scopes, rules, requests and decisions of a policy as data, and the files that rules are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from omnigraph.core.ids import check_branch_name
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError, PolicyDeniedError
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.core.yaml_files import YamlDocument, YamlValue


# ---- Actions, scopes and rules


class Action(StrEnum):
    """An action that a rule can allow; `graph_list` to a server, everything else to a graph."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"

    @property
    def scope_key(self) -> ScopeKey | None:
        """The branch of a request that a rule about this action may look at."""
        return _SCOPE_KEYS.get(self)

    @property
    def is_for_server(self) -> bool:
        """Whether it is done to a server and not to a graph."""
        return self is Action.GRAPH_LIST


class ScopeKey(StrEnum):
    """The branch that a scope is about, as a rule spells it."""

    BRANCH = "branch_scope"
    TARGET = "target_branch_scope"


class Scope(StrEnum):
    """The branches that a rule applies to. Only `any` fits a request that names no branch."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


_SCOPE_KEYS = {
    Action.READ: ScopeKey.BRANCH,
    Action.EXPORT: ScopeKey.BRANCH,
    Action.CHANGE: ScopeKey.BRANCH,
    Action.SCHEMA_APPLY: ScopeKey.TARGET,
    Action.BRANCH_CREATE: ScopeKey.TARGET,
    Action.BRANCH_DELETE: ScopeKey.TARGET,
    Action.BRANCH_MERGE: ScopeKey.TARGET,
}


@frozen(kw_only=True)
class Rule:
    """One permission: the members of a group may do some actions on some branches."""

    id: str
    #: None stands for every actor, which no file can say.
    group: str | None
    actions: frozenset[Action]
    branch_scope: Scope = Scope.ANY
    target_branch_scope: Scope = Scope.ANY


@frozen(kw_only=True)
class PolicyRules:
    """The content of a policy file. What no rule allows is denied."""

    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    protected_branches: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()


# ---- Requests and decisions


#: Longest name that a sentence repeats in full.
_SHOWN_LENGTH = 80


@frozen
class PolicyRequest:
    """May this actor do this?

    A merge goes from `branch` into `target_branch`; a new branch `target_branch` begins at `branch`; a deletion and a
    schema change have a target only; reads and changes have a branch only.
    """

    actor: str | None
    action: Action
    branch: str | None = None
    target_branch: str | None = None

    def __post_init__(self) -> None:
        # Branch names are read without surrounding spaces everywhere: ` main` must not pass for an unprotected one.
        for name in ("branch", "target_branch"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, value.strip())

    def describe(self) -> str:
        """The request as text, to follow "may not"."""
        branch, target = _branch(self.branch), _branch(self.target_branch)
        match self.action:
            case Action.READ | Action.EXPORT | Action.CHANGE:
                return f"{self.action} {branch}"
            case Action.SCHEMA_APPLY:
                return f"apply a schema to {target}"
            case Action.BRANCH_CREATE:
                return f"create {target} from {branch}"
            case Action.BRANCH_DELETE:
                return f"delete {target}"
            case Action.BRANCH_MERGE:
                return f"merge {branch} into {target}"
            case Action.INVOKE_QUERY:
                return "run stored queries"
            case Action.ADMIN:
                return "maintain the graph"
            case Action.GRAPH_LIST:
                return "list the graphs of the server"

    def denied(self, decision: Decision) -> PolicyDeniedError:
        """The refusal of this request."""
        return PolicyDeniedError(
            decision.message,
            action=str(self.action),
            actor=self.actor,
            branch=self.branch,
            target_branch=self.target_branch,
        )


@frozen
class Decision:
    """The answer: `rule` is the smallest id of the rules that allow it, None when none does."""

    allowed: bool
    rule: str | None
    message: str

    @property
    def word(self) -> str:
        """`allow` or `deny`, as test files and logs spell it."""
        return "allow" if self.allowed else "deny"


def shown(name: str) -> str:
    """A name inside a sentence: in backticks, on one line, and not endless."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return f"`{text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + '…'}`"


def _branch(name: str | None) -> str:
    return "no particular branch" if name is None else f"branch {shown(name)}"


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
