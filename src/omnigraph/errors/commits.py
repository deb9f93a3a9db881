"""Failures around a commit: lost races, unmet preconditions, unsettled writes."""

from __future__ import annotations

from omnigraph.errors.base import OmniError


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
