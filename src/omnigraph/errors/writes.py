"""Writes that did not happen: lost races, conflicts, refused loads and schema changes; gaps of the change feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omnigraph.errors.base import OmniError
from omnigraph.errors.requests import BadRequestError

# ---- Failures around a commit: lost races, unmet preconditions, unsettled writes


class ConflictError(OmniError):
    """The graph moved in a way that this operation cannot follow. Nothing happened; a repetition may succeed."""

    kind = "conflict"
    code = "conflict"
    http_status = 409
    exit_code = 75


class ExpectedVersionMismatchError(ConflictError):
    """A touched table moved between reading and publishing."""

    def __init__(self, table_key: str, expected: int | None, actual: int | None) -> None:
        self.table_key = table_key
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"stale view of {table_key}: read version {expected}, now {actual}; read again and retry"
        )

    def details(self) -> dict[str, object]:
        """`manifest_conflict` with the table and both versions."""
        conflict = {"table_key": self.table_key, "expected": self.expected, "actual": self.actual}
        return {"manifest_conflict": conflict}


class BranchesExistError(ConflictError):
    """Something that needs `main` to be the only branch met others. Nothing happened."""

    exit_code = 1

    def __init__(self, branches: list[str]) -> None:
        self.branches = branches
        super().__init__(
            f"the schema changes only while `main` is the only branch: merge or delete {', '.join(branches)} first"
        )

    def details(self) -> dict[str, object]:
        """The branches that are in the way."""
        return {"branches": self.branches}


class ReadSetConflictError(ConflictError):
    """Something that was only read moved: another table, the branch itself, or the schema."""

    def __init__(self, member: str, expected: object = None, actual: object = None) -> None:
        self.member = member
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{member} changed while this operation was prepared; read again and retry"
        )

    def details(self) -> dict[str, object]:
        """`read_set_conflict` with what moved."""
        conflict = {"member": self.member, "expected": self.expected, "actual": self.actual}
        return {"read_set_conflict": conflict}


class RetryableCommitConflictError(ConflictError):
    """The commit lock or the catalog stayed busy. Nothing happened; try again."""

    kind = "retryable_commit_conflict"


class LeaseLostError(RetryableCommitConflictError):
    """The writer stood still for longer than its lease, and another writer took the commit lock over."""

    def __init__(self) -> None:
        super().__init__(
            "this writer stood still for longer than its lease of the commit lock, and another writer took over; "
            "the write did not happen, try again. If it happens often, requests to the store take too long for the "
            "lease: set OMNIGRAPH_LOCK_LEASE_MS to a longer time"
        )

    def details(self) -> dict[str, object]:
        """`lease_lost`, which tells it from a lock that stayed busy."""
        return {"lease_lost": True}


class KeyConflictError(OmniError):
    """A strict insert met an id that exists already; repeating it stays a conflict."""

    kind = "key_conflict"
    code = "conflict"
    http_status = 409

    def __init__(self, entity_kind: str, type_name: str, entity_id: str | None) -> None:
        self.entity_kind = entity_kind
        self.type_name = type_name
        self.entity_id = entity_id
        which = f" with id {entity_id!r}" if entity_id is not None else ""
        super().__init__(f"a {entity_kind} of type {type_name}{which} exists already")

    def details(self) -> dict[str, object]:
        """`key_conflict` with the entity."""
        conflict = {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
        }
        return {"key_conflict": conflict}


class PreconditionFailedError(OmniError):
    """The branch head is not the commit that the caller expected. Nothing happened."""

    kind = "precondition_failed"
    code = None
    http_status = 412
    exit_code = 4

    def __init__(self, branch: str, expected: str, actual: str | None) -> None:
        self.branch = branch
        self.expected = expected
        self.actual = actual
        super().__init__(f"branch {branch} is at commit {actual}, not at {expected}; read again")

    def details(self) -> dict[str, object]:
        """`precondition_failure` with both commits."""
        failure = {"branch": self.branch, "expected": self.expected, "actual": self.actual}
        return {"precondition_failure": failure}


class RecoveryRequiredError(OmniError):
    """A write failed after its first effect and could not be settled at once. Look before you retry."""

    kind = "recovery_required"
    code = None
    http_status = 503

    def __init__(self, operation_id: str, reason: str, *, needs_operator: bool = False) -> None:
        self.operation_id = operation_id
        self.reason = reason
        end = "" if needs_operator else "; the next write, open or refresh settles it"
        super().__init__(
            f"operation {operation_id} is unsettled: {reason}{end}; `omnigraph recovery list` shows it"
        )

    def details(self) -> dict[str, object]:
        """`recovery_required` with the operation."""
        return {"recovery_required": {"operation_id": self.operation_id, "reason": self.reason}}


class InternalError(OmniError):
    """An invariant is broken. Nothing was repaired on its own."""

    kind = "internal"


# ---- Failures of merges: what two branches disagree about


#: Conflicts that a message spells out, and conflicts that an error carries.
_SHOWN_CONFLICTS = 3
MAX_CONFLICTS = 1_000


class ConflictKind(StrEnum):
    """What the two sides disagree about. The first three concern one row, the others the merged result."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"

    @property
    def is_about_a_row(self) -> bool:
        """Whether a strategy can decide it."""
        return self in _ROW_KINDS


