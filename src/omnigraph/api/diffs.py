"""Net differences on the wire: pages of a diff, and the diff that a client puts together from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

from omnigraph.branches.changes import (
    DEFAULT_PAGE_BYTES,
    PageBudget,
    check_binding,
    decode_token,
    encode_token,
)
from omnigraph.branches.diffs import NET_CHANGES, Diff, DiffStats, NetChange, diff_header
from omnigraph.core.arrow import pa
from omnigraph.errors import ChangeCursorRejectedError

#: The published stubs of pyarrow describe arrays of one type only.

_DIFF_PAGE = "diff-page"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDiff:
    """The differences of two snapshots as a server told them; reads like a `Diff`."""

    from_commit_id: str
    to_commit_id: str
    from_graph_manifest_version: int
    to_graph_manifest_version: int
    #: The branch of both states; None when they are on different ones.
    graph_branch: str | None
    stats: DiffStats
    changes: list[NetChange]

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[NetChange]:
        return iter(self.changes)

    def to_arrow(self) -> Any:
        """All changes as one Arrow table."""
        rows = [
            change.to_json() | {"from": None, "to": None} | (change.endpoints or {})
            for change in self.changes
        ]
        return pa.Table.from_pylist(rows, schema=NET_CHANGES)

    def close(self) -> None:
        """Nothing to do: a diff that was told has no files. As `Diff.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def to_json(self) -> dict[str, object]:
        """The diff as a JSON object."""
        changes = [change.to_json() for change in self.changes]
        return self.header() | {"changes": changes, "stats": self.stats.to_json()}

    def header(self) -> dict[str, object]:
        """What the JSON object says about the two states."""
        return diff_header(self)

    @staticmethod
    def from_pages(pages: Sequence[Mapping[str, Any]]) -> ReportedDiff:
        """The diff that consecutive pages make up."""
        first = pages[0]
        return ReportedDiff(
            from_commit_id=first["from_graph_commit_id"],
            to_commit_id=first["to_graph_commit_id"],
            from_graph_manifest_version=first["from_graph_manifest_version"],
            to_graph_manifest_version=first["to_graph_manifest_version"],
            graph_branch=first.get("graph_branch"),
            stats=DiffStats.from_json(first["stats"]),
            changes=[NetChange.from_json(item) for page in pages for item in page["changes"]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFilter:
    """Kinds, types and operations as a caller gave them; a page token belongs to one filter."""

    kinds: Sequence[str] | None = None
    types: Sequence[str] | None = None
    ops: Sequence[str] | None = None

    @property
    def digest(self) -> str:
        """A short text that is different for other filters."""
        parts = [sorted(part or ()) for part in (self.kinds, self.types, self.ops)]
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]


def diff_page(
    diff: Diff, filter_: DiffFilter, *, limit: int, page_token: str | None = None
) -> dict[str, object]:
    """One page of a diff, with what differs in all and the token of the next page.

    A token belongs to the two commits: whoever asks for the next page by names of branches that moved is refused, and
    whoever asks by the commits of the first page gets it.

    Raises:
        ChangeCursorRejectedError: the token belongs to something else.
        BadRequestError: the limit is not positive.
        ResourceLimitError: the limit is too large.
    """
    PageBudget.of(limit, DEFAULT_PAGE_BYTES)
    binding = {
        "t": _DIFF_PAGE,
        "a": diff.from_commit_id,
        "b": diff.to_commit_id,
        "f": filter_.digest,
    }
    begin = 0 if page_token is None else _begin(page_token, binding, len(diff))
    end = min(begin + limit, len(diff))
    changes = [change.to_json() for change in diff.between(begin, end)]
    body = diff.header() | {"changes": changes, "stats": diff.stats.to_json()}
    if end < len(diff):
        body["next_page_token"] = encode_token({**binding, "n": end})
    return body


def _begin(page_token: str, binding: Mapping[str, str], length: int) -> int:
    body = decode_token(page_token)
    moved = "the commits that are compared are others: ask with those of the first page"
    sentences = {
        "t": "it is not a page token of a diff",
        "a": moved,
        "b": moved,
        "f": "it was made with another filter",
    }
    check_binding(body, {name: (binding[name], text) for name, text in sentences.items()})
    begin = body.get("n")
    if not isinstance(begin, int) or not 0 <= begin <= length:
        raise ChangeCursorRejectedError("it is damaged")
    return begin
