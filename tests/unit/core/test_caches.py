from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event, Semaphore

import pytest

from omnigraph.core.cache import LruCache


def kept(cache: LruCache[str], keys: str) -> str:
    """Which of the keys are there, without touching the order of use more than asked."""
    return "".join(key for key in keys if cache.get(key) is not None)


def test_the_least_recently_used_value_makes_room() -> None:
    cache: LruCache[str] = LruCache(2)
    cache.put("a", "1")
    cache.put("b", "2")
    assert cache.get("a") == "1"
    cache.put("c", "3")
    assert kept(cache, "abc") == "ac"
    assert cache.used == 2


def test_values_weigh_what_they_are() -> None:
    cache: LruCache[str] = LruCache(10, len)
    for key, value in (("a", "xxxx"), ("b", "xxxx"), ("c", "xx")):
        cache.put(key, value)
    assert (kept(cache, "abc"), cache.used) == ("abc", 10)
    cache.put("d", "xxxxx")
    assert (kept(cache, "abcd"), cache.used) == ("cd", 7)
    cache.put("e", "xxx")
    assert (kept(cache, "cde"), cache.used) == ("cde", 10)


def test_a_value_larger_than_everything_is_not_kept_and_displaces_nothing() -> None:
    cache: LruCache[str] = LruCache(5, len)
    cache.put("a", "xx")
    cache.put("b", "xxxxxx")
    assert (kept(cache, "ab"), cache.used) == ("a", 2)
    cache.put("c", "xxxxx")
    assert (kept(cache, "ac"), cache.used) == ("c", 5)


def test_a_value_that_is_put_again_replaces_the_one_before() -> None:
    cache: LruCache[str] = LruCache(10, len)
    cache.put("a", "xxxx")
    cache.put("a", "yy")
    assert (cache.get("a"), cache.used) == ("yy", 2)


def test_a_value_that_grew_too_large_is_forgotten() -> None:
    cache: LruCache[str] = LruCache(5, len)
    cache.put("a", "xx")
    cache.put("a", "x" * 6)
    assert (cache.get("a"), cache.used) == (None, 0)


def test_putting_again_counts_as_use() -> None:
    cache: LruCache[str] = LruCache(2)
    for key in "aba":
        cache.put(key, key)
    cache.put("c", "c")
    assert kept(cache, "abc") == "ac"


def test_nothing_is_kept_without_capacity() -> None:
    cache: LruCache[str] = LruCache(0)
    cache.put("a", "x")
    assert (cache.get("a"), cache.used) == (None, 0)


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


def test_only_the_last_states_of_a_thing_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.core.cache._MAX_STATES", 2)
    cache: LruCache[str] = LruCache(100, len)
    cache.put("x", "other")
    for key in "abac":
        cache.put(key, "1", state_of="table")
    assert (kept(cache, "abcx"), cache.used) == ("acx", 7)
