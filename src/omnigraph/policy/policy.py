"""A policy: rules with their compiled form, and the sentences around a decision."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.policy.cedar import CedarRules
from omnigraph.policy.requests import Decision, shown
from omnigraph.policy.rules import Action, PolicyRules, Rule

if TYPE_CHECKING:
    from os import PathLike

    from omnigraph.policy.requests import PolicyRequest
    from omnigraph.yaml_files import YamlDocument


class Policy:
    """Who may do what to one graph, or to a server. Immutable and thread-safe.

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
        from omnigraph.policy.reading import CODE
        from omnigraph.yaml_files import YamlDocument

        return cls._compiled(YamlDocument.read(str(path), code=CODE))

    @classmethod
    def from_text(cls, text: str, file: str = "<policy>") -> Policy:
        """The policy of a YAML text; `file` is the name under which mistakes are reported.

        Raises:
            ConfigurationError: it is wrong; `diagnostics` holds every finding with its place.
        """
        from omnigraph.policy.reading import CODE
        from omnigraph.syntax.source import SourceText
        from omnigraph.yaml_files import YamlDocument

        return cls._compiled(YamlDocument(SourceText(text, file), code=CODE))

    @classmethod
    def _compiled(cls, document: YamlDocument) -> Policy:
        from omnigraph.policy.reading import read_rules

        policy = cls(read_rules(document))
        # A policy that cannot be evaluated is found when it is read, not at the first request.
        _ = policy._cedar
        return policy

    @property
    def actors(self) -> int:
        """How many actors it knows."""
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
            reason = f"nobody is named who wants to {request.describe()}: a policy allows nothing without an actor"
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
            self._cedar.matching(
                actor, action, branch_is_protected=state, target_is_protected=state
            )
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
        """What a person has to know about the branch that rules look at."""
        key = request.action.scope_key
        if key is None:
            return ""
        branch = request.branch if key == "branch_scope" else request.target_branch
        return ", which is protected" if self._is_protected(branch) else ""


#: The policy of a server that has tokens and no policy file: every actor may read, and nothing else.
READ_ONLY = Policy(
    PolicyRules(rules=(Rule(id="default-read-only", group=None, actions=frozenset({Action.READ})),))
)
