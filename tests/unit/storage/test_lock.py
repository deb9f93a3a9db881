"""Locks of both backends. The leases of these tests run on a clock that only the tests move."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Barrier, Event, Lock, Thread
from types import SimpleNamespace

import pytest

from omnigraph.commit.environment import GraphSettings
from omnigraph.errors import BadRequestError, LeaseLostError, RetryableCommitConflictError, StorageError, StorageFailure
from omnigraph.storage import locks as lock_module
from omnigraph.storage.location import COMMIT_LOCK, parse_location
from omnigraph.storage.locks import FileCommitLock, LeaseCommitLock, Reading, ReadingLock
from omnigraph.storage.objects import StoredObject
from support.subtests import each_case

SOON_S = 0.02
LONG_S = 60.0

HOLDER = """
import sys
from pathlib import Path
from omnigraph.storage.locks import FileCommitLock
with FileCommitLock(Path(sys.argv[1])).held(60):
    print("held", flush=True)
    sys.stdin.read()
"""


class FakeObjects:
    """Control objects in memory, with tags like an object store."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._objects: dict[str, StoredObject] = {}
        self._next_tag = 0
        self.replaced = Event()
        self.broken = False
        #: Called before an object is read.
        self.before_read = lambda: None

    def read(self, name):
        self.before_read()
        with self._lock:
            return self._objects.get(name)

    def write(self, name, data):
        with self._lock:
            return self._put(name, data)

    def create(self, name, data):
        with self._lock:
            return None if name in self._objects else self._put(name, data)

    def replace(self, name, data, tag):
        if self.broken:
            raise StorageError("the store does not answer")
        with self._lock:
            current = self._objects.get(name)
            if current is None or current.tag != tag:
                return None
            self.replaced.set()
            return self._put(name, data)

    def delete(self, name):
        with self._lock:
            self._objects.pop(name, None)

    def names(self, folder):
        return sorted(n.removeprefix(f"{folder}/") for n in self._objects if n.startswith(folder))

    def _put(self, name, data):
        self._next_tag += 1
        self._objects[name] = StoredObject(data, str(self._next_tag))
        return str(self._next_tag)


def lease(objects: FakeObjects) -> dict:
    return json.loads(objects.read(COMMIT_LOCK).data)


@pytest.fixture(params=["file", "lease"])
def lock(request, tmp_path):
    return FileCommitLock(tmp_path) if request.param == "file" else LeaseCommitLock(FakeObjects())


# ---- both


def test_a_held_lock_is_refused_after_the_timeout_and_nothing_happened(lock):
    with (
        lock.held(LONG_S),
        pytest.raises(RetryableCommitConflictError, match=r"stayed busy for 0\.02 s"),
        lock.held(SOON_S),
    ):
        raise AssertionError("two holders at once")


def test_a_lock_is_free_again_after_its_block_also_when_the_block_failed(lock):
    with lock.held(LONG_S):
        pass
    with pytest.raises(ZeroDivisionError), lock.held(LONG_S):
        _ = 1 / 0
    with lock.held(SOON_S):
        pass


def test_threads_exclude_each_other(lock):
    inside, most, total = 0, 0, 0
    guard = Lock()

    def work() -> None:
        nonlocal inside, most, total
        for _ in range(5):
            with lock.held(LONG_S):
                with guard:
                    inside += 1
                    most = max(most, inside)
                    total += 1
                with guard:
                    inside -= 1

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, total) == (1, 20)


def test_a_waiting_thread_gets_the_lock_when_it_is_released(lock):
    got = Event()

    def wait() -> None:
        with lock.held(LONG_S):
            got.set()

    with lock.held(LONG_S):
        waiter = Thread(target=wait)
        waiter.start()
        assert not got.is_set()
    waiter.join()
    assert got.is_set()


# ---- file


@pytest.mark.parametrize("ending", ["killed", "finished"])
def test_a_lock_of_another_process_excludes_us_and_ends_with_it(tmp_path, ending):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    lock = FileCommitLock(tmp_path)
    with pytest.raises(RetryableCommitConflictError), lock.held(SOON_S):
        raise AssertionError("two holders at once")
    if ending == "killed":
        holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert holder.returncode == (-signal.SIGKILL if ending == "killed" else 0)
    with lock.held(SOON_S):
        pass


