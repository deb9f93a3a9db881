"""Rows of the manifest, their Arrow form, and the stamp of the format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, TypeVar

from omnigraph.codec import COMPLETE, ENTITY_TYPE, HIDDEN, OMIT_NONE, Absent, Document, Key
from omnigraph.commit.notes import Metadata
from omnigraph.core.ids import TableKey
from omnigraph.core.values import render_datetime
from omnigraph.errors import DamageError, OutsideRootError, StorageFormatError
from omnigraph.frozen import frozen
from omnigraph.storage.location import check_dataset_path, check_fork_name

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.manifest_table import ManifestRow

# ---- Rows of the manifest
#
# Rows are only ever added; the state of the graph at any commit is a function of them. A manifest is input, too: paths
# in it are taken only in the form in which this system makes them.


_Text = TypeVar("_Text", str, str | None)
T = TypeVar("T")
MAIN = "main"

#: Marks the column for readers of the format; our own publisher does not rely on it.
_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

Row = dict[str, object]


@frozen(kw_only=True)
class TablePin(Document):
    """The version of one dataset that a snapshot reads."""

    table_key: Annotated[TableKey, ENTITY_TYPE]
    location: Annotated[str, Key("dataset_path")]
    version: Annotated[int, Key("published_dataset_version")]
    #: The Lance branch that holds the version; None is the main line.
    branch: Annotated[str | None, Key("native_dataset_branch")]
    row_count: Annotated[int, Key("entity_count")]
    incarnation: Annotated[int, COMPLETE]


#: Of a shorter document, what a server always says.
_Unsaid = Absent(lambda _: "")


@frozen(kw_only=True, repr=False)
class GraphCommit(Document):
    """One atomic publish. Times are in microseconds since the epoch.

    `created_at` is the moment of the publish, and always later than that of its parents, whatever the clocks of their
    writers say: so the state at a moment that a branch has passed never changes.
    """

    commit_id: Annotated[str, Key("graph_commit_id")]
    branch: Annotated[str, Key("graph_branch")]
    graph_version: Annotated[int, Key("graph_manifest_version")]
    parent_id: Annotated[str | None, Key("parent_commit_id")]
    merged_parent_id: Annotated[str | None, Key("merged_parent_commit_id")] = None
    actor: Annotated[str | None, Key("actor_id")] = None
    created_at: int
    #: Why it was made, in the words of its writer, and what programs want to know about it.
    message: Annotated[str | None, OMIT_NONE] = None
    metadata: Annotated[Metadata | None, OMIT_NONE] = None
    #: How a merge decided its row conflicts; None when it had to have none.
    merge_strategy: Annotated[str | None, OMIT_NONE] = None
    #: What the clock of its writer said, where `created_at` is another moment.
    written_at: Annotated[int | None, OMIT_NONE] = None
    kind: Annotated[str, COMPLETE, _Unsaid]
    operation_id: Annotated[str, COMPLETE, _Unsaid]
    schema_hash: Annotated[str, COMPLETE, _Unsaid]
    tables: Annotated[tuple[TableKey, ...], COMPLETE] = ()
    recovery_for_actor: Annotated[str | None, COMPLETE] = None
    #: Accepted source and contract, on commits that change the schema: old commits decode with their own.
    schema_source: Annotated[str | None, HIDDEN] = None
    schema_contract: Annotated[str | None, HIDDEN] = None

    def __repr__(self) -> str:
        actor = "" if self.actor is None else f" by {self.actor}"
        moment = render_datetime(self.created_at // 1000)
        place = f"{self.branch} at version {self.graph_version}"
        return f"<GraphCommit {self.commit_id}: {self.kind}{actor}, {place}, {moment}>"


@frozen(kw_only=True)
class TypeChanges(Document):
    """The row changes of a merge in one type of the target."""

    type_key: Annotated[TableKey, ENTITY_TYPE]
    inserted: int
    updated: int
    deleted: int


@frozen(kw_only=True)
class Head:
    """The position of a branch after one publish, with everything a snapshot needs.

    `incarnation` is the graph version that created the branch: a branch of the same name made later is another one.
    """

    branch: str
    incarnation: int
    graph_version: int
    commit_id: str
    schema_hash: str
    pins: Mapping[TableKey, TablePin] = field(default_factory=dict)
    fork_commit_id: str | None = None
    #: The branch that it was created from, as a branch inside object ids.
    base_key: str | None = None
    #: The Lance branch that its tables fork under at their first write; None for main, which needs none.
    fork_name: str | None = None
    #: Who created the branch, or deleted it.
    actor: str | None = None
    deleted: bool = False
    #: When its commit was created; None in rows that do not say it.
    committed_at: int | None = None

    @property
    def branch_key(self) -> str:
        """The branch inside object ids: its name, and its incarnation unless it is main."""
        return branch_key(self.branch, self.incarnation)


@frozen(kw_only=True)
class Tombstone:
    """A dropped dataset: hides its entries up to and including `version`."""

    table_key: TableKey
    incarnation: int
    version: int
    graph_version: int


@frozen(kw_only=True)
class PublishedVersion:
    """One published version of a dataset on one branch."""

    pin: TablePin
    branch_key: str
    graph_version: int


def branch_key(branch: str, incarnation: int) -> str:
    """A branch inside object ids."""
    return branch if branch == MAIN else f"{branch}~{incarnation}"


def table_row(pin: TablePin, graph_version: int) -> Row:
    """The row that introduces a dataset."""
    return manifest_row(
        object_id=f"table:{pin.table_key}#{pin.incarnation}",
        object_type="table",
        location=pin.location,
        metadata=_json({"incarnation": pin.incarnation}),
        table_key=pin.table_key,
        graph_version=graph_version,
    )


def version_row(pin: TablePin, branch_key_: str, graph_version: int) -> Row:
    """The row of one published version."""
    return manifest_row(
        object_id=f"version:{pin.table_key}#{pin.incarnation}@{branch_key_}@v={pin.version}",
        object_type="table_version",
        location=pin.location,
        metadata=_json({"incarnation": pin.incarnation, "branch_key": branch_key_}),
        table_key=pin.table_key,
        table_version=pin.version,
        table_branch=pin.branch,
        row_count=pin.row_count,
        graph_version=graph_version,
    )


def tombstone_row(tombstone: Tombstone) -> Row:
    """The row of a dropped dataset."""
    key, incarnation, version = tombstone.table_key, tombstone.incarnation, tombstone.version
    return manifest_row(
        object_id=f"tombstone:{key}#{incarnation}@v={version}",
        object_type="table_tombstone",
        metadata=_json({"incarnation": incarnation}),
        table_key=key,
        table_version=version,
        graph_version=tombstone.graph_version,
    )


#: The members of a commit by the names under which its row holds them. These never change.
_COMMIT_MEMBERS = {
    "parent_commit_id": "parent_id",
    "merged_parent_commit_id": "merged_parent_id",
    "graph_branch": "branch",
    "actor_id": "actor",
    "created_at": "created_at",
    "kind": "kind",
    "operation_id": "operation_id",
    "tables": "tables",
    "schema_hash": "schema_hash",
    "recovery_for_actor": "recovery_for_actor",
    "merge_strategy": "merge_strategy",
    "schema_source": "schema_source",
    "schema_contract": "schema_contract",
    "written_at": "written_at",
    "message": "message",
    "metadata": "metadata",
}


def commit_row(commit: GraphCommit) -> Row:
    """The row of a commit."""
    body = {stored: getattr(commit, name) for stored, name in _COMMIT_MEMBERS.items()}
    parents = [parent for parent in (commit.parent_id, commit.merged_parent_id) if parent]
    return manifest_row(
        object_id=f"commit:{commit.commit_id}",
        object_type="graph_commit",
        metadata=_json({key: value for key, value in body.items() if value is not None}),
        base_objects=[f"commit:{parent}" for parent in parents],
        graph_version=commit.graph_version,
    )


def head_row(head: Head) -> Row:
    """The row of a branch position."""
    pins = {
        key: {
            "incarnation": pin.incarnation,
            "location": pin.location,
            "table_branch": pin.branch,
            "table_version": pin.version,
            "row_count": pin.row_count,
        }
        for key, pin in head.pins.items()
    }
    body = {
        "branch": head.branch,
        "incarnation": head.incarnation,
        "commit_id": head.commit_id,
        "fork_commit_id": head.fork_commit_id,
        "base_key": head.base_key,
        "fork_name": head.fork_name,
        "actor": head.actor,
        "schema_hash": head.schema_hash,
        "pins": pins,
        "deleted": head.deleted,
        "committed_at": head.committed_at,
    }
    return manifest_row(
        object_id=f"head:{head.branch_key}@{head.graph_version}",
        object_type="graph_head",
        metadata=_json(body),
        base_objects=[f"commit:{head.commit_id}"],
        graph_version=head.graph_version,
    )


def from_manifest(read: Callable[[ManifestRow], T]) -> Callable[[ManifestRow], T]:
    """A reader of rows that are stored, and may be damaged."""

    @wraps(read)
    def checked(row: ManifestRow) -> T:
        try:
            return read(row)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            what = f"reading the row {row['object_id']!r} of the manifest"
            raise DamageError(what, f"{type(error).__name__}: {error}") from error

    return checked


@from_manifest
def read_head(row: ManifestRow) -> Head:
    """The inverse of `head_row`."""
    body = json.loads(row["metadata"])
    pins = {
        TableKey(key): TablePin(
            table_key=TableKey(key),
            incarnation=pin["incarnation"],
            location=_own(check_dataset_path, pin["location"]),
            branch=_own(check_fork_name, pin["table_branch"]),
            version=pin["table_version"],
            row_count=pin["row_count"],
        )
        for key, pin in body["pins"].items()
    }
    return Head(
        branch=body["branch"],
        incarnation=body["incarnation"],
        graph_version=row["graph_version"],
        commit_id=body["commit_id"],
        fork_commit_id=body["fork_commit_id"],
        base_key=body.get("base_key"),
        # Heads of before forks had names of their own.
        fork_name=_own(check_fork_name, body.get("fork_name", None if body["branch"] == MAIN else body["branch"])),
        schema_hash=body["schema_hash"],
        pins=pins,
        actor=body.get("actor"),
        deleted=body["deleted"],
        committed_at=body.get("committed_at"),
    )


@from_manifest
def read_commit(row: ManifestRow) -> GraphCommit:
    """The inverse of `commit_row`."""
    body = json.loads(row["metadata"])
    members = {name: body[stored] for stored, name in _COMMIT_MEMBERS.items() if stored in body}
    members |= {
        "commit_id": row["object_id"].removeprefix("commit:"),
        "graph_version": row["graph_version"],
        "parent_id": members.get("parent_id"),
        "tables": tuple(TableKey(key) for key in members["tables"]),
    }
    return GraphCommit(**members)


@from_manifest
def read_version(row: ManifestRow) -> PublishedVersion:
    """The inverse of `version_row`."""
    body = json.loads(row["metadata"])
    pin = TablePin(
        table_key=TableKey(row["table_key"]),
        incarnation=body["incarnation"],
        location=_own(check_dataset_path, row["location"]),
        branch=_own(check_fork_name, row["table_branch"]),
        version=row["table_version"],
        row_count=row["row_count"],
    )
    return PublishedVersion(pin=pin, branch_key=body["branch_key"], graph_version=row["graph_version"])


@from_manifest
def read_tombstone(row: ManifestRow) -> Tombstone:
    """The inverse of `tombstone_row`."""
    return Tombstone(
        table_key=TableKey(row["table_key"]),
        incarnation=json.loads(row["metadata"])["incarnation"],
        version=row["table_version"],
        graph_version=row["graph_version"],
    )


@cache
def manifest_schema() -> pa.Schema:
    """The columns of the manifest. A client reads commits without pyarrow."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("object_id", pa.utf8(), nullable=False, metadata=_PRIMARY_KEY),
            pa.field("object_type", pa.utf8(), nullable=False),
            pa.field("location", pa.utf8()),
            pa.field("metadata", pa.utf8()),
            pa.field("base_objects", pa.list_(pa.field("item", pa.utf8()))),
            pa.field("table_key", pa.utf8()),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.utf8()),
            pa.field("row_count", pa.uint64()),
            pa.field("graph_version", pa.uint64(), nullable=False),
        ]
    )


