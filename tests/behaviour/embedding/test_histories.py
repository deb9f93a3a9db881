"""Random histories: what `embed` finds is what a model that watches every write expects."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.embedded_notes import (
    GIVEN,
    counts,
    embed,
    note,
    notes_graph,
    of,
    put,
    set_body,
    vectors,
)

OTHER = [1.0, 0.0, 0.0, 0.0]


@dataclass
class Row:
    """A note, and whether its text changed after its vector."""

    text: str | None
    vec: list[float] | None
    is_outdated: bool = False

    def write(self, text: str | None, vec: list[float] | None) -> None:
        if vec != self.vec:
            self.is_outdated = False
        elif text != self.text:
            self.is_outdated = True
        self.text, self.vec = text, vec


def expected(rows: dict[str, Row]) -> tuple[int, int, int]:
    changed = [row for row in rows.values() if row.vec is not None and row.is_outdated]
    return (
        sum(row.vec is None and row.text is not None for row in rows.values()),
        sum(row.text is not None for row in changed),
        sum(row.text is None for row in changed),
    )


SLUGS = st.sampled_from(["a", "b"])
TEXTS = st.sampled_from(["x", "y", None])
STEPS = st.one_of(
    st.tuples(st.just("load"), SLUGS, TEXTS, st.sampled_from([None, GIVEN, OTHER])),
    st.tuples(st.just("text"), SLUGS, TEXTS),
    st.tuples(st.just("delete"), SLUGS),
    st.tuples(st.just("embed")),
)


@settings(max_examples=6)
@given(steps=st.lists(STEPS, min_size=4, max_size=9))
def test_embed_finds_what_changed_since(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = notes_graph(Path(folder))
        rows = {"a": Row("x", GIVEN), "b": Row("y", None)}
        put(graph, Path(folder), *[note(slug, row.text, row.vec) for slug, row in rows.items()])
        for step in steps:
            match step:
                case ("load", str(slug), text, vec):
                    put(graph, Path(folder), note(slug, text, vec))
                    if slug in rows:
                        rows[slug].write(text, vec)
                    else:
                        rows[slug] = Row(text, vec)
                case ("text", str(slug), text):
                    set_body(graph, slug, text)
                    if slug in rows:
                        rows[slug].write(text, rows[slug].vec)
                case ("delete", str(slug)):
                    query = "query q($slug: String) { delete Note where slug = $slug }"
                    graph.mutate(query, {"slug": slug})
                    rows.pop(slug, None)
                case _:
                    assert counts(embed(graph)) == expected(rows)
                    for row in rows.values():
                        if row.vec is None or row.is_outdated:
                            row.vec = None if row.text is None else of(row.text)
                        row.is_outdated = False
        assert counts(embed(graph, dry_run=True)) == expected(rows)
        assert vectors(graph) == {slug: row.vec for slug, row in rows.items()}