def test_locks_of_different_graphs_do_not_meet(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with FileCommitLock(tmp_path / "one").held(SOON_S), FileCommitLock(tmp_path / "two").held(0):
        assert (tmp_path / "one" / COMMIT_LOCK).exists()


def test_a_root_that_does_not_exist_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError), FileCommitLock(tmp_path / "nowhere").held(SOON_S):
        raise AssertionError("held a lock of nothing")


# ---- lease


def test_a_lease_names_its_owner_and_its_expiry():
    objects = FakeObjects()
    with LeaseCommitLock(objects, lease_s=30).held(SOON_S):
        held = lease(objects)
        assert held["owner"]
        assert time.time() < held["expires_at"] <= time.time() + 30


def test_a_lease_is_given_back_as_expired():
    objects = FakeObjects()
    with LeaseCommitLock(objects).held(SOON_S):
        pass
    assert lease(objects)["expires_at"] < time.time()


@each_case(
    "left",
    [
        json.dumps({"owner": "dead", "expires_at": 1.0}).encode(),
        b"",
        b"{",
        b'{"owner": "dead"}',
        b'{"owner": "dead", "expires_at": null}',
        b"[]",
    ],
)
def test_an_expired_or_broken_lease_is_taken_over(left):
    objects = FakeObjects()
    objects.write(COMMIT_LOCK, left)
    with LeaseCommitLock(objects).held(SOON_S):
        assert lease(objects)["owner"] != "dead"


def test_a_lease_that_has_not_expired_is_respected():
    objects = FakeObjects()
    objects.write(COMMIT_LOCK, json.dumps({"owner": "alive", "expires_at": time.time() + 60}).encode())
    with pytest.raises(RetryableCommitConflictError), LeaseCommitLock(objects).held(SOON_S):
        raise AssertionError("two holders at once")
    assert lease(objects)["owner"] == "alive"


def test_a_held_lease_is_renewed_by_its_owner():
    objects = FakeObjects()
    with LeaseCommitLock(objects, lease_s=30, renewal_s=0.001).held(SOON_S):
        first = lease(objects)
        objects.replaced.clear()
        assert objects.replaced.wait(LONG_S)
        second = lease(objects)
        assert second["owner"] == first["owner"]
        assert second["expires_at"] > first["expires_at"]


def test_a_holder_that_lost_its_lease_does_not_take_it_from_its_successor():
    objects = FakeObjects()
    with LeaseCommitLock(objects, lease_s=-1.0, renewal_s=LONG_S).held(SOON_S):
        successor = LeaseCommitLock(objects).held(SOON_S)
        successor.__enter__()
        owner = lease(objects)["owner"]
    assert lease(objects)["owner"] == owner
    assert lease(objects)["expires_at"] > time.time()
    successor.__exit__(None, None, None)


def test_a_lease_that_cannot_be_given_back_does_not_fail_what_was_done_under_it():
    objects = FakeObjects()
    done = False
    with LeaseCommitLock(objects).held(SOON_S):
        done = True
        objects.broken = True
    assert done


# ---- whether the owner of a lease lives

DAY_S = 86_400.0


class Clock:
    """Seconds on one machine, and a thread that sleeps there."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The time in which writers wait for the lock."""
    made = Clock()
    monkeypatch.setattr(lock_module, "time", SimpleNamespace(sleep=made.sleep, monotonic=made, time=time.time))
    return made


def left_by_another(objects: FakeObjects, **said: object) -> None:
    """The lease of an owner that died right after it had taken it."""
    body = {"owner": "other", "expires_at": time.time(), "epoch": 7, "released": False, **said}
    objects.write(COMMIT_LOCK, json.dumps(body).encode())


def can_take(lock: LeaseCommitLock) -> bool:
    try:
        with lock.held(0):
            return True
    except RetryableCommitConflictError:
        return False


def waits_for(objects: FakeObjects, clock: Clock, **settings: float) -> float:
    """How long a writer waits until it has the lease."""
    begun = clock.now
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock, **settings).held(3600):
        return clock.now - begun


def test_the_successor_of_a_dead_writer_waits_less_than_five_seconds(clock):
    objects = FakeObjects()
    dead = LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).held(0)
    dead.__enter__()
    assert 2 < waits_for(objects, clock) < 4, "the rest is for settling what it left"


@pytest.mark.parametrize("ahead_s", [-20 * 60, 0, 20 * 60, DAY_S])
def test_a_clock_that_differs_changes_neither_the_lease_nor_the_wait(clock, ahead_s):
    objects = FakeObjects()
    left_by_another(objects, lease_s=3.0, expires_at=time.time() + ahead_s + 3)
    assert 3 <= waits_for(objects, clock) < 3.1


