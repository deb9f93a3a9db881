from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from threading import Event, Lock, Thread

import pytest

from omnigraph.errors import RetryableCommitConflictError, StorageError
from omnigraph.recovery.lock import FileCommitLock, LeaseCommitLock
from omnigraph.storage.location import COMMIT_LOCK
from omnigraph.storage.objects import StoredObject

SOON_S = 0.02
LONG_S = 60.0

HOLDER = """
import sys
from pathlib import Path
from omnigraph.recovery.lock import FileCommitLock
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

    def read(self, name):
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
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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


@pytest.mark.parametrize(
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
    objects.write(
        COMMIT_LOCK, json.dumps({"owner": "alive", "expires_at": time.time() + 60}).encode()
    )
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
