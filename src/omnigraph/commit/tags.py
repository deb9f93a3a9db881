"""Tags: names of commits that never move, and stay readable through every cleanup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from omnigraph.codec import OMIT_NONE, Document, Key
from omnigraph.commit.notes import Metadata, Note
from omnigraph.commit.rows import Row, from_manifest, manifest_row
from omnigraph.core.ids import check_branch_name, is_ulid
from omnigraph.core.source import did_you_mean
from omnigraph.core.values import render_datetime
from omnigraph.errors import BadRequestError, TagExistsError, TagNotFoundError
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.storage.manifest_table import ManifestRow

#: The type of their rows in the manifest.
TAG_ROWS = "graph_tag"
#: Longest name.
MAX_TAG_NAME = 100


@frozen(kw_only=True, repr=False)
class Tag(Document):
    """A name of one commit. Times are in microseconds since the epoch."""

    name: str
    commit_id: Annotated[str, Key("graph_commit_id")]
    actor: Annotated[str | None, Key("actor_id")] = None
    created_at: int
    message: Annotated[str | None, OMIT_NONE] = None
    metadata: Annotated[Metadata | None, OMIT_NONE] = None

    def __repr__(self) -> str:
        actor = "" if self.actor is None else f" by {self.actor}"
        return f"<Tag {self.name}: commit {self.commit_id}{actor}, {render_datetime(self.created_at // 1000)}>"

    @classmethod
    def of(cls, name: str, commit_id: str, actor: str | None, created_at: int, note: Note) -> Tag:
        """A new tag."""
        return cls(
            name=name,
            commit_id=commit_id,
            actor=actor,
            created_at=created_at,
            message=note.message,
            metadata=note.metadata,
        )


def tag_name(name: object) -> str:
    """The name of a tag, without surrounding blanks.

    Raises:
        BadRequestError: no tag can have it.
    """
    text = check_branch_name(name) if isinstance(name, str) else ""
    if not text or len(text) > MAX_TAG_NAME:
        raise BadRequestError(f"the name of a tag is a text of at most {MAX_TAG_NAME} characters, such as v1.2")
    if is_ulid(text):
        raise BadRequestError(f"tag {text!r} would be mistaken for the commit of that id")
    return text


def check_new_tag(name: str, tags: Mapping[str, Tag], branches: Iterable[str]) -> None:
    """Make sure that a name is free: a tag never moves, and no branch hides it.

    Raises:
        TagExistsError: there is such a tag.
        BadRequestError: there is such a branch.
    """
    if name in tags:
        raise TagExistsError(name)
    if name in branches:
        raise BadRequestError(f"there is a branch {name!r}: a tag needs a name of its own")


def refuse_tag_name(branch: str, tags: Iterable[str]) -> None:
    """Make sure that a new branch does not hide a tag.

    Raises:
        BadRequestError: it would.
    """
    if branch in tags:
        raise BadRequestError(f"there is a tag {branch!r}: a branch needs a name of its own")


def find_tag(name: str, tags: Mapping[str, Tag]) -> Tag:
    """The tag of a name.

    Raises:
        TagNotFoundError: there is none.
    """
    try:
        return tags[name]
    except KeyError:
        raise TagNotFoundError(name, did_you_mean(name, tags)) from None


# ---- Rows of the manifest: one when a tag is created, another one when it is deleted


@frozen(kw_only=True)
class TagEvent:
    """A tag was created, or deleted; they follow each other by number, whatever the clocks of their writers say."""

    tag: Tag
    number: int
    deleted_by: str | None = None
    deleted_at: int | None = None


def tag_row(event: TagEvent, graph_version: int) -> Row:
    """The row of an event, written while the graph is at a version."""
    tag = event.tag
    body = {
        "name": tag.name,
        "commit_id": tag.commit_id,
        "actor_id": tag.actor,
        "created_at": tag.created_at,
        "message": tag.message,
        "metadata": tag.metadata,
        "number": event.number,
        "deleted_by": event.deleted_by,
        "deleted_at": event.deleted_at,
    }
    return manifest_row(
        object_id=f"tag:{tag.name}#{event.number}",
        object_type=TAG_ROWS,
        metadata=json.dumps({key: value for key, value in body.items() if value is not None}, ensure_ascii=False),
        base_objects=[f"commit:{tag.commit_id}"],
        graph_version=graph_version,
    )


@from_manifest
def read_tag(row: ManifestRow) -> TagEvent:
    """The inverse of `tag_row`."""
    body = json.loads(row["metadata"])
    tag = Tag(
        name=body["name"],
        commit_id=body["commit_id"],
        actor=body.get("actor_id"),
        created_at=body["created_at"],
        message=body.get("message"),
        metadata=body.get("metadata"),
    )
    return TagEvent(
        tag=tag, number=body["number"], deleted_by=body.get("deleted_by"), deleted_at=body.get("deleted_at")
    )


def tags_after(events: Iterable[TagEvent]) -> dict[str, Tag]:
    """The tags that there are after some events, by name."""
    found: dict[str, Tag] = {}
    for event in sorted(events, key=lambda event: event.number):
        if event.deleted_at is None:
            found[event.tag.name] = event.tag
        else:
            found.pop(event.tag.name, None)
    return dict(sorted(found.items()))
