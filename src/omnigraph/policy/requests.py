"""What a policy is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.errors import PolicyDeniedError
from omnigraph.policy.rules import Action

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
        """What is asked for, as it stands behind "may not"."""
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
