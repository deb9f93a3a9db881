"""Work beside everything else: by key, one piece after the other, and none after closing."""

from __future__ import annotations

import logging
from threading import Event, Thread

import pytest

from omnigraph.core.background import Background


def test_pieces_are_done_in_their_order() -> None:
    background, done = Background(), list[int]()
    for number in range(5):
        background.submit(number, lambda number=number: done.append(number))
    background.settle()
    assert done == list(range(5))


def test_work_of_a_key_that_waits_or_runs_is_not_done_twice() -> None:
    background, go, done = Background(), Event(), list[str]()

    def slow() -> None:
        go.wait()
        done.append("slow")

    assert background.submit("slow", slow)
    assert not background.submit("slow", slow) or not done
    assert background.submit("next", lambda: done.append("next"))
    assert not background.submit("next", lambda: done.append("again"))
    go.set()
    background.settle()
    assert done[-1] == "next"
    assert "again" not in done
    assert background.submit("next", lambda: done.append("later")), "it is done, so it may be done again"
    background.settle()
    assert done[-1] == "later"


def test_a_piece_that_fails_is_told_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture) -> None:
    background, done = Background(), list[str]()

    def fails() -> None:
        raise ValueError("no room")

    with caplog.at_level(logging.WARNING):
        background.submit("one", fails)
        background.submit("other", lambda: done.append("other"))
        background.settle()
    assert done == ["other"]
    assert "no room" in caplog.text


def test_closing_waits_for_what_runs_and_forgets_what_waits() -> None:
    background, begun, go, done = Background(), Event(), Event(), list[str]()

    def slow() -> None:
        begun.set()
        go.wait()
        done.append("slow")

    background.submit("slow", slow)
    background.submit("other", lambda: done.append("other"))
    begun.wait()
    closer = Thread(target=background.close)
    closer.start()
    while not background.is_closed:
        begun.wait()
    go.set()
    closer.join()
    assert done == ["slow"]
    assert not background.submit("late", lambda: done.append("late"))
    background.settle()
    assert done == ["slow"]


def test_closing_from_inside_does_not_wait_for_itself() -> None:
    background = Background()
    background.submit("one", background.close)
    background.settle()
    assert background.is_closed
