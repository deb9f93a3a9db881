"""Writes that did not happen: lost races, conflicts, refused loads and schema changes; gaps of the change feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NotRequired, Self, TypedDict

from omnigraph.codec import ENTITY_TYPE, HIDDEN, OMIT_NONE, Document, Key, When
from omnigraph.errors.base import OmniError
from omnigraph.errors.requests import BadRequestError, InputFileError
from omnigraph.frozen import frozen

# ---- Errors of commits


class ConflictError(OmniError):
    """The graph moved in a way that this operation cannot follow. Nothing happened; a repetition may succeed."""

    kind = "conflict"
    code = "conflict"
    http_status = 409
    exit_code = 75


class ExpectedVersionMismatchError(ConflictError):
    """A touched table moved between reading and publishing."""

    inside = "manifest_conflict"
    table_key: str
    expected: int | None
    actual: int | None

    def __init__(self, table_key: str, expected: int | None, actual: int | None) -> None:
        self.table_key = table_key
        self.expected = expected
        self.actual = actual
        super().__init__(f"stale view of {table_key}: read version {expected}, now {actual}; read again and retry")


class BranchesExistError(ConflictError):
    """Something that needs `main` to be the only branch met others. Nothing happened."""

    exit_code = 1
    branches: list[str]

    def __init__(self, branches: list[str]) -> None:
        self.branches = branches
        super().__init__(
            f"the schema changes only while `main` is the only branch: merge or delete {', '.join(branches)} first"
        )


class ReadSetConflictError(ConflictError):
    """Something that was only read moved: another table, the branch itself, or the schema."""

    inside = "read_set_conflict"
    member: str
    expected: object
    actual: object

    def __init__(self, member: str, expected: object = None, actual: object = None) -> None:
        self.member = member
        self.expected = expected
        self.actual = actual
        super().__init__(f"{member} changed while this operation was prepared; read again and retry")


class RetryableCommitConflictError(ConflictError):
    """The commit lock or the manifest stayed busy. Nothing happened; try again."""

    kind = "retryable_commit_conflict"


class LeaseLostError(RetryableCommitConflictError):
    """The writer stood still for longer than its lease, and another writer took the commit lock over."""

    #: Tells it from a lock that stayed busy.
    lease_lost: bool = True

    def __init__(self) -> None:
        super().__init__(
            "this writer stood still for longer than its lease of the commit lock, and another writer took over; "
            "the write did not happen, try again. If it happens often, requests to the store take too long for the "
            "lease: set OMNIGRAPH_LOCK_LEASE_MS to a longer time"
        )


class KeyConflictError(OmniError):
    """A strict insert met an id that exists already; repeating it stays a conflict."""

    kind = "key_conflict"
    code = "conflict"
    http_status = 409
    inside = "key_conflict"
    entity_kind: str
    type_name: str
    entity_id: str | None

    def __init__(self, entity_kind: str, type_name: str, entity_id: str | None) -> None:
        self.entity_kind = entity_kind
        self.type_name = type_name
        self.entity_id = entity_id
        which = f" with id {entity_id!r}" if entity_id is not None else ""
        article = "an" if entity_kind == "edge" else "a"
        super().__init__(f"{article} {entity_kind} of type {type_name}{which} exists already")


class PreconditionFailedError(OmniError):
    """The branch head is not the commit that the caller expected. Nothing happened."""

    kind = "precondition_failed"
    code = None
    http_status = 412
    exit_code = 4
    inside = "precondition_failure"
    branch: str
    expected: str
    actual: str | None

    def __init__(self, branch: str, expected: str, actual: str | None) -> None:
        self.branch = branch
        self.expected = expected
        self.actual = actual
        super().__init__(f"branch {branch} is at commit {actual}, not at {expected}; read again")


class RecoveryRequiredError(OmniError):
    """A write failed after its first effect and could not be settled at once. Look before you retry."""

    kind = "recovery_required"
    code = None
    http_status = 503
    inside = "recovery_required"
    operation_id: str
    reason: str

    def __init__(self, operation_id: str, reason: str, *, needs_operator: bool = False) -> None:
        self.operation_id = operation_id
        self.reason = reason
        end = "" if needs_operator else "; the next write, open or refresh settles it"
        super().__init__(f"operation {operation_id} is unsettled: {reason}{end}; `omnigraph recovery list` shows it")


class InternalError(OmniError):
    """An invariant is broken. Nothing was repaired on its own."""

    kind = "internal"


# ---- Failures of merges: what two branches disagree about


#: Conflicts that a message spells out, and conflicts that an error carries.
_SHOWN_CONFLICTS = 3
MAX_CONFLICTS = 1_000


#: The ways to decide all conflicts about rows: for the target, or for the source.
STRATEGIES = ("ours", "theirs")


class ConflictKind(StrEnum):
    """The kind of a merge conflict. The first three concern one row, the others the merged result."""

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


_ROW_KINDS = frozenset({ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE})


class RowImage(TypedDict):
    """A row as people see it: its properties, of an edge its ends, and its id where that is not told beside it."""

    id: NotRequired[str]
    endpoints: NotRequired[dict[str, str]]
    properties: dict[str, object]


_Side = Annotated[RowImage | None, When(lambda conflict: conflict.kind.is_about_a_row)]


@frozen(kw_only=True)
class MergeConflict(Document):
    """One conflict.

    Of a conflict about a row, the row as it was (`base`), on the target (`ours`) and on the source (`theirs`): an
    object with `properties` and for edges `endpoints`; None where there is no row.

    A conflict about the merged result may depend on how conflicts about rows are decided: `with_strategy` is the
    strategy, `ours` or `theirs`, that leads to it. It is None where both do, and where there is nothing to decide.
    """

    type_key: Annotated[str, ENTITY_TYPE]
    entity_id: Annotated[str | None, OMIT_NONE] = None
    kind: ConflictKind
    message: str
    base: _Side = None
    ours: _Side = None
    theirs: _Side = None
    with_strategy: Annotated[str | None, OMIT_NONE] = None


def usable_strategies(conflicts: Sequence[MergeConflict]) -> list[str]:
    """The strategies that leave none of some conflicts."""
    others = [conflict.with_strategy for conflict in conflicts if not conflict.kind.is_about_a_row]
    return [] if None in others else [name for name in STRATEGIES if name not in others]


class MergeConflictsError(OmniError):
    """Two branches cannot be merged as they are. Nothing happened; `conflicts` holds all of them, or the first."""

    kind = "merge_conflicts"
    code = "conflict"
    http_status = 409
    source: str
    target: str
    conflicts: Annotated[tuple[MergeConflict, ...], Key("merge_conflicts")]
    total: Annotated[int, Key("merge_conflict_total")]

    def __init__(self, source: str, target: str, conflicts: tuple[MergeConflict, ...], total: int) -> None:
        self.source = source
        self.target = target
        self.conflicts = conflicts
        self.total = total
        listing = "; ".join(conflict.message for conflict in conflicts[:_SHOWN_CONFLICTS])
        more = f"; and {total - _SHOWN_CONFLICTS:,} more" if total > _SHOWN_CONFLICTS else ""
        several = "1 conflict" if total == 1 else f"{total:,} conflicts"
        usable = " or ".join(f"`{name}`" for name in usable_strategies(conflicts))
        advice = (
            f"change one of the branches, or decide all of them with the strategy {usable}"
            if usable
            else "change one of the branches and merge again"
        )
        super().__init__(
            f"{source} cannot be merged into {target}, nothing was changed: {several}: {listing}{more}; {advice}"
        )


# ---- Errors of bulk work


#: How many records of one rule a report spells out; its totals count all of them.
MAX_EXAMPLES = 100
#: How many of them the message of an error spells out.
_SHOWN_VIOLATIONS = 10


#: What is checked between records, as a report calls it.
_RELATIONS = "relations (ends of edges, @unique, counts)"
#: What the number of a bad record counts.
LINE, RECORD, ROW = "line", "record", "row"


@frozen(kw_only=True)
class BadRecord(Document):
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


@frozen(kw_only=True)
class RuleReport(Document):
    """The number of records that violate one rule, and the first of them."""

    rule: str
    total: int
    examples: tuple[BadRecord, ...]


@frozen(kw_only=True)
class LoadReport(Document):
    """Every rule that records of a load violate: exact totals, and up to 100 examples of each."""

    computed: ClassVar = {"total": "", "rules": "total"}
    totals: Annotated[dict[str, int], HIDDEN] = field(default_factory=dict)
    examples: Annotated[tuple[BadRecord, ...], HIDDEN] = ()
    #: False when the load ended before records were compared with each other and with the graph.
    relations_checked: bool = True
    #: Records that were not compared with others, because they are wrong by themselves.
    not_compared: int = 0

    @property
    def total(self) -> int:
        """The number of violations."""
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
            lines.append(f"{_RELATIONS} were not checked yet")
        elif self.not_compared:
            several = "the record" if self.not_compared == 1 else f"the {self.not_compared:,} records"
            are_wrong = "is wrong by itself" if self.not_compared == 1 else "are wrong by themselves"
            lines.append(f"{_RELATIONS} were checked without {several} that {are_wrong}")
        return "\n".join(lines)

    def with_source_named(self, path: str, name: str) -> LoadReport:
        """The same report about a file whose path means nothing to the caller."""
        examples = (
            replace(item, source=item.source.replace(path, name), message=item.message.replace(path, name))
            for item in self.examples
        )
        return replace(self, examples=tuple(examples))

    @property
    def rules(self) -> tuple[RuleReport, ...]:
        """The report rule by rule."""
        return tuple(
            RuleReport(rule=rule, total=total, examples=tuple(item for item in self.examples if item.rule == rule))
            for rule, total in self.totals.items()
        )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        rules = [RuleReport.from_json(rule) for rule in body["rules"]]
        return cls(
            totals={rule.rule: rule.total for rule in rules},
            examples=tuple(record for rule in rules for record in rule.examples),
            # Servers of earlier releases do not say.
            relations_checked=bool(body.get("relations_checked", True)),
            not_compared=int(body.get("not_compared", 0)),
        )


class LoadRejectedError(BadRequestError):
    """Records of a load are wrong. `report` holds every rule with exact totals; nothing was written."""

    report: LoadReport

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        super().__init__(_rejection(report))


class LoadKeyConflictError(KeyConflictError):
    """An append load met ids that exist already. `report` names them; nothing was written."""

    report: LoadReport

    def __init__(self, entity_kind: str, type_name: str, entity_id: str, report: LoadReport) -> None:
        self.report = report
        super().__init__(entity_kind, type_name, entity_id)
        advice = (
            "`append` takes only new ones, `merge` replaces those that exist, `patch` changes the values that are given"
        )
        self.message = f"{self.message}: {advice}\n{_rejection(report)}"
        self.args = (self.message,)


def with_source_named(error: OmniError, path: str, name: str) -> OmniError:
    """The same failure about a file whose path means nothing to the caller; others stay as they are."""
    match error:
        case InputFileError():
            return InputFileError(name, error.reason.replace(path, name))
        case LoadRejectedError():
            return LoadRejectedError(error.report.with_source_named(path, name))
        case LoadKeyConflictError():
            report = error.report.with_source_named(path, name)
            return LoadKeyConflictError(error.entity_kind, error.type_name, error.entity_id or "", report)
        case _:
            return error


class SparkError(OmniError):
    """Spark cannot be started, or a job of it failed for a reason outside the data.

    The message says what to change, and that nothing was written where that is so.
    """

    kind = "spark"
    http_status = 500


def _rejection(report: LoadReport) -> str:
    count = f"{report.total:,} violation{'' if report.total == 1 else 's'}"
    return f"the load was refused, nothing was written: {count}\n{report.render(_SHOWN_VIOLATIONS)}"


# ---- Errors of schema changes


#: How many rows of a rule the message spells out.
_SHOWN = 10


class UnsupportedSchemaError(BadRequestError):
    """A schema change holds differences that no step can carry out. Nothing happened."""

    plan: Mapping[str, object]
    refusals: tuple[str, ...]

    def __init__(self, refusals: Sequence[str], plan: Mapping[str, object]) -> None:
        self.refusals = tuple(refusals)
        self.plan = plan
        rest = len(refusals) - 1
        more = f" (and {rest} more: `omnigraph schema plan` shows all)" if rest else ""
        super().__init__(f"{refusals[0]}{more}; the schema was not changed")


class SchemaViolationsError(BadRequestError):
    """Existing rows violate the new schema. `report` counts them and names some; nothing happened."""

    #: Tells it from a refused load.
    refused: str = "schema_change"
    report: LoadReport

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        count = f"{report.total:,} violation{'' if report.total == 1 else 's'} by existing rows"
        super().__init__(f"the schema was not changed: {count}\n{report.render(_SHOWN)}")


# ---- Errors of changes and their feed


class ChangeDiffRefusedError(OmniError):
    """The changes of a commit are not known exactly, and are not guessed."""

    code = "conflict"
    http_status = 409
    inside = "change_diff_refusal"
    reason: str = ""
    commit_id: Annotated[str, Key("graph_commit_id")]
    type_name: Annotated[str | None, OMIT_NONE]

    def __init__(self, message: str, commit_id: str, type_name: str | None = None) -> None:
        self.commit_id = commit_id
        self.type_name = type_name
        super().__init__(message)


class CommitHasNoParentError(ChangeDiffRefusedError):
    """The first commit of a graph has no changes: there is nothing before it."""

    kind = "commit_has_no_parent"
    reason = "parentless_commit"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"commit {commit_id} is the first one of the graph: it has no parent to be compared with", commit_id
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
    inside = "change_cursor_rejected"
    reason: str

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"change cursor rejected: {reason}")


class ChangeFeedGapError(OmniError):
    """History that a feed has to go through was cleaned up. Trying again cannot help: take a new baseline."""

    kind = "change_feed_gap"
    code = None
    http_status = 410
    inside = "change_feed_gap"
    commit_id: Annotated[str, Key("first_unreadable_commit_id")]
    cursor: Annotated[str | None, OMIT_NONE]

    def __init__(self, commit_id: str, cursor: str | None = None) -> None:
        self.commit_id = commit_id
        self.cursor = cursor
        super().__init__(
            f"the changes of commit {commit_id} were cleaned up: take a new baseline and go on from its cursor"
        )
