"""Tasks of this process: what they answer, what they show, and how they stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.core.budget import Budget, bounded, finishing
from omnigraph.errors import QueryCancelledError, QueryTimeoutError
from omnigraph.pipeline.workers import LocalWorkers, Silent, advance, failure_message, raise_failure
from omnigraph.spark.tasks import RowTally


class Figures:
    """Progress that remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int]] = []

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[Figures]:
        yield self

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        self.shown.append((tasks, rows))

    def tell(self, detail: str) -> None: ...

    def note(self, fact: str) -> None: ...


def counted(item: int) -> dict[str, Any]:
    advance(3)
    advance(item)
    return {"rows": 3 + item}


def test_rows_are_shown_while_a_task_runs() -> None:
    figures = Figures()
    LocalWorkers(figures).run("work", counted, [4, 5])
    assert figures.shown == [(0, 3), (0, 7), (1, 7), (1, 10), (1, 15), (2, 15)]
    # Nothing listens beside a stage.
    advance(1)
    assert figures.shown[-1] == (2, 15)


def test_batches_show_their_rows_too() -> None:
    figures = Figures()

    def task(_part: int, batches: Any) -> Any:
        for batch in batches:
            advance(batch.num_rows)
        return [{"rows": 200_000}]

    LocalWorkers(figures).run_batches("work", task, pa.table({"n": range(200_000)}))
    assert figures.shown == [(0, 131_072), (0, 200_000), (1, 200_000)]


def test_tasks_of_other_processes_count_in_files(tmp_path: Path) -> None:
    tally = RowTally(str(tmp_path))
    assert tally.rows() == 0
    for task, rows in ((0, 5), (1, 7), (1, 8)):
        with tally.counting(task):
            advance(rows)
    assert tally.rows() == 5 + 8, "a task that ran again counts once"


def test_rows_that_cannot_be_counted_do_not_fail_a_task(tmp_path: Path) -> None:
    tally = RowTally(str(tmp_path / "gone"))
    with tally.counting(0):
        advance(5)
    assert tally.rows() == 0
    (tmp_path / "1").mkdir()  # cannot be opened as a file, whoever runs the test
    tally = RowTally(str(tmp_path))
    with tally.counting(1):
        advance(5)
    with tally.counting(2):
        advance(7)
    assert tally.rows() == 7


def test_no_task_begins_after_the_work_was_stopped() -> None:
    stop = Event()
    begun: list[int] = []

    def task(item: int) -> dict[str, Any]:
        begun.append(item)
        if item == 1:
            stop.set()
        return {"rows": 1}

    workers = LocalWorkers(Silent())
    with bounded(Budget(cancel=stop), "Load"), pytest.raises(QueryCancelledError):
        workers.run("work", task, range(4))
    assert begun == [0, 1]
    # Where failures are kept, what other tasks wrote is known from their answers.
    stop.clear()
    with bounded(Budget(cancel=stop), "Load"):
        answers = workers.run("work", task, range(4), keep_failures=True)
    assert answers[:2] == [{"rows": 1}] * 2
    for answer in answers[2:]:
        with pytest.raises(QueryCancelledError):
            raise_failure(answer)


def test_batches_stop_on_the_way() -> None:
    stop = Event()
    seen: list[int] = []

    def task(_part: int, batches: Any) -> Any:
        for batch in batches:
            seen.append(batch.num_rows)
            stop.set()
        return [{}]

    rows = pa.table({"n": range(300_000)})
    with bounded(Budget(cancel=stop), "Load"), pytest.raises(QueryCancelledError):
        LocalWorkers(Silent()).run_batches("work", task, rows)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "error", [QueryTimeoutError(2.5, "Merge"), QueryCancelledError("Merge")], ids=lambda e: e.kind
)
def test_what_stopped_a_task_travels_as_a_message(
    error: QueryTimeoutError | QueryCancelledError,
) -> None:
    with pytest.raises(type(error)) as caught:
        raise_failure(failure_message(error))
    assert caught.value.details() == error.details()


def test_what_has_to_be_finished_is() -> None:
    stop = Event()
    workers = LocalWorkers(Silent())
    with bounded(Budget(cancel=stop), "Load"):
        stop.set()
        with finishing():
            assert workers.run("work", lambda item: {"item": item}, [1]) == [{"item": 1}]
        with pytest.raises(QueryCancelledError):
            workers.run("work", lambda item: {"item": item}, [1])
