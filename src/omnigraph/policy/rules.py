"""What a policy is made of: actions, scopes and rules. Only data; `cedar` gives it its meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Action(StrEnum):
    """What an actor may be allowed to do; `graph_list` to a server, everything else to a graph."""

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
        """Which branch of a request a rule about this action may look at."""
        return _SCOPE_KEYS.get(self)

    @property
    def is_for_server(self) -> bool:
        """Whether it is done to a server and not to a graph."""
        return self is Action.GRAPH_LIST


class ScopeKey(StrEnum):
    """Which branch a scope is about, as a rule spells it."""

    BRANCH = "branch_scope"
    TARGET = "target_branch_scope"


class Scope(StrEnum):
    """Which branches a rule applies to. Only `any` fits a request that names no branch."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One permission: the members of a group may do some actions on some branches."""

    id: str
    #: None stands for every actor, which no file can say.
    group: str | None
    actions: frozenset[Action]
    branch_scope: Scope = Scope.ANY
    target_branch_scope: Scope = Scope.ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRules:
    """The content of a policy file. What no rule allows is denied."""

    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    protected_branches: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()