@pytest.mark.parametrize(("own_s", "of_holder_s"), [(3.0, 20.0), (20.0, 3.0), (0.1, 600.0)])
def test_the_length_of_a_lease_is_for_its_holder_to_say(clock, own_s, of_holder_s):
    objects = FakeObjects()
    left_by_another(objects, lease_s=of_holder_s)
    assert of_holder_s <= waits_for(objects, clock, lease_s=own_s) < of_holder_s + 0.1
    assert lease(objects)["lease_s"] == 0.0, "a lease that was given back has no length"


def test_a_lease_of_an_earlier_release_lasts_for_thirty_seconds(clock):
    objects = FakeObjects()
    left_by_another(objects)
    assert 30 <= waits_for(objects, clock) < 30.1


@pytest.mark.parametrize("said", [-1.0, 0, float("nan"), "soon", None, [], 1e400, 10**12])
def test_a_senseless_length_ends_as_well(clock, said):
    objects = FakeObjects()
    left_by_another(objects, lease_s=said)
    assert waits_for(objects, clock) <= 600.1


def test_a_writer_that_may_not_wait_learns_from_one_call_to_the_next_who_is_dead():
    objects, clock = FakeObjects(), Clock()
    left_by_another(objects, lease_s=3.0)
    lock = LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock)
    for moment in (0.0, 1.5, 2.9):
        clock.now = 100.0 + moment
        assert not can_take(lock)
    clock.now = 103.0
    assert can_take(lock)


def test_every_renewal_lets_others_wait_for_a_whole_lease_also_when_the_clock_stands():
    objects, clock = FakeObjects(), Clock()
    standing = time.time()
    holder = LeaseCommitLock(objects, renewal_s=LONG_S, wall=lambda: standing, elapsed=clock)
    waiting = LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock)
    with holder.held(0) as tenure:
        for _ in range(5):
            assert not can_take(waiting)
            clock.sleep(2.0)
            tenure.check()
            assert not tenure.is_lost


# ---- a keeper that is late


def test_a_holder_whose_keeper_is_late_goes_on_when_the_lease_was_not_taken():
    objects, clock = FakeObjects(), Clock()
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).held(0) as tenure:
        clock.sleep(DAY_S)
        assert tenure.is_lost, "another writer may have it"
        tenure.check()
        assert not tenure.is_lost
        assert not can_take(LeaseCommitLock(objects))


def test_a_holder_whose_keeper_is_late_renews_before_others_may_take_the_lease():
    objects, clock = FakeObjects(), Clock()
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).held(0) as tenure:
        before = lease(objects)["renewal"]
        clock.sleep(1.0)
        tenure.check()
        assert lease(objects)["renewal"] == before, "a keeper that is in time needs no help"
        clock.sleep(1.0)
        tenure.check()
        assert lease(objects)["renewal"] == before + 1


def test_a_holder_whose_lease_another_writer_took_is_told_which_setting_helps():
    objects, clock = FakeObjects(), Clock()
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).held(0) as tenure:
        left_by_another(objects, lease_s=3.0)
        clock.sleep(3.0)
        with pytest.raises(LeaseLostError, match="OMNIGRAPH_LOCK_LEASE_MS"):
            tenure.check()
        with pytest.raises(LeaseLostError):
            tenure.check()
    assert lease(objects)["owner"] == "other"


def test_a_holder_that_cannot_renew_an_overdue_lease_has_lost_it():
    objects, clock = FakeObjects(), Clock()
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).held(0) as tenure:
        objects.broken = True
        clock.sleep(2.0)
        tenure.check()
        clock.sleep(1.0)
        with pytest.raises(LeaseLostError):
            tenure.check()


# ---- a store that is slow


def test_a_store_that_is_too_slow_for_the_lease_is_told_with_the_setting():
    objects, clock = FakeObjects(), Clock()

    def hang() -> None:
        clock.sleep(1.0)
        raise StorageError("reading __lock failed", StorageFailure.TRANSIENT)

    objects.before_read = hang
    with (
        pytest.raises(StorageError, match="set OMNIGRAPH_LOCK_LEASE_MS to more than 2500") as told,
        LeaseCommitLock(objects, elapsed=clock).held(0),
    ):
        raise AssertionError("held a lease of nothing")
    assert told.value.failure is StorageFailure.TRANSIENT


