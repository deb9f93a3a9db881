"""What one read may use: time, memory, rows, turns."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from random import Random
from threading import Barrier, Event, Semaphore
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from omnigraph.core.budget import PATIENT_ROWS, Budget, LinkedSignal, MemoryAccount, Turns
from omnigraph.core.cache import LruCache
from omnigraph.core.validation import MAX_PROBLEMS, listed, problems_of
from omnigraph.errors import QueryCancelledError, QueryTimeoutError, ResourceLimitError
from support.subtests import each_case, named_cases


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_read_without_bounds_goes_on() -> None:
    budget = Budget()
    budget.check()
    budget.count_rows(10**12)
    budget.release(budget.hold(10**15))
    assert budget.memory.used == 0


def test_a_read_stops_when_its_time_is_over_and_names_what_worked() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    clock.now += 2
    budget.enter("Order")
    clock.now += 0.1
    with pytest.raises(QueryTimeoutError) as caught:
        budget.check()
    assert (caught.value.timeout_s, caught.value.operator) == (2, "Order")


def test_the_time_of_the_reader_is_not_that_of_the_read() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    paused_at = budget.pause()
    clock.now += 1_000
    budget.resume(paused_at)
    budget.check()
    clock.now += 3
    with pytest.raises(QueryTimeoutError):
        budget.check()


def test_the_time_of_an_encoder_belongs_to_the_read() -> None:
    clock = Clock()
    budget = Budget(timeout_s=2, clock=clock)
    budget.counts_pauses = True
    paused_at = budget.pause()
    clock.now += 3
    budget.resume(paused_at)
    with pytest.raises(QueryTimeoutError):
        budget.check()


def test_a_signal_stops_a_read_at_the_next_check() -> None:
    signal = threading.Event()
    budget = Budget(cancel=signal)
    budget.check()
    signal.set()
    with pytest.raises(QueryCancelledError):
        list(budget.steps([1]))


def test_a_linked_signal_follows_the_other_one() -> None:
    other = threading.Event()
    first, second = LinkedSignal(other), LinkedSignal(other)
    first.set()
    assert (first.is_set(), second.is_set()) == (True, False)
    other.set()
    assert second.is_set()


def test_memory_is_refused_before_it_is_taken_and_given_back_at_the_end() -> None:
    shared = MemoryAccount(1_000, setting="OMNIGRAPH_SERVER_READ_MEMORY_BYTES")
    first = Budget(memory=MemoryAccount(700, shared=shared))
    second = Budget(memory=MemoryAccount(700, shared=shared))
    first.hold(600)
    with pytest.raises(ResourceLimitError) as own:
        first.allow(101)
    second.enter("Expand $a Knows $b")
    with pytest.raises(ResourceLimitError) as others:
        second.hold(401)
    assert (own.value.limit, own.value.actual) == (700, 701)
    assert (others.value.limit, others.value.actual) == (1_000, 1_001)
    assert "Expand $a Knows $b" in others.value.advice
    assert "OMNIGRAPH_SERVER_READ_MEMORY_BYTES" in others.value.advice
    first.release_all()
    assert (shared.used, shared.peak) == (0, 600)


def test_rows_beyond_the_bound_are_refused_with_the_way_out() -> None:
    budget = Budget(max_rows=10)
    budget.count_rows(10)
    with pytest.raises(ResourceLimitError, match="OMNIGRAPH_QUERY_MAX_ROWS"):
        budget.count_rows(1)


def test_a_kernel_that_goes_on_does_not_keep_its_read() -> None:
    signal, let_go = threading.Event(), threading.Event()
    budget = Budget(cancel=signal)

    def kernel() -> None:
        signal.set()
        let_go.wait(30)

    with pytest.raises(QueryCancelledError):
        budget.patiently(kernel)
    let_go.set()


def test_kernels_give_their_outcome_and_their_failure() -> None:
    budget = Budget()

    def fails() -> None:
        raise KeyError("inside")

    here, elsewhere = (budget.patiently(threading.get_ident, rows) for rows in (0, PATIENT_ROWS))
    assert here == threading.get_ident() != elsewhere
    with pytest.raises(KeyError, match="inside"):
        budget.patiently(fails)


def test_kernels_at_once_give_their_outcomes_in_order_and_their_failure() -> None:
    budget, meet = Budget(), Barrier(2, timeout=30)

    def outcome(number: int) -> int:
        meet.wait()
        return number

    assert budget.together([partial(outcome, 1), partial(outcome, 2)]) == [1, 2]
    assert budget.together([]) == []
    with pytest.raises(ZeroDivisionError):
        budget.together([lambda: 1, lambda: 1 // 0])


def test_kernels_at_once_that_go_on_do_not_keep_their_read() -> None:
    cancel, go_on = Event(), Event()

    def kernel() -> None:
        cancel.set()
        go_on.wait(30)

    with pytest.raises(QueryCancelledError):
        Budget(cancel=cancel).together([kernel, kernel])
    go_on.set()


def test_long_reads_take_turns_and_short_ones_do_not_wait() -> None:
    clock, turns = Clock(), Turns(1)
    long, other, short = (Budget(turns=turns, clock=clock) for _ in range(3))
    clock.now += 1
    long.check()
    short_too = Budget(turns=turns, clock=clock)
    short_too.check()
    stopped = threading.Event()
    waiting = Budget(turns=turns, clock=clock, cancel=stopped)
    clock.now += 1
    stopped.set()
    with pytest.raises(QueryCancelledError):
        waiting.check()
    paused_at = long.pause()
    other.check()
    other.release_all()
    long.resume(paused_at)
    long.check()
    long.release_all()
    short.check()
    short.release_all()
    assert not turns.is_wanted


def kept(cache: LruCache[str], keys: str) -> str:
    """Which of the keys are there, without touching the order of use more than asked."""
    return "".join(key for key in keys if cache.get(key) is not None)


@named_cases(
    ("capacity", "put", "there", "used"),
    {
        "the least recently used value makes room": (2, "a=x b=x ?a c=x", "ac", 2),
        "putting again counts as use": (2, "a=x b=x a=x c=x", "ac", 2),
        "values weigh what they are": (10, "a=xxxx b=xxxx c=xx", "abc", 10),
        "as many go as are in the way": (10, "a=xxxx b=xxxx c=xx ?a ?b ?c d=xxxxx", "cd", 7),
        "and no more": (10, "a=xxxx b=xxxx c=xx ?a ?b ?c d=xxxxx ?c ?d e=xxx", "cde", 10),
        "a value larger than everything is not kept and displaces nothing": (5, "a=xx b=xxxxxx", "a", 2),
        "a value as large as everything displaces all": (5, "a=xx c=xxxxx", "c", 5),
        "a value that is put again replaces the one before": (10, "a=xxxx a=yy", "a", 2),
        "a value that grew too large is forgotten": (5, "a=xx a=xxxxxx", "", 0),
        "nothing is kept without capacity": (0, "a=x", "", 0),
    },
)
def test_the_cache_keeps_what_was_used_last_and_fits(capacity: int, put: str, there: str, used: int) -> None:
    cache: LruCache[str] = LruCache(capacity, len)
    last: dict[str, str] = {}
    for word in put.split():
        key, _, value = word.partition("=")
        if value:
            cache.put(key, value)
            last[key] = value
        else:
            assert cache.get(key[1:]) == last[key[1:]]
    assert (kept(cache, "abcde"), cache.used) == (there, used)
    assert all(cache.get(key) == last[key] for key in there)


def test_a_missing_value_is_built_once() -> None:
    cache: LruCache[int] = LruCache(4)
    calls: list[str] = []

    def build() -> int:
        calls.append("built")
        return 0

    assert cache.get_or_build("a", build) == 0
    assert cache.get_or_build("a", build) == 0, "a false value is a value"
    assert calls == ["built"]


def test_a_failed_build_keeps_nothing() -> None:
    cache: LruCache[int] = LruCache(4)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_build("a", lambda: 1 // 0)
    assert cache.used == 0
    assert cache.get_or_build("a", lambda: 7) == 7


def test_clearing_forgets_everything() -> None:
    cache: LruCache[str] = LruCache(10, len)
    cache.put("a", "xxx")
    cache.clear()
    assert (cache.get("a"), cache.used) == (None, 0)
    cache.put("b", "x" * 10)
    assert cache.used == 10


def test_many_threads_keep_the_books_right() -> None:
    cache: LruCache[str] = LruCache(40, len)
    start = Barrier(8)

    def work(seed: int) -> None:
        random = Random(seed)
        start.wait(timeout=60)
        for _ in range(2_000):
            key = random.randrange(12)
            if random.random() < 0.5:
                cache.put(key, str(key) * random.randint(1, 9))
            else:
                found = cache.get(key)
                assert found is None or set(found) <= set(str(key))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    sizes = [len(value) for key in range(12) if (value := cache.get(key)) is not None]
    assert cache.used == sum(sizes) <= 40


class SlowBuild:
    """A build that is going on until it is told to end; whoever wants its value meanwhile has to wait."""

    def __init__(self, *, failures: int = 0) -> None:
        self.calls = 0
        self._failures = failures
        self._asking = Semaphore(0)
        self._began, self._may_end = Event(), Event()

    def want(self, cache: LruCache[int]) -> int:
        self._asking.release()
        return cache.get_or_build("a", self._build)

    def let_end(self, asking: int) -> None:
        for _ in range(asking):
            assert self._asking.acquire(timeout=60)
        assert self._began.wait(60)
        self._may_end.set()

    def _build(self) -> int:
        self.calls += 1
        number = self.calls
        self._began.set()
        assert self._may_end.wait(60)
        if number <= self._failures:
            raise ValueError("no value")
        return number


def test_threads_that_want_a_value_at_the_same_time_wait_for_one_build() -> None:
    cache: LruCache[int] = LruCache(4)
    build = SlowBuild()
    with ThreadPoolExecutor(8) as pool:
        wanted = [pool.submit(build.want, cache) for _ in range(8)]
        build.let_end(asking=8)
        assert [item.result() for item in wanted] == [1] * 8
    assert build.calls == 1


def test_a_failed_build_fails_for_the_thread_that_did_it_only() -> None:
    cache: LruCache[int] = LruCache(4)
    build = SlowBuild(failures=1)
    with ThreadPoolExecutor(8) as pool:
        wanted = [pool.submit(build.want, cache) for _ in range(8)]
        build.let_end(asking=8)
        failures = [item.exception() for item in wanted]
    assert sum(failure is not None for failure in failures) == 1
    assert (cache.get("a"), build.calls) == (2, 2)


def test_values_of_hardly_any_size_are_counted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.core.cache._MAX_ENTRIES", 3)
    cache: LruCache[str] = LruCache(1_000_000, len)
    for key in "abcde":
        cache.put(key, "")
    assert kept(cache, "abcde") == "cde"


def test_only_the_last_states_of_a_thing_are_kept() -> None:
    cache: LruCache[str] = LruCache(100, len, states=2)
    cache.put("x", "other")
    for key in "abac":
        cache.put(key, "1", state_of="table")
    assert (kept(cache, "abcx"), cache.used) == ("acx", 7)


# ---- What models refuse, in our words: every field with its path, and never the words of pydantic


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def _odd(value: object) -> object:
    if value == 2:
        raise ValueError("2 is even")
    return value


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    tags: list[str] = []


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = ""
    from_: Annotated[str | None, Field(alias="from")] = None
    flag: bool = False
    count: Annotated[int, Field(ge=1, le=9)] = 1
    seconds: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    odd: Annotated[int, BeforeValidator(_odd)] = 1
    kind: Literal["node", "edge"] = "node"
    version: Literal[1] = 1
    colour: Annotated[Colour, Field(strict=False)] = Colour.RED
    short: Annotated[str, Field(max_length=3)] = ""
    some: Annotated[list[int], Field(min_length=1)] = [1]
    pair: Annotated[list[int], Field(min_length=2)] = [1, 2]
    moment: Annotated[str, Field(pattern="^[0-9]+$")] = "1"
    inner: Inner | list[Inner] | None = None
    ends: str | dict[str, str] | None = None
    types: dict[str, Inner] = {}


def complaints(data: object, mapping: str = "an object") -> str:
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(data)
    return listed(problems_of(refused.value, data, mapping=mapping), "the body")


@each_case(
    ("data", "text"),
    [
        ({"text": 3}, "`text` is a text, not a number"),
        ({"from": True}, "`from` is a text, not true"),
        ({"flag": "yes"}, "`flag` is true or false, not a text"),
        ({"count": 1.5}, "`count` is a whole number, not a number with a fraction"),
        ({"count": None}, "`count` is a whole number, not null"),
        ({"count": 0}, "`count` is below 1"),
        ({"count": 10}, "`count` is above 9"),
        ({"seconds": 0}, "`seconds` is not above 0"),
        ({"seconds": float("nan")}, "`seconds` is not a finite number"),
        ({"odd": 2}, "`odd` is refused: 2 is even"),
        ({"kind": "nodes"}, "`kind` is not one of `node` or `edge`"),
        ({"version": 2}, "`version` is not 1"),
        ({"colour": "green"}, "`colour` is not one of `red` or `blue`"),
        ({"short": "long"}, "`short` has more than 3 characters"),
        ({"some": []}, "`some` is empty"),
        ({"pair": [1]}, "`pair` has fewer than 2 entries"),
        ({"moment": "now"}, "`moment` has a wrong value"),
        ({"unknown": 1}, "`unknown` is not a known field"),
        ({"some": [1, "b", 2, None]}, "`some[1]` is a whole number, not a text; `some[3]` is a whole number, not null"),
        ({"types": {"A": {"tags": [1]}}}, "`types.A.name` is missing; `types.A.tags[0]` is a text, not a number"),
        ({"ends": 3}, "`ends` is a text or an object, not a number"),
        ({"ends": {"a": 3}}, "`ends.a` is a text, not a number"),
        ({"inner": {"name": 1}}, "`inner.name` is a text, not a number"),
        ({"inner": [{"name": "a"}, {}]}, "`inner[1].name` is missing"),
        ({"inner": "a"}, "`inner` is an object or a list, not a text"),
        ([], "the body is an object, not a list"),
        (None, "the body is an object, not null"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_what_belongs_there_and_what_stands_there(data: Any, text: str) -> None:
    assert complaints(data) == text


@pytest.mark.parametrize("key", [1, True], ids=repr)
def test_a_key_that_is_not_a_text_is_told_to_be_quoted(key: object) -> None:
    text = f"`types.{key}` has a name that is not a text: quote it"
    assert complaints({"types": {key: {"name": "a"}}}).startswith(text)


def test_the_format_says_what_keys_with_values_are_called() -> None:
    assert complaints({"inner": 1}, "a mapping") == "`inner` is a mapping or a list, not a number"


def test_very_many_problems_are_counted() -> None:
    text = complaints({"some": ["a"] * (MAX_PROBLEMS + 1_002)})
    assert text.endswith("; and 1,002 more")
