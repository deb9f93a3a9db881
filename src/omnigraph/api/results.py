"""Receipts of writes and schema changes, results of exports, and blob cells."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self

from omnigraph.codec import COMPLETE, ENTITY_TYPE, HIDDEN, OMIT_EMPTY, OMIT_NONE, Document, Key, Text, When
from omnigraph.commit.rows import GraphCommit, TypeChanges
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.lazy_exports import LateModule, late_types
from omnigraph.display.text import counted
from omnigraph.errors import (
    BadRequestError,
    BlobRangeError,
    Diagnostic,
    LoadReport,
    MergeConflict,
    MergeConflictsError,
    ResourceLimitError,
)
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.schema.steps import SchemaSteps, step_from_json
from omnigraph.pipeline.engine_choice import ChosenEngine

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.commit.read_target import Target
    from omnigraph.lang.schema.plan import MigrationPlan
else:
    pa = LateModule("pyarrow")
    globals().update(
        late_types({"omnigraph.commit.read_target": "Target", "omnigraph.lang.schema.plan": "MigrationPlan"})
    )


# ---- Receipts of writes


Actor = Annotated[str | None, Key("actor_id")]


#: What a mutation that would change too much was refused for, as a failure names it.
AFFECTED_RESOURCE = "affected_rows"
_IsDryRun = When(lambda result: result.dry_run)


@frozen(kw_only=True)
class ExampleChange(Document):
    """A change that a mutation would make: an insert has only `after`, a delete only `before`; without blobs."""

    type_key: Annotated[TableKey, ENTITY_TYPE]
    id: str
    before: Annotated[RowImage | None, OMIT_NONE] = None
    after: Annotated[RowImage | None, OMIT_NONE] = None

    @property
    def kind(self) -> str:
        """Whether it is a node or an edge."""
        return self.type_key.kind

    @property
    def type_name(self) -> str:
        """The name of the type."""
        return self.type_key.name

    @property
    def op(self) -> str:
        """The operation on the entity."""
        return "insert" if self.before is None else "delete" if self.after is None else "update"


@frozen(kw_only=True)
class MutationResult(Document):
    """The receipt of a mutation; `commit` is None when nothing matched, and after a dry run."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor: Actor
    commit: GraphCommit | None
    #: What `return` behind the statements says, a row for each row of the match, as JSON values; None without it.
    rows: Annotated[tuple[Mapping[str, object], ...] | None, OMIT_NONE] = None
    dry_run: Annotated[bool, OMIT_EMPTY] = False
    embedded: Annotated[int, OMIT_EMPTY, Text("texts that were embedded, or would be")] = 0
    #: The rows that would change, per type.
    changes: Annotated[tuple[TypeChanges, ...], _IsDryRun] = ()
    #: A few of them, per type and operation.
    examples: Annotated[tuple[ExampleChange, ...], _IsDryRun] = ()

    def __repr__(self) -> str:
        changed = f"{counted(self.affected_nodes, 'node')}, {counted(self.affected_edges, 'edge')}"
        return f"<MutationResult of {self.query_name}: {changed} {_written(self)} on {self.branch}>"


@frozen(kw_only=True)
class BranchReceipt(Document):
    """A branch that was created or deleted, and by whom; `base` is where a new one begins, as it was asked for."""

    uri: str
    name: str
    base: Annotated[str | None, Key("from"), OMIT_NONE]
    actor: Actor


@frozen(kw_only=True)
class LoadedType(Document):
    """Records of one type."""

    name: str
    entities_loaded: Annotated[int, Text("records of the input, without those that were dropped")]
    superseded: Annotated[int, OMIT_EMPTY, Text("of these, replaced by another one of the same id")] = 0
    repeated: Annotated[
        int,
        OMIT_EMPTY,
        Text("of these, edges without an id between nodes that such an edge joined before; counted in a merge"),
    ] = 0
    patched: Annotated[int, OMIT_EMPTY, Text("of a patch, rows that existed")] = 0
    inserted: Annotated[int, OMIT_EMPTY, Text("of a patch, rows that came")] = 0
    dropped: Annotated[int, OMIT_EMPTY, Text("edges that were left out because an end does not exist")] = 0


