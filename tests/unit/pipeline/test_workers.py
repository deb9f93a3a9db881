"""Tasks of this process: what they answer, what they show, and how they stop."""

from __future__ import annotations

from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.budget import Budget, bounded, finishing
from omnigraph.errors import QueryCancelledError, QueryTimeoutError
from omnigraph.pipeline.progress import Silent
from omnigraph.pipeline.workers import LocalWorkers, failure_message, raise_failure


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
