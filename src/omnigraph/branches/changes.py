"""Changes of one commit in pages, with cursors and page tokens."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Annotated

from omnigraph.branches.deltas import (
    ChangeFilter,
    DeltaReader,
    KnownType,
    Operation,
    State,
    TypeDelta,
    matched_tables,
    operation,
)
from omnigraph.codec import OMIT_NONE, Document
from omnigraph.commit.notes import Metadata
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.snapshot import History, snapshot_at
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    ChangeCursorRejectedError,
    ChangeSchemaBoundaryError,
    CommitHasNoParentError,
    HistoryReclaimedError,
    ResourceLimitError,
)
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.pipeline.compare import operation_codes
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.writes.columns import blob_columns

# ---- The changes of one commit
#
# Order: nodes before edges, then by type, then by id. A page ends after so many changes or bytes; one change that is
# larger than a page travels alone.


DEFAULT_PAGE_CHANGES = 1_000
MAX_PAGE_CHANGES = 8_192
DEFAULT_PAGE_BYTES = 4 * 1024 * 1024
MAX_PAGE_BYTES = 32 * 1024 * 1024
#: Rows whose images are read at once; few where an image may hold a blob.
_IMAGE_ROWS = 512
_BLOB_IMAGE_ROWS = 8


@frozen(kw_only=True)
class Cause(Document):
    """The commit that made some changes. `authored_at` is in microseconds since the epoch."""

    graph_commit_id: str
    parent_commit_id: str
    merged_parent_commit_id: Annotated[str | None, OMIT_NONE]
    authored_branch: str
    actor_id: Annotated[str | None, OMIT_NONE]
    authored_at: int
    message: Annotated[str | None, OMIT_NONE] = None
    metadata: Annotated[Metadata | None, OMIT_NONE] = None


@frozen(kw_only=True)
class ChangedType(Document):
    """The type of an entity that changed; its id stays when it gets another name."""

    id: str
    name: str


@frozen(kw_only=True)
class Change(Document):
    """The change of one entity: an insert has only `after`, a delete only `before`, an update both."""

    kind: str
    type: ChangedType
    id: str
    op: Operation
    before: Annotated[RowImage | None, OMIT_NONE] = None
    after: Annotated[RowImage | None, OMIT_NONE] = None

    @property
    def type_id(self) -> str:
        """The id of the type."""
        return self.type.id

    @property
    def type_name(self) -> str:
        """The name of the type."""
        return self.type.name


@frozen(kw_only=True)
class ChangesPage(Document):
    """Some changes of a commit; `next_page_token` is None on the last page."""

    cause: Cause
    changes: tuple[Change, ...]
    next_page_token: Annotated[str | None, OMIT_NONE] = None


@dataclass(slots=True)
class PageBudget:
    """The remaining budget of a page."""

    changes: int
    bytes: int

    @staticmethod
    def of(limit: int, max_bytes: int) -> PageBudget:
        """The budget of a page with at most so many changes and bytes.

        Raises:
            BadRequestError: a limit is not positive.
            ResourceLimitError: a limit is above its maximum.
        """
        if limit < 1 or max_bytes < 1:
            raise BadRequestError("a page holds at least one change")
        if max_bytes > MAX_PAGE_BYTES:
            raise ResourceLimitError("commit_changes_page_bytes", MAX_PAGE_BYTES, max_bytes, "ask for smaller pages")
        if limit > MAX_PAGE_CHANGES:
            raise ResourceLimitError("commit_changes_page_changes", MAX_PAGE_CHANGES, limit, "ask for smaller pages")
        return PageBudget(changes=limit, bytes=max_bytes)

    def takes(self, change: Change, *, is_first: bool) -> bool:
        """Whether a change still fits; it counts if it does. The first change of a page always fits."""
        size = len(json.dumps(change.to_json(), ensure_ascii=False).encode())
        if not is_first and (self.changes < 1 or size > self.bytes):
            return False
        self.changes -= 1
        self.bytes -= size
        return True


def cause_of(commit: GraphCommit) -> Cause:
    """The cause that changes of a commit have.

    Raises:
        CommitHasNoParentError: it is the first commit of the graph.
    """
    if commit.parent_id is None:
        raise CommitHasNoParentError(commit.commit_id)
    return Cause(
        graph_commit_id=commit.commit_id,
        parent_commit_id=commit.parent_id,
        merged_parent_commit_id=commit.merged_parent_id,
        authored_branch=commit.branch,
        actor_id=commit.actor,
        authored_at=commit.created_at,
        message=commit.message,
        metadata=commit.metadata,
    )


@frozen(kw_only=True)
class CommitChanges:
    """The changes of one commit."""

    commit: GraphCommit
    deltas: tuple[TypeDelta, ...]
    reader: DeltaReader

    def after(self, position: Position | None) -> Iterator[Change]:
        """The changes behind a position, in their order; images are read as they are asked for.

        Raises:
            ChangeCursorRejectedError: the position is not one of this commit.
        """
        begin = 0
        deltas = self.deltas
        if position is not None:
            number = next((n for n, delta in enumerate(deltas) if delta.type_id == position.type_id), None)
            if number is None:
                raise ChangeCursorRejectedError("its position is not in this commit")
            begin = _place_behind(deltas[number], position)
            deltas = deltas[number:]
        for delta in deltas:
            yield from self._changes(delta, begin)
            begin = 0

    def _changes(self, delta: TypeDelta, begin: int) -> Iterator[Change]:
        kind = delta.table_key.kind
        type_ = ChangedType(id=delta.type_id, name=delta.table_key.name)
        step = _BLOB_IMAGE_ROWS if blob_columns(delta.definition) else _IMAGE_ROWS
        pieces = (
            batch.slice(first, step) for batch in delta.rows.batches(begin) for first in range(0, batch.num_rows, step)
        )
        for rows in pieces:
            before = self.reader.images(delta.definition, delta.old, rows["old_row"])
            after = self.reader.images(delta.definition, delta.new, rows["new_row"])
            columns = (rows[column].to_pylist() for column in ("id", "old_row", "new_row"))
            codes = operation_codes(rows).tolist()
            for code, entity_id, old_row, new_row in zip(codes, *columns, strict=True):
                yield Change(
                    kind=kind,
                    type=type_,
                    id=entity_id,
                    op=operation(code),
                    before=before.get(old_row),
                    after=after.get(new_row),
                )


def commit_changes(
    history: History,
    commit: GraphCommit,
    filter_: ChangeFilter,
    *,
    types_of: Callable[[str], Mapping[TableKey, KnownType]],
    reader: DeltaReader,
    engine: WorkerChoice,
) -> CommitChanges:
    """The changes of a commit against its first parent; `types_of` gives the types of a schema by its hash.

    Raises:
        CommitHasNoParentError: it has none.
        ChangeSchemaBoundaryError: it changed the schema of a type with data.
        HistoricalVersionReclaimedError: a version that it needs was cleaned up.
        HistoryReclaimedError: its parent was.
    """
    if commit.parent_id is None:
        raise CommitHasNoParentError(commit.commit_id)
    if commit.parent_id not in history.commits:
        raise HistoryReclaimedError(commit.commit_id)
    old, new = snapshot_at(history, commit.parent_id), snapshot_at(history, commit.commit_id)
    if old.schema_hash != new.schema_hash:
        for before, after in matched_tables(old, new):
            # What only got another name is the same data.
            if before and before.row_count and (after is None or before.version != after.version):
                raise ChangeSchemaBoundaryError(commit.commit_id, before.table_key.name)
    deltas = reader.between(
        State(snapshot=old, types=types_of(old.schema_hash)),
        State(snapshot=new, types=types_of(new.schema_hash)),
        filter_,
        engine,
        keeps_files=True,
    )
    ordered = sorted(deltas, key=lambda delta: (delta.is_edge, int(delta.type_id)))
    return CommitChanges(commit=commit, deltas=tuple(ordered), reader=reader)


def _place_behind(delta: TypeDelta, position: Position) -> int:
    """The first row of a delta behind a position."""
    if position.is_exact:
        return delta.rows.place_behind(position.entity)
    place = 0
    for rows in delta.rows.batches():
        for entity_id in rows["id"].to_pylist():
            place += 1
            if position.is_behind(str(entity_id)):
                return place
    raise ChangeCursorRejectedError("its position is not in this commit")


# ---- Cursors and page tokens
#
# Versioned, with a checksum, and bound to what they were made for. Long ids are represented by their beginning and a
# hash, so that a token stays small.


TOKEN_VERSION = 1
MAX_TOKEN_BYTES = 4_096
_EXACT_ID_BYTES = 256
_PREFIX_BYTES = 64
_CHECKSUM_BYTES = 8


def encode_token(body: Mapping[str, object]) -> str:
    """A token that holds some values.

    Raises:
        ResourceLimitError: it would be too large.
    """
    text = json.dumps({"v": TOKEN_VERSION, **body}, separators=(",", ":"), sort_keys=True).encode()
    token = _spelled(_checksum(text) + text)
    if len(token) > MAX_TOKEN_BYTES:
        raise ResourceLimitError(
            "change_continuation_token_encoded_bytes",
            MAX_TOKEN_BYTES,
            len(token),
            "the names of the branch and of types are too long for a cursor",
        )
    return token


def decode_token(token: str) -> dict[str, object]:
    """The values of a token.

    Raises:
        ChangeCursorRejectedError: it is damaged, or of another release.
    """
    try:
        if len(token) > MAX_TOKEN_BYTES:
            raise ValueError("too long")
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        check, text = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        # The decoder is lenient about characters that carry nothing.
        if check != _checksum(text) or _spelled(raw) != token:
            raise ValueError("wrong checksum")
        body = json.loads(text)
        # Halves of characters can be written in JSON, and compared with nothing.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ChangeCursorRejectedError("it is damaged") from error
    if not isinstance(body, dict) or body.get("v") != TOKEN_VERSION:
        raise ChangeCursorRejectedError("another release made it")
    return body


def check_binding(body: Mapping[str, object], expected: Mapping[str, tuple[object, str]]) -> None:
    """Make sure that a token was made for this call; `expected` maps members to their value and a sentence.

    Raises:
        ChangeCursorRejectedError: it was made for something else.
    """
    for name, (value, sentence) in expected.items():
        if body.get(name) != value:
            raise ChangeCursorRejectedError(sentence)


@frozen
class Position:
    """The last entity of a commit that was returned: its type and its id, which may be represented by a hash."""

    type_id: str
    entity: str
    is_exact: bool

    @staticmethod
    def of(type_id: str, entity_id: str) -> Position:
        """The position behind an entity."""
        raw = entity_id.encode()
        if len(raw) <= _EXACT_ID_BYTES:
            return Position(type_id, entity_id, True)
        prefix = raw[:_PREFIX_BYTES].hex()
        return Position(type_id, f"{prefix}:{sha256(raw).hexdigest()}", False)

    def is_behind(self, entity_id: str) -> bool:
        """Whether this is the position of an entity whose id is represented by a hash."""
        return Position.of(self.type_id, entity_id) == self

    def to_json(self) -> list[object]:
        """The position inside a token."""
        return [self.type_id, self.entity, self.is_exact]

    @staticmethod
    def from_json(body: object) -> Position:
        """The inverse of `to_json`.

        Raises:
            ChangeCursorRejectedError: the value is not a position.
        """
        match body:
            case [str(type_id), str(entity), bool(is_exact)]:
                return Position(type_id, entity, is_exact)
            case _:
                raise ChangeCursorRejectedError("it is damaged")


def _spelled(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _checksum(text: bytes) -> bytes:
    return blake2b(text, digest_size=_CHECKSUM_BYTES, person=b"omni-changes").digest()