@frozen(kw_only=True)
class LoadQuarantine(Document):
    """The bad records of a load that went to a quarantine; `folder` and `command` are None after a dry run."""

    folder: str | None
    records: int
    #: Records whose type is known, per type.
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    #: Of each rule the records that violate it; one may violate several.
    rules: Mapping[str, int]
    #: What loads the records again when they are corrected.
    command: str | None


@frozen(kw_only=True)
class LoadResult(Document):
    """The receipt of a load; `commit` is None after a dry run."""

    computed: ClassVar = {"total_entities": "edges", "superseded": "total_entities", "dropped": "superseded"}

    uri: str
    branch: str
    mode: str
    #: The branch that a missing one begins at, as the caller gave it.
    base: Annotated[str | None, Key("base_branch")]
    branch_created: bool
    #: Every type that is present, name-sorted.
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]
    nulled: Annotated[
        Mapping[str, int],
        Text(
            "values that did not fit and were stored as null, per property such as `Paper.year`; "
            "only the compatible grammar does so"
        ),
    ] = field(default_factory=dict)
    embedded: Annotated[int, OMIT_EMPTY, Text("texts that were embedded, or would be")] = 0
    quarantine: Annotated[LoadQuarantine | None, OMIT_NONE, Text("bad records, if there are any and they are kept")] = (
        None
    )
    report: Annotated[LoadReport | None, OMIT_NONE, Text("the records that were left out, if there are any")] = None
    dry_run: bool = False
    #: Where the work was done; None in receipts of earlier releases.
    engine: Annotated[ChosenEngine | None, OMIT_NONE] = None
    actor: Actor
    commit: GraphCommit | None

    def __repr__(self) -> str:
        nodes, edges = (
            sum(item.entities_loaded - item.superseded for item in types) for types in (self.nodes, self.edges)
        )
        left = {"replaced": self.superseded, "dropped": self.dropped, "in quarantine": self.quarantined}
        rest = "".join(f", {count:,} {what}" for what, count in left.items() if count)
        loaded = f"{counted(nodes, 'node')}, {counted(edges, 'edge')}"
        return f"<LoadResult: {loaded} {_written(self)} on {self.branch} ({self.mode}){rest}>"

    @property
    def total_entities(self) -> int:
        """Records of the input, those that were superseded too, without those that were dropped."""
        return sum(item.entities_loaded for item in (*self.nodes, *self.edges))

    @property
    def superseded(self) -> int:
        """Records that another one of the same id replaced: read, not written."""
        return sum(item.superseded for item in (*self.nodes, *self.edges))

    @property
    def quarantined(self) -> int:
        """Bad records that went to the quarantine."""
        return 0 if self.quarantine is None else self.quarantine.records

    @property
    def dropped(self) -> int:
        """Edges that were left out because an end does not exist."""
        return sum(item.dropped for item in self.edges)

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """Records of the input per node type, name-sorted."""
        return {item.name: item.entities_loaded for item in self.nodes}

    @property
    def edges_loaded(self) -> dict[str, int]:
        """Records of the input per edge type, name-sorted."""
        return {item.name: item.entities_loaded for item in self.edges}

    @property
    def rows(self) -> dict[TableKey, int]:
        """Records of the input per table key of every type that is present."""
        return {key: item.entities_loaded for key, item in self._types()}

    @property
    def superseded_rows(self) -> dict[TableKey, int]:
        """Superseded records per table key, of types that have any."""
        return {key: item.superseded for key, item in self._types() if item.superseded}

    def _types(self) -> Iterator[tuple[TableKey, LoadedType]]:
        yield from ((node_table_key(item.name), item) for item in self.nodes)
        yield from ((edge_table_key(item.name), item) for item in self.edges)

    @property
    def dropped_rows(self) -> dict[TableKey, int]:
        """Dropped edges per table key, of types that have any."""
        return {key: item.dropped for key, item in self._types() if item.dropped}

    @staticmethod
    def types_of(
        kind: str,
        rows: Mapping[TableKey, int],
        superseded: Mapping[TableKey, int],
        *,
        repeated: Mapping[TableKey, int],
        dropped: Mapping[TableKey, int],
    ) -> tuple[LoadedType, ...]:
        """The types of one kind, from counts per table key."""
        return tuple(
            LoadedType(
                name=key.removeprefix(f"{kind}:"),
                entities_loaded=rows[key] - dropped.get(key, 0),
                superseded=superseded.get(key, 0),
                repeated=repeated.get(key, 0),
                dropped=dropped.get(key, 0),
            )
            for key in sorted(rows)
            if key.startswith(f"{kind}:")
        )