def to_arrow(rows: Iterable[Row]) -> pa.Table:
    """Rows as an Arrow table in the columns of the manifest."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=manifest_schema())


def _own(check: Callable[[_Text], _Text], text: _Text) -> _Text:
    """A path or name of the manifest, if it has the form of our own.

    Raises:
        OutsideRootError: it has not.
    """
    try:
        return check(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise OutsideRootError(
            str(text), "the manifest names it, and it does not have the form of a path of omnigraph"
        ) from error


def manifest_row(**values: object) -> Row:
    """A row of the manifest; what is not given is null."""
    return {name: values.get(name) for name in manifest_schema().names}


def _json(body: Mapping[str, object]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


# ---- The storage-format stamp


#: Storage format that this release reads and writes.
INTERNAL_SCHEMA_VERSION = 4
STAMP = "omnigraph:internal_schema_version"


def stamp() -> dict[str, str]:
    """The metadata that a new manifest carries."""
    return {STAMP: str(INTERNAL_SCHEMA_VERSION)}


def check_stamp(metadata: Mapping[str, str]) -> None:
    """Refuse a graph of another storage format.

    Raises:
        StorageFormatError: tells to upgrade, or to export with the old release and load with this one.
    """
    found = metadata.get(STAMP, "none")
    if found != str(INTERNAL_SCHEMA_VERSION):
        raise StorageFormatError(found, INTERNAL_SCHEMA_VERSION)