_ROW_KINDS = frozenset(
    {
        ConflictKind.DIVERGENT_INSERT,
        ConflictKind.DIVERGENT_UPDATE,
        ConflictKind.DELETE_VS_UPDATE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeConflict:
    """One conflict.

    Of a conflict about a row, the row as it was (`base`), on the target (`ours`) and on the source (`theirs`): an
    object with `properties` and for edges `endpoints`; None where there is no row.
    """

    kind: ConflictKind
    type_key: str
    message: str
    entity_id: str | None = None
    base: Mapping[str, object] | None = None
    ours: Mapping[str, object] | None = None
    theirs: Mapping[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """The conflict as an error body carries it."""
        kind, _, name = self.type_key.partition(":")
        body: dict[str, object] = {"entity_kind": kind, "type_name": name}
        if self.entity_id is not None:
            body["entity_id"] = self.entity_id
        body |= {"kind": str(self.kind), "message": self.message}
        if self.kind.is_about_a_row:
            body |= {"base": self.base, "ours": self.ours, "theirs": self.theirs}
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MergeConflict:
        """The inverse of `to_json`."""
        return MergeConflict(
            kind=ConflictKind(body["kind"]),
            type_key=f"{body['entity_kind']}:{body['type_name']}",
            message=body["message"],
            entity_id=body.get("entity_id"),
            base=body.get("base"),
            ours=body.get("ours"),
            theirs=body.get("theirs"),
        )


class MergeConflictsError(OmniError):
    """Two branches cannot be merged as they are. Nothing happened; `conflicts` holds all of them, or the first."""

    kind = "merge_conflicts"
    code = "conflict"
    http_status = 409

    def __init__(
        self, source: str, target: str, conflicts: tuple[MergeConflict, ...], total: int
    ) -> None:
        self.source = source
        self.target = target
        self.conflicts = conflicts
        self.total = total
        listing = "; ".join(conflict.message for conflict in conflicts[:_SHOWN_CONFLICTS])
        more = f"; and {total - _SHOWN_CONFLICTS:,} more" if total > _SHOWN_CONFLICTS else ""
        several = "1 conflict" if total == 1 else f"{total:,} conflicts"
        advice = (
            "change one of the branches, or decide all of them with the strategy `ours` or `theirs`"
            if all(conflict.kind.is_about_a_row for conflict in conflicts)
            else "change one of the branches and merge again"
        )
        super().__init__(
            f"{source} cannot be merged into {target}, nothing was changed: {several}: {listing}{more}; {advice}"
        )

    def details(self) -> dict[str, object]:
        """`merge_conflicts`, how many there are, and the branches."""
        return {
            "source": self.source,
            "target": self.target,
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
            "merge_conflict_total": self.total,
        }


# ---- Failures of bulk work: refused records with their report, and a Spark that cannot run


#: How many records of one rule a report spells out; its totals count all of them.
MAX_EXAMPLES = 100
#: How many of them the message of an error spells out.
_SHOWN_VIOLATIONS = 10


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
    return f"the load was refused, nothing was written: {count}\n{report.render(_SHOWN_VIOLATIONS)}"


# ---- Failures of a schema change: what no step can do, and rows that stand against it


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


# ---- Failures of changes and their feed: what cannot be told, and tokens that do not belong here


class ChangeDiffRefusedError(OmniError):
    """The changes of a commit cannot be told exactly, and are not guessed."""

    code = "conflict"
    http_status = 409
    reason = ""

    def __init__(self, message: str, commit_id: str, type_name: str | None = None) -> None:
        self.commit_id = commit_id
        self.type_name = type_name
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """`change_diff_refusal` with the reason."""
        refusal: dict[str, object] = {"reason": self.reason, "graph_commit_id": self.commit_id}
        if self.type_name is not None:
            refusal["type_name"] = self.type_name
        return {"change_diff_refusal": refusal}


class CommitHasNoParentError(ChangeDiffRefusedError):
    """The first commit of a graph has no changes: there is nothing before it."""

    kind = "commit_has_no_parent"
    reason = "parentless_commit"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"commit {commit_id} is the first one of the graph: it has no parent to be compared with",
            commit_id,
        )


class ChangeSchemaBoundaryError(ChangeDiffRefusedError):
    """The schema of a type with data changed between a commit and its parent."""

    kind = "change_schema_boundary"
    reason = "schema_boundary"

    def __init__(self, commit_id: str, type_name: str) -> None:
        super().__init__(
            f"commit {commit_id} changed the schema of {type_name}: rows before and after it do not compare; "
            "take a new baseline",
            commit_id,
            type_name,
        )


class ChangeCursorRejectedError(BadRequestError):
    """A cursor or page token is damaged, or belongs to another graph, branch, filter or call."""

    kind = "change_cursor_rejected"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"change cursor rejected: {reason}")

    def details(self) -> dict[str, object]:
        """`change_cursor_rejected` with the reason."""
        return {"change_cursor_rejected": {"reason": self.reason}}


class ChangeFeedGapError(OmniError):
    """History that a feed has to go through was cleaned up. Trying again cannot help: take a new baseline."""

    kind = "change_feed_gap"
    code = None
    http_status = 410

    def __init__(self, commit_id: str, cursor: str | None = None) -> None:
        self.commit_id = commit_id
        self.cursor = cursor
        super().__init__(
            f"the changes of commit {commit_id} were cleaned up: take a new baseline and go on from its cursor"
        )

    def details(self) -> dict[str, object]:
        """`change_feed_gap` with the first commit that cannot be read."""
        gap: dict[str, object] = {"first_unreadable_commit_id": self.commit_id}
        if self.cursor is not None:
            gap["cursor"] = self.cursor
        return {"change_feed_gap": gap}