def _written(receipt: MutationResult | LoadResult | MergeResult) -> str:
    """What became of a write, for people."""
    if receipt.commit is not None:
        return f"in commit {receipt.commit.commit_id}"
    return "(dry run)" if receipt.dry_run else "(nothing was written)"


class MergeOutcome(StrEnum):
    """The outcome of a merge, or of its dry run."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    #: Only of a dry run; otherwise conflicts are an error.
    CONFLICTS = "conflicts"


@frozen(kw_only=True)
class MergeResult(Document):
    """The receipt of a merge; `commit` is None when there was nothing to merge, and after a dry run."""

    source: str
    target: str
    outcome: MergeOutcome
    commit: GraphCommit | None = None
    changes: tuple[TypeChanges, ...] = ()
    strategy: str | None = None
    dry_run: bool = False
    actor: Actor = None
    conflicts: Annotated[tuple[MergeConflict, ...], Key("merge_conflicts"), _IsDryRun] = ()
    conflict_total: Annotated[int, Key("merge_conflict_total"), _IsDryRun] = 0
    #: Whether the source was deleted; None when that was not requested.
    branch_deleted: Annotated[bool | None, OMIT_NONE] = None
    #: Why it could not be; the merge happened all the same.
    branch_delete_error: Annotated[str | None, OMIT_NONE] = None

    def __repr__(self) -> str:
        how = f"{counted(self.conflict_total, 'conflict')}" if self.conflict_total else str(self.outcome)
        changed = "".join(f", {c.type_key} +{c.inserted:,} ~{c.updated:,} -{c.deleted:,}" for c in self.changes)
        return f"<MergeResult of {self.source} into {self.target}: {how}{changed} {_written(self)}>"

    @property
    def exit_code(self) -> int:
        """The exit code of a command that prints it: a dry run with conflicts ends as the merge would."""
        return MergeConflictsError.exit_code if self.conflict_total else 0


# ---- Receipts of schema changes


@frozen(kw_only=True)
class SchemaApplyResult(Document):
    """The receipt of a schema change; `commit` is None when the schemas meant the same already."""

    computed: ClassVar = {
        "supported": "uri",
        "applied": "supported",
        "step_count": "applied",
        "graph_commit_id": "graph_version",
        "steps": "graph_commit_id",
        "warnings": "commit",
    }

    uri: str
    plan: Annotated[SchemaSteps, HIDDEN]
    graph_version: Annotated[int, Key("graph_manifest_version")]
    commit: Annotated[GraphCommit | None, COMPLETE]

    @property
    def supported(self) -> bool:
        """Whether every difference has a step."""
        return self.plan.supported

    @property
    def applied(self) -> bool:
        """Whether anything changed."""
        return self.commit is not None

    @property
    def step_count(self) -> int:
        """The number of steps."""
        return len(self.plan.steps)

    @property
    def graph_commit_id(self) -> str | None:
        """The commit that made the schema the accepted one."""
        return None if self.commit is None else self.commit.commit_id

    @property
    def steps(self) -> list[dict[str, object]]:
        """The steps as JSON objects."""
        return [step.to_json() for step in self.plan.steps]

    @property
    def warnings(self) -> Annotated[tuple[Diagnostic, ...], COMPLETE]:
        """The findings about parts of the schema that have no effect."""
        return self.plan.warnings

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The inverse of `document`."""
        plan = SchemaSteps(
            steps=tuple(map(step_from_json, body["steps"])),
            warnings=tuple(map(Diagnostic.from_json, body.get("warnings", ()))),
        )
        commit = body.get("commit")
        return cls(
            uri=body["uri"],
            plan=plan,
            graph_version=body["graph_manifest_version"],
            commit=None if commit is None else GraphCommit.from_json(commit),
        )


@frozen(kw_only=True)
class SchemaDiff:
    """Two schema texts, and the steps between them."""

    old: str
    new: str
    plan: MigrationPlan

    def lines(self, old_name: str, new_name: str) -> list[str]:
        """A unified diff of the texts."""
        old, new = self.old.splitlines(), self.new.splitlines()
        return list(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))