def test_a_request_that_is_given_up_is_sent_again():
    objects = FakeObjects()
    failures = iter([True, True])

    def fail_twice() -> None:
        if next(failures, False):
            raise StorageError("reading __lock failed", StorageFailure.TRANSIENT)

    objects.before_read = fail_twice
    assert can_take(LeaseCommitLock(objects))


def test_a_lease_that_was_taken_without_an_answer_is_not_waited_for():
    objects = FakeObjects()
    create = objects.create
    failures = iter([False, True, False])

    def create_silently(name, data):
        create(name, data)
        raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

    def fail_after_creating() -> None:
        if next(failures, False):
            raise StorageError("the connection was reset", StorageFailure.TRANSIENT)

    objects.create, objects.before_read = create_silently, fail_after_creating
    with LeaseCommitLock(objects).held(0) as tenure:
        assert tenure.needs_fence


# ---- claims


def test_the_claim_of_a_dead_process_is_taken_over_after_its_lease(clock):
    objects = FakeObjects()
    left_by_another(objects, lease_s=3.0)
    begun = clock.now
    with LeaseCommitLock(objects, renewal_s=LONG_S, elapsed=clock).claimed():
        assert lease(objects)["owner"] != "other"
    assert 3 <= clock.now - begun < 3.1


def test_the_claim_of_a_living_process_is_respected_as_soon_as_it_is_renewed(clock):
    objects = FakeObjects()
    left_by_another(objects, lease_s=3.0, renewal=1)
    begun, reads = clock.now, []

    def renew() -> None:
        reads.append(clock.now)
        if len(reads) > 3:
            left_by_another(objects, lease_s=3.0, renewal=2)

    objects.before_read = renew
    with (
        pytest.raises(RetryableCommitConflictError, match="held by another writer"),
        LeaseCommitLock(objects, elapsed=clock).claimed(),
    ):
        raise AssertionError("claimed twice")
    assert clock.now - begun < 3


# ---- the setting


@pytest.mark.parametrize(("text", "lease_s"), [("100", 0.1), (" 4500 ", 4.5), ("600000", 600.0)])
def test_the_length_of_a_lease_is_set_in_milliseconds(monkeypatch, text, lease_s):
    assert GraphSettings.from_environment().lease_s == 2.5
    monkeypatch.setenv("OMNIGRAPH_LOCK_LEASE_MS", text)
    assert GraphSettings.from_environment().lease_s == lease_s


@pytest.mark.parametrize("text", ["", "99", "600001", "3s", "3.5", "-3000", "9" * 5000, "٣٠٠٠"])
def test_a_length_that_is_not_usable_is_refused(monkeypatch, text):
    monkeypatch.setenv("OMNIGRAPH_LOCK_LEASE_MS", text)
    with pytest.raises(BadRequestError, match=r"OMNIGRAPH_LOCK_LEASE_MS.*from 100 to 600000"):
        GraphSettings.from_environment()


# ---- The lock that reads hold together


def test_a_read_ends_once_however_often_it_is_closed(tmp_path: Path) -> None:
    lock = ReadingLock(parse_location(tmp_path))
    first, second = lock.begin(), lock.begin()
    first.close()
    first.close()
    with first:
        pass
    assert lock.has_readers(), "the second one still reads"
    second.close()
    assert not lock.has_readers()


def test_a_read_that_many_threads_close_ends_once(tmp_path: Path) -> None:
    lock = ReadingLock(parse_location(tmp_path))
    kept = lock.begin()
    for _ in range(50):
        reading, gate = lock.begin(), Barrier(4)

        def close(reading: Reading = reading, gate: Barrier = gate) -> None:
            gate.wait(10)
            reading.close()

        threads = [Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert lock.has_readers()
    kept.close()
    assert not lock.has_readers()


def test_a_result_that_is_dropped_while_a_read_begins_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector of garbage may run anywhere, also where the lock is just being taken."""
    lock = ReadingLock(parse_location(tmp_path))
    dropped = lock.begin()
    take = lock._take

    def take_late() -> int | None:
        dropped.close()
        return take()

    descriptor, lock._descriptor = lock._descriptor, None
    assert descriptor is not None
    os.close(descriptor)
    monkeypatch.setattr(lock, "_take", take_late)
    reading = lock.begin()
    assert lock.has_readers()
    reading.close()
    assert not lock.has_readers()
