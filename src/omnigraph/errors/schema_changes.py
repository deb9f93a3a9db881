"""Failures of a schema change: what no step can do, and rows that stand against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors.requests import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.errors.loads import LoadReport

#: How many rows of a rule the message spells out.
_SHOWN = 10


class UnsupportedSchemaError(BadRequestError):
    """A schema change holds differences that no step can carry out. Nothing happened."""

    def __init__(self, refusals: Sequence[str], plan: Mapping[str, object]) -> None:
        self.refusals = tuple(refusals)
        self.plan = plan
        rest = len(refusals) - 1
        more = f" (and {rest} more: `omnigraph schema plan` shows all)" if rest else ""
        super().__init__(f"{refusals[0]}{more}; the schema was not changed")

    def details(self) -> dict[str, object]:
        """The whole plan, and what of it cannot be done."""
        return {"plan": dict(self.plan), "refusals": list(self.refusals)}


class SchemaViolationsError(BadRequestError):
    """Existing rows violate the new schema. `report` counts them and names some; nothing happened."""

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        count = f"{report.total:,} violation{'' if report.total == 1 else 's'} by existing rows"
        super().__init__(f"the schema was not changed: {count}\n{report.render(_SHOWN)}")

    def details(self) -> dict[str, object]:
        """The report; the member `refused` tells it from the one of a load."""
        return {"refused": "schema_change", "report": self.report.to_json()}
