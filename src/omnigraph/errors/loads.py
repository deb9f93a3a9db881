"""Failures of bulk work: refused records with their report, and a Spark that cannot run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.errors.base import OmniError
from omnigraph.errors.commits import KeyConflictError
from omnigraph.errors.requests import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many records of one rule a report spells out; its totals count all of them.
MAX_EXAMPLES = 100
#: How many of them the message of an error spells out.
_SHOWN = 10


#: What the number of a bad record counts.
LINE, RECORD, ROW = "line", "record", "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """One refused record: where it stands, what is wrong with it."""

    #: The file, or the name of a table or frame.
    source: str
    #: Line, record or row, as `unit` says, counted from 1; None when it is not known.
    line: int | None
    type_key: str | None
    field: str | None
    #: The offending value as text.
    value: str | None
    rule: str
    message: str
    #: What is counted: `line` of a text file, `record` of a file whose records are not lines, `row` of a frame.
    unit: str = LINE

    @property
    def location(self) -> str:
        """`file:line`, as editors and terminals recognise it; `file, record 3` where lines are not counted."""
        if self.line is None:
            return self.source
        if self.unit == LINE:
            return f"{self.source}:{self.line}"
        return f"{self.source}, {self.unit} {self.line}"

    def to_json(self) -> dict[str, object]:
        """The record as a JSON object."""
        return {
            "source": self.source,
            "line": self.line,
            "type_key": self.type_key,
            "field": self.field,
            "value": self.value,
            "rule": self.rule,
            "message": self.message,
            "unit": self.unit,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> BadRecord:
        """The inverse of `to_json`."""
        return BadRecord(
            source=body["source"],
            line=body["line"],
            type_key=body["type_key"],
            field=body["field"],
            value=body["value"],
            rule=body["rule"],
            message=body["message"],
            # Servers of earlier releases do not say.
            unit=body.get("unit", LINE),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Every rule that records of a load violate: exact totals, and up to 100 examples of each."""

    totals: dict[str, int] = field(default_factory=dict)
    examples: tuple[BadRecord, ...] = ()
    #: False when the load ended before records were compared with each other and with the graph.
    relations_checked: bool = True

    @property
    def total(self) -> int:
        """How many violations there are."""
        return sum(self.totals.values())

    def render(self, shown: int = MAX_EXAMPLES) -> str:
        """The report as a person reads it: one paragraph per rule."""
        lines: list[str] = []
        for rule, total in self.totals.items():
            found = [item for item in self.examples if item.rule == rule][:shown]
            lines.append(f"{rule}: {total:,} record{'' if total == 1 else 's'}")
            lines += [f"  {item.location}: {item.message}" for item in found]
            if (hidden := total - len(found)) > 0:
                lines.append(f"  … and {hidden:,} more")
        if not self.relations_checked:
            lines.append("relations (ends of edges, @unique, counts) were not checked yet")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "total": self.total,
            "rules": [
                {
                    "rule": rule,
                    "total": total,
                    "examples": [item.to_json() for item in self.examples if item.rule == rule],
                }
                for rule, total in self.totals.items()
            ],
            "relations_checked": self.relations_checked,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> LoadReport:
        """The inverse of `to_json`."""
        return LoadReport(
            totals={item["rule"]: item["total"] for item in body["rules"]},
            examples=tuple(
                BadRecord.from_json(record) for item in body["rules"] for record in item["examples"]
            ),
            # Servers of earlier releases do not say.
            relations_checked=body.get("relations_checked", True),
        )


class LoadRejectedError(BadRequestError):
    """Records of a load are wrong. `report` holds every rule with exact totals; nothing was written."""

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        super().__init__(_rejection(report))

    def details(self) -> dict[str, object]:
        """The report."""
        return {"report": self.report.to_json()}


class LoadKeyConflictError(KeyConflictError):
    """An append load met ids that exist already. `report` names them; nothing was written."""

    def __init__(
        self, entity_kind: str, type_name: str, entity_id: str, report: LoadReport
    ) -> None:
        self.report = report
        super().__init__(entity_kind, type_name, entity_id)
        self.message = f"{self.message}\n{_rejection(report)}"
        self.args = (self.message,)

    def details(self) -> dict[str, object]:
        """The first entity, and the report."""
        return super().details() | {"report": self.report.to_json()}


class SparkError(OmniError):
    """Spark cannot be started, or a job of it failed for a reason outside the data.

    The message says what to change, and that nothing was written where that is so.
    """

    kind = "spark"
    http_status = 500


def _rejection(report: LoadReport) -> str:
    count = f"{report.total:,} violation{'' if report.total == 1 else 's'}"
    return f"the load was refused, nothing was written: {count}\n{report.render(_SHOWN)}"