# ---- Exports and baselines


#: The target that means standard output.
STDOUT = "-"


class TextSink(Protocol):
    """Something that takes text, as an open file does."""

    def write(self, text: str, /) -> object:
        """Take a piece of text."""
        ...


ExportTarget = str | os.PathLike[str] | TextSink


@frozen(kw_only=True)
class ExportResult(Document):
    """The result of an export. `files` is empty when it went to a stream."""

    computed: ClassVar = {"total_entities": "edges"}

    target: str
    format: str
    files: tuple[str, ...]
    #: Rows per type, also of types without rows.
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit_id: Annotated[str, Key("graph_commit_id")]
    #: Where the work was done; None for a stream, and where a server did it.
    engine: Annotated[ChosenEngine | None, OMIT_NONE] = None

    @property
    def total_entities(self) -> int:
        """All rows."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@frozen(kw_only=True)
class BaselineResult(Document):
    """The result of a baseline: its target, and the cursor to go on from."""

    target: str
    entities: int
    snapshot_commit_id: str
    resume_cursor: str


def line_writer(target: object) -> Callable[[pa.Buffer | bytes], object]:
    """The function that writes lines of bytes to a stream.

    Raises:
        BadRequestError: the sink is not a stream.
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


# ---- Blob cells


#: Largest range of a blob that one call reads, and what a stream of one has in memory.
BLOB_RANGE_BYTES = 4 * 1024 * 1024
#: Positions are unsigned numbers of 64 bits.
_LAST_POSITION = 2**64 - 1


class BlobKind(StrEnum):
    """The place of the bytes of a blob: in the graph, or behind an address that the graph only remembers."""

    MANAGED = "managed"
    EXTERNAL = "external"


@frozen(kw_only=True)
class BlobCell:
    """The address of a blob cell: a property of one entity."""

    type_key: str
    entity_id: str
    property: str

    def __str__(self) -> str:
        return f"{self.property} of {self.type_key} {self.entity_id!r}"

    def to_json(self) -> dict[str, object]:
        """The cell as a selector names it."""
        kind, _, name = self.type_key.partition(":")
        return {"entity": kind, "type": name, "id": self.entity_id, "property": self.property}


@frozen(kw_only=True)
class BlobInfo:
    """The facts about a cell without its bytes."""

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
    return BadRequestError(f"{cell} is only a reference, which is never followed; its bytes are at {uri}")


class BlobStream:
    """One cell of one snapshot. Nothing that is written later changes what it reads."""

    @property
    def info(self) -> BlobInfo:
        """Describe the cell."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The size of a managed value in bytes.

        Raises:
            BadRequestError: the value is external.
        """
        if self.info.size is None:
            raise external_blob(self.info.cell, self.info.uri)
        return self.info.size

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from an offset on, to the end or so many; an end behind the value is moved to it.

        Raises:
            BlobRangeError: the range begins behind the value.
            BadRequestError: the range is malformed, or the value is external.
            ResourceLimitError: the range is larger than `BLOB_RANGE_BYTES`.
        """
        check_range(offset, length, limit=BLOB_RANGE_BYTES)
        return b"".join(self.chunks(offset, length))

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The same bytes of any length as pieces of at most `BLOB_RANGE_BYTES`; one is in memory at a time.

        Raises:
            BlobRangeError: the range begins behind the value; before the first piece.
            BadRequestError: the range is malformed, or the value is external.
        """
        check_range(offset, length)
        return self._pieces(*clamped(offset, length, self.size))

    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        raise NotImplementedError


# ---- ranges


def check_range(offset: int, length: int | None, *, limit: int | None = None) -> None:
    """Refuse what no value could satisfy, before anything is opened.

    Raises:
        BlobRangeError: the offset is negative.
        BadRequestError: the length is not positive, or the end is not a valid position.
        ResourceLimitError: the length is above the limit.
    """
    if offset < 0:
        raise BlobRangeError(offset, offset + (length or 0), 0)
    if length is not None and length <= 0:
        raise BadRequestError(f"a blob range has at least 1 byte, not {length}")
    if offset + (length or 0) > _LAST_POSITION:
        raise BadRequestError(f"{offset} + {length or 0} is not a position in a blob")
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
