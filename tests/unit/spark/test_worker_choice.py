"""Which session a load of frames uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from omnigraph.errors import BadRequestError, SparkError
from omnigraph.spark import spark_session
from omnigraph.spark.jobs import check_session, spark_errors
from omnigraph.spark.kinds import tries_of
from omnigraph.spark.worker_choice import session_of_frames
from support.subtests import each_case


def session(context: object) -> Any:
    """A classic session, as far as it is asked here."""
    made = SparkSession.__new__(SparkSession)
    made._sc = context
    return made


def frame(owner: Any, name: str = "Paper") -> Any:
    data = SimpleNamespace(sparkSession=owner)
    return SimpleNamespace(
        is_local=False, data=data, mapped=SimpleNamespace(source=f"frame {name}")
    )


LOCAL: Any = SimpleNamespace(is_local=True)


def test_frames_bring_their_session() -> None:
    context = object()
    mine, sibling = session(context), session(context)
    assert session_of_frames(None, [LOCAL]) is None
    assert session_of_frames(None, [LOCAL, frame(mine)]) is mine
    assert session_of_frames(mine, [LOCAL]) is mine
    # Sessions of one context run their jobs together.
    assert session_of_frames(mine, [frame(sibling)]) is mine


def test_frames_of_two_sessions_are_refused() -> None:
    one, other = session(object()), session(object())
    with pytest.raises(BadRequestError, match="frame Paper and frame Cites belong to two Spark"):
        session_of_frames(None, [frame(one), frame(other, "Cites")])
    with pytest.raises(BadRequestError, match="spark= and frame Paper belong to two"):
        session_of_frames(one, [frame(other)])


def test_a_stopped_session_is_refused_with_a_sentence() -> None:
    stopped = session(SimpleNamespace(_jsc=None))
    with pytest.raises(SparkError, match="the Spark session was stopped"):
        check_session(stopped)
    with pytest.raises(SparkError, match="the Spark session was stopped"), spark_errors(stopped):
        stopped.sparkContext._jsc.sc()


def test_a_process_of_spark_connect_without_a_session_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Any:
        raise PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setattr(SparkSession, "active", none)
    with pytest.raises(SparkError, match=r"works with Spark Connect and has no session.*spark="):
        spark_session(0)


def test_mistakes_of_our_own_stay_what_they_are() -> None:
    alive = session(SimpleNamespace(_jsc=object()))
    with pytest.raises(AttributeError), spark_errors(alive):
        alive.sparkContext._jsc.sc()


@each_case(
    ("master", "setting", "tries"),
    [
        ("local", "9", 1),
        ("local[*]", None, 1),
        ("local[2,4]", None, 4),
        ("local[*, 3]", None, 3),
        ("local-cluster[2,1,1024]", None, 4),
        ("spark://host:7077", "7", 7),
        ("", None, 4),
    ],
)
def test_how_often_a_task_is_tried(master: str, setting: str | None, tries: int) -> None:
    settings = {"spark.master": master, "spark.task.maxFailures": setting}
    fake: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, _: settings[name]))
    assert tries_of(fake) == tries
