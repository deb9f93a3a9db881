"""The gate: the policy that holds right now, asked by the server at its edge and by the engine before a write."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.policy.policy import Policy

if TYPE_CHECKING:
    from os import PathLike

    from omnigraph.policy.requests import Decision, PolicyRequest
    from omnigraph.policy.rules import Action

_log = logging.getLogger(__name__)


class PolicyGate:
    """Holds one policy, which can be replaced while others ask. Thread-safe.

    Every decision is logged at INFO, with the members `actor`, `action`, `branch`, `target_branch`, `decision` and
    `rule` on the record.
    """

    def __init__(self, policy: Policy) -> None:
        # One reference, read once per decision: nobody sees a mixture of two policies.
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
            raise BadRequestError(
                "the policy is about a server, and this is a graph: give it another one"
            )
        return gate

    @property
    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._policy

    def replace(self, policy: Policy) -> None:
        """Let another policy decide from now on; decisions that have begun end with the old one."""
        self._policy = policy

    def decide(self, request: PolicyRequest) -> Decision:
        """What the policy says."""
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
        """What the policy says, when it allows.

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
