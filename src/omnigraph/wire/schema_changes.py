"""The receipt of a schema change, and its steps when they come from a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph.errors import Diagnostic
from omnigraph.schema.steps import Step, UnsupportedChange, step_from_json
from omnigraph.wire.commits import commit_document, optional_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.manifest.rows import GraphCommit


class SchemaSteps(Protocol):
    """What a schema change does, step by step: a plan, or what a server tells about its own."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in their order."""
        ...

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What the schema says without effect."""
        ...

    @property
    def supported(self) -> bool:
        """Whether every difference has a step."""
        ...

    def to_json(self) -> dict[str, object]:
        """`{supported, step_count, steps}`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSteps:
    """The steps of a schema change as a server told them."""

    steps: tuple[Step, ...]
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def supported(self) -> bool:
        """Whether every difference has a step."""
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    def to_json(self) -> dict[str, object]:
        """`{supported, step_count, steps}`."""
        return {
            "supported": self.supported,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaApplyResult:
    """The receipt of a schema change; `commit` is None when the schemas meant the same already."""

    plan: SchemaSteps
    graph_version: int
    commit: GraphCommit | None

    @property
    def applied(self) -> bool:
        """Whether anything changed."""
        return self.commit is not None

    def to_json(self) -> dict[str, object]:
        """The receipt as a JSON object."""
        body = self.plan.to_json()
        return {
            "supported": body["supported"],
            "applied": self.applied,
            "step_count": body["step_count"],
            "graph_manifest_version": self.graph_version,
            "graph_commit_id": None if self.commit is None else self.commit.commit_id,
            "steps": body["steps"],
        }

    def document(self) -> dict[str, object]:
        """The receipt as a server sends it: complete."""
        return self.to_json() | {
            "commit": None if self.commit is None else commit_document(self.commit),
            "warnings": [warning.document() for warning in self.plan.warnings],
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SchemaApplyResult:
        """The inverse of `document`."""
        plan = ReportedSteps(
            steps=tuple(map(step_from_json, body["steps"])),
            warnings=tuple(map(Diagnostic.from_json, body.get("warnings", ()))),
        )
        return SchemaApplyResult(
            plan=plan,
            graph_version=body["graph_manifest_version"],
            commit=optional_commit(body.get("commit")),
        )
