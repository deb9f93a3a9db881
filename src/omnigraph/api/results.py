"""Receipts of writes and schema changes, results of exports, and blob cells."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph.commit.documents import commit_document, commit_json, optional_commit
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    BlobRangeError,
    Diagnostic,
    MergeConflict,
    ResourceLimitError,
)
from omnigraph.lang.schema.steps import Step, UnsupportedChange, step_from_json

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.branches.merge import TypeChanges
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.targets import Target


# ---- Receipts of writes: what an embedded graph and a server both answer


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """The receipt of a mutation; `commit` is None when nothing matched."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor: str | None
    commit: GraphCommit | None

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MutationResult:
        """The inverse of `to_json`, of a body of any server."""
        return MutationResult(
            branch=body["branch"],
            query_name=body["query_name"],
            affected_nodes=body["affected_nodes"],
            affected_edges=body["affected_edges"],
            actor=body.get("actor_id"),
            commit=optional_commit(body.get("commit")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchReceipt:
    """A branch that was created or deleted, and by whom; `base` is where a new one begins, as it was asked for."""

    name: str
    base: str | None
    actor: str | None

    def to_json(self) -> dict[str, object]:
        """The receipt, without the address of the graph."""
        base = {} if self.base is None else {"from": self.base}
        return {"name": self.name, **base, "actor_id": self.actor}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> BranchReceipt:
        """The inverse of `to_json`, of a body of any server."""
        return BranchReceipt(name=body["name"], base=body.get("from"), actor=body.get("actor_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The receipt of a load; `commit` is None after a dry run."""

    uri: str
    branch: str
    #: The branch that a missing one begins at, as the caller gave it.
    base: str | None
    branch_created: bool
    mode: str
    #: Records of the input per table key of every type that is present, those that were superseded too.
    rows: Mapping[TableKey, int]
    #: Records that a merge replaced by a later one of the same id: read, not written.
    superseded: int
    actor: str | None
    commit: GraphCommit | None
    dry_run: bool = False
    #: The same per table key, of types that have any.
    superseded_rows: Mapping[TableKey, int] = field(default_factory=dict)

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """Records of the input per node type, name-sorted."""
        return self._of_kind("node")

    @property
    def edges_loaded(self) -> dict[str, int]:
        """Records of the input per edge type, name-sorted."""
        return self._of_kind("edge")

    def _of_kind(self, kind: str) -> dict[str, int]:
        found = (key.partition(":") for key in sorted(self.rows))
        return {name: self.rows[TableKey(f"{k}:{name}")] for k, _, name in found if k == kind}

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "uri": self.uri,
            "branch": self.branch,
            "mode": self.mode,
            "base_branch": self.base,
            "branch_created": self.branch_created,
            "nodes": self._types_json("node", self.nodes_loaded),
            "edges": self._types_json("edge", self.edges_loaded),
            "total_entities": sum(self.rows.values()),
            "superseded": self.superseded,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }

    def _types_json(self, kind: str, counts: Mapping[str, int]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for name, count in counts.items():
            gone = self.superseded_rows.get(TableKey(f"{kind}:{name}"))
            found.append(
                {"name": name, "entities_loaded": count} | ({"superseded": gone} if gone else {})
            )
        return found

    @staticmethod
    def from_json(body: Mapping[str, Any], *, uri: str) -> LoadResult:
        """The inverse of `to_json`; the address is the one that the caller used."""
        types = {
            TableKey(f"{kind}:{item['name']}"): item
            for kind in ("node", "edge")
            for item in body[f"{kind}s"]
        }
        gone = {key: item["superseded"] for key, item in types.items() if item.get("superseded")}
        return LoadResult(
            uri=uri,
            branch=body["branch"],
            base=body.get("base_branch"),
            branch_created=body["branch_created"],
            mode=body["mode"],
            rows={key: item["entities_loaded"] for key, item in types.items()},
            superseded=body.get("superseded", 0),
            superseded_rows=gone,
            actor=body.get("actor_id"),
            commit=optional_commit(body.get("commit")),
            dry_run=body.get("dry_run", False),
        )


class MergeOutcome(StrEnum):
    """How a merge ended, or in a dry run how it would end."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    #: Only of a dry run; otherwise conflicts are an error.
    CONFLICTS = "conflicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The receipt of a merge; `commit` is None when there was nothing to merge, and after a dry run."""

    source: str
    target: str
    outcome: MergeOutcome
    commit: GraphCommit | None = None
    conflicts: tuple[MergeConflict, ...] = ()
    conflict_total: int = 0
    changes: tuple[TypeChanges, ...] = ()
    strategy: str | None = None
    #: Whether the source was deleted; None when that was not requested.
    branch_deleted: bool | None = None
    #: Why it could not be; the merge happened all the same.
    branch_delete_error: str | None = None
    actor: str | None = None
    dry_run: bool = False

    def to_json(self) -> dict[str, object]:
        """The merge envelope."""
        body: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "outcome": str(self.outcome),
            "commit": None if self.commit is None else commit_json(self.commit),
            "changes": [change.to_json() for change in self.changes],
            "strategy": self.strategy,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
        }
        if self.dry_run:
            body["merge_conflicts"] = [conflict.to_json() for conflict in self.conflicts]
            body["merge_conflict_total"] = self.conflict_total
        if self.branch_deleted is not None:
            body["branch_deleted"] = self.branch_deleted
        if self.branch_delete_error is not None:
            body["branch_delete_error"] = self.branch_delete_error
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MergeResult:
        """The inverse of `to_json`."""
        # Late: only results of merges need the room of branches.
        from omnigraph.branches.merge import TypeChanges

        return MergeResult(
            source=body["source"],
            target=body["target"],
            outcome=MergeOutcome(body["outcome"]),
            commit=optional_commit(body.get("commit")),
            conflicts=tuple(map(MergeConflict.from_json, body.get("merge_conflicts", ()))),
            conflict_total=body.get("merge_conflict_total", 0),
            changes=tuple(map(TypeChanges.from_json, body.get("changes", ()))),
            strategy=body.get("strategy"),
            branch_deleted=body.get("branch_deleted"),
            branch_delete_error=body.get("branch_delete_error"),
            actor=body.get("actor_id"),
            dry_run=body.get("dry_run", False),
        )


class Receipt(Protocol):
    """What a write returns."""

    @property
    def commit(self) -> GraphCommit | None:
        """What it published; None when nothing changed."""
        ...

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        ...


def receipt_document(receipt: Receipt) -> dict[str, object]:
    """A receipt as a server sends it: its commit is complete, so that a client has the same one."""
    commit = receipt.commit
    return receipt.to_json() | {"commit": None if commit is None else commit_document(commit)}


# ---- The receipt of a schema change, and its steps when they come from a server


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


# ---- Exports and baselines: where lines go, and what is known about them afterwards


#: The target that means standard output.
STDOUT = "-"


class TextSink(Protocol):
    """Something that takes text, as an open file does."""

    def write(self, text: str, /) -> object:
        """Take a piece of text."""
        ...


ExportTarget = str | os.PathLike[str] | TextSink


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote. `files` is empty when it went to a stream."""

    target: str
    format: str
    files: tuple[str, ...]
    #: Rows per type, also of types without rows.
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit_id: str

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "target": self.target,
            "format": self.format,
            "files": list(self.files),
            "nodes": dict(self.nodes),
            "edges": dict(self.edges),
            "total_entities": sum(self.nodes.values()) + sum(self.edges.values()),
            "graph_commit_id": self.commit_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineResult:
    """Where a baseline went, and how to go on from it."""

    target: str
    entities: int
    snapshot_commit_id: str
    resume_cursor: str

    def to_json(self) -> dict[str, object]:
        """The handshake as a JSON object."""
        return {
            "target": self.target,
            "entities": self.entities,
            "snapshot_commit_id": self.snapshot_commit_id,
            "resume_cursor": self.resume_cursor,
        }


def line_writer(target: object) -> Callable[[pa.Buffer | bytes], object]:
    """How a stream takes the bytes of lines.

    Raises:
        BadRequestError: it is no stream.
    """
    if target in (STDOUT, sys.stdout) and hasattr(sys.stdout, "buffer"):
        # JSON lines are UTF-8 with bare line feeds, whatever the terminal is set to.
        sys.stdout.flush()
        binary = sys.stdout.buffer
        return lambda text: binary.write(memoryview(text))
    write = getattr(sys.stdout if target == STDOUT else target, "write", None)
    if write is None:
        raise BadRequestError(f"{target!r} is neither a path nor a stream of text")
    return lambda text: write(bytes(text).decode())


# ---- One blob cell as both kinds of graphs describe it: what it is, and which ranges of it can be read


#: Largest range of a blob that one call reads, and what a stream of one has in memory.
BLOB_RANGE_BYTES = 4 * 1024 * 1024
#: Positions are unsigned numbers of 64 bits.
_LAST_POSITION = 2**64 - 1


class BlobKind(StrEnum):
    """Where the bytes of a blob are: in the graph, or behind an address that the graph only remembers."""

    MANAGED = "managed"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCell:
    """Which cell: a property of one entity."""

    type_key: str
    entity_id: str
    property: str

    def __str__(self) -> str:
        return f"{self.property} of {self.type_key} {self.entity_id!r}"

    def to_json(self) -> dict[str, object]:
        """The cell as a selector names it."""
        kind, _, name = self.type_key.partition(":")
        return {"entity": kind, "type": name, "id": self.entity_id, "property": self.property}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlace:
    """A cell, the target that was asked for, and the commit that it meant."""

    cell: BlobCell
    target: Target
    snapshot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """What is known about a cell without its bytes."""

    cell: BlobCell
    kind: BlobKind
    #: How many bytes a managed value has; None for an external one.
    size: int | None
    #: Strong tag of a managed value: never equal for different bytes. None for an external one.
    etag: str | None
    #: The address of an external value in its normal spelling; None for a managed one.
    uri: str | None
    #: What was asked for, and the commit that it meant.
    target: Target
    snapshot_id: str

    def to_json(self) -> dict[str, object]:
        """The document of `blob stat --json`."""
        body: dict[str, object] = {"selector": self.cell.to_json(), "kind": str(self.kind)}
        if self.kind is BlobKind.MANAGED:
            body |= {"size": self.size, "etag": self.etag}
        else:
            body["uri"] = self.uri
        target = self.target.to_json() | {"resolved_snapshot": self.snapshot_id}
        return body | {"target": target}


def external_blob(cell: BlobCell, uri: str | None) -> BadRequestError:
    """The refusal to read what the graph only refers to."""
    return BadRequestError(
        f"{cell} is only a reference, which is never followed; its bytes are at {uri}"
    )


# ---- ranges


def check_range(offset: int, length: int | None, *, limit: int | None = None) -> None:
    """Refuse what no value could satisfy, before anything is opened.

    Raises:
        BlobRangeError: the offset is negative.
        BadRequestError: the length is not positive, or the end is no position.
        ResourceLimitError: the length is above the limit.
    """
    if offset < 0:
        raise BlobRangeError(offset, offset + (length or 0), 0)
    if length is not None and length <= 0:
        raise BadRequestError(f"a blob range has at least 1 byte, not {length}")
    if offset + (length or 0) > _LAST_POSITION:
        raise BadRequestError(f"{offset} + {length or 0} is no position in a blob")
    if limit is not None and length is not None and length > limit:
        advice = "read several ranges, or stream the value with `open_blob`"
        raise ResourceLimitError("Blob read range bytes", limit, length, advice)


def clamped(offset: int, length: int | None, size: int) -> tuple[int, int]:
    """Begin and end of a range inside a value of some size.

    >>> clamped(2, 10, 5)
    (2, 5)

    Raises:
        BlobRangeError: the range begins behind a value that is not empty.
    """
    if size == 0:
        return 0, 0
    if offset >= size:
        raise BlobRangeError(offset, offset + (length or 0), size)
    return offset, size if length is None else min(size, offset + length)
