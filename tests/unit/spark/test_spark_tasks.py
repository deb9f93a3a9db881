"""What functions do inside tasks of Spark, without Spark."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, StorageError, StorageFailure
from omnigraph.spark import tasks
from omnigraph.spark.tasks import Kept, TaskFailureError, carrying, guarded, raise_carried
from support.subtests import each_case


def failing(failure: StorageFailure) -> Any:
    def work() -> list[dict[str, Any]]:
        raise StorageError("the store is busy", failure)

    return work


def test_a_failure_that_may_go_away_is_left_to_spark_while_it_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for attempt in range(3):
        monkeypatch.setattr(tasks, "attempt_number", lambda number=attempt: number)
        with pytest.raises(StorageError):
            guarded(failing(StorageFailure.TRANSIENT), 4)
    monkeypatch.setattr(tasks, "attempt_number", lambda: 3)
    assert guarded(failing(StorageFailure.TRANSIENT), 4)[0]["failure"]["failure"] == "transient"


@pytest.mark.parametrize("tries", [1, 4])
def test_a_failure_that_stays_is_an_answer_at_once(tries: int) -> None:
    (answer,) = guarded(failing(StorageFailure.NOT_FOUND), tries)
    assert answer["failure"]["failure"] == "not_found"


def test_a_typed_failure_survives_the_text_of_a_trace() -> None:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        raise StorageError('a "quoted"\nname', StorageFailure.NOT_FOUND)

    rows = carrying(function)(iter([1, 2]))
    assert [next(rows), next(rows)] == [1, 2]
    with pytest.raises(TaskFailureError) as raised:
        next(rows)
    text = f"Job aborted: Traceback (most recent call last):\n  x.TaskFailureError: {raised.value}\n\n\tat org"
    with pytest.raises(StorageError, match="quoted") as caught:
        raise_carried(text)
    assert caught.value.failure is StorageFailure.NOT_FOUND
    assert caught.value.message == 'a "quoted"\nname'


@each_case("text", ["", "ValueError: x", "omnigraph-failure: {cut", "omnigraph-failure: 7"])
def test_other_texts_carry_nothing(text: str) -> None:
    raise_carried(text)


def test_failures_of_requests_are_carried_too() -> None:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        raise BadRequestError("no such column")

    with pytest.raises(TaskFailureError) as raised:
        list(carrying(function)(iter([])))
    with pytest.raises(BadRequestError, match="no such column"):
        raise_carried(str(raised.value))


class Value:
    """Something large."""


def test_a_worker_process_lets_go_of_what_it_kept() -> None:
    gone = Event()
    made: list[str] = []

    def make() -> Value:
        made.append("one")
        value = Value()
        weakref.finalize(value, gone.set)
        return value

    kept: Kept[Value] = Kept(0.05)
    with kept.holding("ids", make):
        assert not gone.wait(0.2), "it goes when it is not used"
    assert gone.wait(60)
    assert made == ["one"]


def test_tasks_of_one_stage_share_what_they_keep() -> None:
    kept: Kept[str] = Kept(60)
    made: list[str] = []

    def make(name: str) -> Any:
        return lambda: made.append(name) or name

    for key in ("a", "a", "b", "a"):
        with kept.holding(key, make(key)) as value:
            assert value == key
    assert made == ["a", "b", "a"]
