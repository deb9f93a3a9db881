"""Refusals by a policy."""

from __future__ import annotations

from omnigraph.errors.base import OmniError


class PolicyDeniedError(OmniError):
    """The policy does not allow it, or nobody says who asks. Nothing happened."""

    kind = "policy"
    code = "forbidden"
    http_status = 403

    def __init__(
        self,
        message: str,
        *,
        action: str,
        actor: str | None,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> None:
        self.action = action
        self.actor = actor
        self.branch = branch
        self.target_branch = target_branch
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """`policy_denial` with what was asked; branches only where the request has them."""
        denial: dict[str, object] = {"action": self.action, "actor_id": self.actor}
        if self.branch is not None:
            denial["branch"] = self.branch
        if self.target_branch is not None:
            denial["target_branch"] = self.target_branch
        return {"policy_denial": denial}
