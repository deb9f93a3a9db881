"""Whatever was written in whatever order: after an optimize every question has the same answer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.commit.environment import GraphSettings
from support.worn_graphs import (
    CITES,
    DOC,
    add,
    answers,
    change,
    cite,
    drop,
    new_graph,
    run,
    stored,
)

pytestmark = pytest.mark.usefixtures("_few_vectors")

NUMBERS = st.integers(0, 9)
STEPS = st.one_of(
    st.builds(
        lambda first, count: [add(n) for n in range(first, first + count)],
        NUMBERS,
        st.integers(1, 9),
    ),
    st.builds(lambda number, year: [change(number, 1990 + year)], NUMBERS, NUMBERS),
    st.builds(lambda number: [drop(number)], NUMBERS),
    st.builds(lambda a, b: [add(a), add(b), cite(a, b)], NUMBERS, NUMBERS),
    st.sampled_from(["optimize", "ensure_indices"]),
)


@given(steps=st.lists(STEPS, min_size=3, max_size=12), fold=st.integers(1, 6))
@settings(max_examples=6)
def test_no_history_of_writes_and_maintenance_changes_an_answer(
    steps: list[list[str] | str], fold: int
) -> None:
    """Folds happen on the way, and indexes are built and extended at any moment."""
    with TemporaryDirectory() as folder:
        graph = new_graph(Path(folder))
        graph._settings = GraphSettings(durable=False, fold_fragments=fold)
        plain = Path(folder) / "plain"
        plain.mkdir()
        # The same writes without any maintenance; edges have random ids, which no question shows.
        twin = new_graph(plain)
        twin._settings = GraphSettings(durable=False, folds=False)
        for step in steps:
            if isinstance(step, str):
                getattr(graph, step)()
            else:
                run(graph, *step)
                run(twin, *step)
        expected = answers(twin)
        assert answers(graph) == expected
        rows = stored(graph, DOC), stored(graph, CITES)
        graph.optimize()
        assert answers(graph) == expected
        assert (stored(graph, DOC), stored(graph, CITES)) == rows
        assert graph.optimize().commit is None
