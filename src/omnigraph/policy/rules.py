"""Actions, scopes, rules, requests and decisions of a policy as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.errors import PolicyDeniedError

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


# ---- Requests and decisions


#: Longest name that a sentence repeats in full.
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
