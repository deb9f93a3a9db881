"""A graph at a glance: the head of its main branch, its types with their counts, and its schema as a picture."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph.core.ids import TableKey
from omnigraph.display.tables import block
from omnigraph.display.text import counted, fitted
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.api.reading_api import ReadingApi
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.lang.schema.catalog import Catalog

#: Types that are listed as text.
_LISTED = 40
_WIDTH = 100


@frozen(kw_only=True)
class GraphSummary:
    """What a graph holds at the head of main."""

    uri: str
    commit: GraphCommit
    branches: int
    catalog: Catalog
    counts: dict[TableKey, int]

    @property
    def _facts(self) -> str:
        nodes = sum(count for key, count in self.counts.items() if key.kind == "node")
        edges = sum(count for key, count in self.counts.items() if key.kind == "edge")
        return f"{counted(nodes, 'node')}, {counted(edges, 'edge')}, {counted(self.branches, 'branch', 'branches')}"

    @property
    def _head(self) -> str:
        moment = datetime.fromtimestamp(self.commit.created_at / 1e6, UTC)
        actor = "" if self.commit.actor is None else f" by {self.commit.actor}"
        return f"main at {self.commit.commit_id}, {moment:%Y-%m-%d %H:%M} UTC{actor}"

    def text(self) -> str:
        """A few lines for a terminal."""
        lines = [f"Graph {self.uri}", self._head, self._facts, *self._types()]
        return "\n".join(fitted(one_line(line), _WIDTH) for line in lines)

    def _types(self) -> Iterator[str]:
        types = list(self.catalog.types.items())
        width = max((len(key.name) for key, _ in types), default=0)
        for key, definition in types[:_LISTED]:
            source = getattr(definition, "source", None)
            ends = "" if source is None else f"{source} → {getattr(definition, 'target', '')}; "
            names = ", ".join(f"{item.name} {item.type}" for item in definition.properties.values())
            yield f"  {key.kind} {key.name:<{width}}  {self.counts.get(key, 0):>9,}  {f'{ends}{names}'.rstrip('; ')}"
        if len(types) > _LISTED:
            yield f"  … {len(types) - _LISTED} more types"

    def html(self) -> str:
        """The same with the schema as a picture."""
        drawing = self.catalog.drawing(self.uri, self.counts)
        svg = drawing.svg().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
        title = f"<b>Graph</b> <code>{html.escape(one_line(self.uri))}</code>"
        return block(f"<p>{title}<br>{html.escape(one_line(self._head))}<br>{html.escape(self._facts)}</p>{svg}")


def read_summary(graph: ReadingApi) -> GraphSummary:
    """Look at a graph now: a few small reads, however large it is."""
    head = graph.snapshot()
    return GraphSummary(
        uri=graph.uri,
        commit=graph.commit(head.commit_id),
        branches=len(graph.branches()),
        catalog=graph.catalog(snapshot=head.commit_id),
        counts={key: pin.row_count for key, pin in head.pins.items()},
    )
