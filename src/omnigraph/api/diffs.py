"""Net differences on the wire: pages of a diff, and the diff that a client puts together from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from types import TracebackType
from typing import Self

from typing_extensions import override

from omnigraph.branches.changes import DEFAULT_PAGE_BYTES, PageBudget, check_binding, decode_token, encode_token
from omnigraph.branches.deltas import Operation
from omnigraph.branches.diff_pictures import ShownDiff, StateReader
from omnigraph.branches.diffs import NET_CHANGES, Diff, DiffPage, DiffStats, NetChange
from omnigraph.core.arrow import Rows, pa
from omnigraph.core.ids import TableKey
from omnigraph.errors import ChangeCursorRejectedError
from omnigraph.frozen import frozen

_DIFF_PAGE = "diff-page"


@frozen(kw_only=True, slots=False, repr=False)
class ReportedDiff(ShownDiff):
    """The differences of two snapshots as a server told them; reads like a `Diff`."""

    #: All changes on one page.
    whole: DiffPage
    states: StateReader | None = field(default=None, compare=False)

    @property
    @override
    def from_commit_id(self) -> str:
        return self.whole.from_graph_commit_id

    @property
    @override
    def to_commit_id(self) -> str:
        return self.whole.to_graph_commit_id

    @property
    def from_graph_manifest_version(self) -> int:
        """The graph version of the first state."""
        return self.whole.from_graph_manifest_version

    @property
    def to_graph_manifest_version(self) -> int:
        """The graph version of the second state."""
        return self.whole.to_graph_manifest_version

    @property
    def graph_branch(self) -> str | None:
        """The branch of both states; None when they are on different ones."""
        return self.whole.graph_branch

    @property
    def stats(self) -> DiffStats:
        """The number of differences."""
        return self.whole.stats

    @override
    def first(self, count: int) -> list[NetChange]:
        return list(self.whole.changes[:count])

    @override
    def by_type(self) -> dict[TableKey, dict[Operation, int]]:
        counts: dict[TableKey, dict[Operation, int]] = {}
        for change in self.whole.changes:
            found = counts.setdefault(TableKey(f"{change.kind}:{change.type_name}"), {})
            found[change.op] = found.get(change.op, 0) + 1
        return counts

    @property
    def summary(self) -> DiffPage:
        """The document of the diff without its changes."""
        return replace(self.whole, changes=())

    @property
    def changes(self) -> list[NetChange]:
        """Every change."""
        return list(self.whole.changes)

    def __len__(self) -> int:
        return len(self.whole.changes)

    def __iter__(self) -> Iterator[NetChange]:
        return iter(self.whole.changes)

    def to_arrow(self) -> Rows:
        """All changes as one Arrow table."""
        rows = [change.to_json() | {"from": None, "to": None} | (change.endpoints or {}) for change in self]
        table: Rows = pa.Table.from_pylist(rows, schema=NET_CHANGES)
        return table

    def close(self) -> None:
        """Do nothing: a reported diff has no files. As `Diff.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to_json(self) -> dict[str, object]:
        """The diff as a JSON object."""
        return self.whole.to_json()

    @staticmethod
    def from_pages(pages: Sequence[DiffPage], states: StateReader | None = None) -> ReportedDiff:
        """The diff that consecutive pages make up."""
        changes = tuple(change for page in pages for change in page.changes)
        return ReportedDiff(whole=replace(pages[0], changes=changes, next_page_token=None), states=states)


@frozen(kw_only=True)
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


def diff_page(diff: Diff, filter_: DiffFilter, *, limit: int, page_token: str | None = None) -> DiffPage:
    """One page of a diff, with what differs in all and the token of the next page.

    A token belongs to the two commits: a request for the next page by names of branches that moved is refused, and
    one by the commits of the first page is answered.

    Raises:
        ChangeCursorRejectedError: the token belongs to something else.
        BadRequestError: the limit is not positive.
        ResourceLimitError: the limit is too large.
    """
    PageBudget.of(limit, DEFAULT_PAGE_BYTES)
    binding = {"t": _DIFF_PAGE, "a": diff.from_commit_id, "b": diff.to_commit_id, "f": filter_.digest}
    begin = 0 if page_token is None else _begin(page_token, binding, len(diff))
    end = min(begin + limit, len(diff))
    token = encode_token({**binding, "n": end}) if end < len(diff) else None
    return diff.page(begin, end, token)


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
