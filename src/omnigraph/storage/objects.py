"""Files of a graph: control objects that appear whole, listings, durability on disks, reach of object stores."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import LocalStore, from_url

from omnigraph.core.env_settings import Duration, WholeNumber
from omnigraph.errors import DamageError, OutsideRootError, StorageError, StorageFailure
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.storage._failures import store_code, translated
from omnigraph.storage.location import GraphLocation, inside, is_dataset_path, is_deletable, manifest_names, walk
from omnigraph.storage.store_variables import CONNECTION, STORE_CONNECT_TIMEOUT, STORE_TIMEOUT, store_endpoint

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta
    from obstore.store import ObjectStore as Backend
    from obstore.store import RetryConfig


# ---- Making files survive a power cut: Lance and obstore issue no fsync
#
# Only local disks need it; an object store acknowledges durable writes.


def sync_files(paths: Iterable[Path]) -> None:
    """Flush files that were just written, and the directory entries that name them.

    A path that is a directory stands for all files directly in it. A path that does not exist is passed over: a commit
    may write fewer files than it could.
    """
    folders: set[Path] = set()
    for path in paths:
        if path.is_dir():
            folders.add(path.parent)
            files: Iterable[Path] = path.iterdir()
        else:
            files = (path,)
        for file in files:
            if _sync(file, os.O_RDONLY):
                folders.add(file.parent)
    for folder in folders:
        # A new directory is itself an entry of its parent.
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
        _sync(folder.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> bool:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


# ---- How long an object store may take, and whether it is there at all
#
# Lance and obstore try a request again and again, and a store that does not answer makes one open take minutes. So
# the first use of an endpoint asks it once, plainly, and what is wrong is said at once. Both libraries read their
# time limits from variables, which are set here from those of this project.


REQUEST_TIMEOUT = Duration(
    "OMNIGRAPH_STORAGE_TIMEOUT",
    "30s",
    "The time limit of one request to an object store; Lance and obstore read it as `AWS_TIMEOUT`.",
)
CONNECT_TIMEOUT = Duration(
    "OMNIGRAPH_STORAGE_CONNECT_TIMEOUT",
    "10s",
    "The time for an object store to accept a connection (`AWS_CONNECT_TIMEOUT`) and to answer the first request.",
)
RETRIES = WholeNumber(
    "OMNIGRAPH_STORAGE_RETRIES", 5, "How often a failed request to an object store is sent again.", highest=100
)
#: Variables that decide what a store is and how it is asked.
_SETTINGS = ("AWS_", "OMNIGRAPH_STORAGE_")
#: Stores that are kept with their connections: one for every graph, table and fork in use.
_KEPT_STORES = 128
#: The pauses between tries of one request grow up to this: a writer that holds the commit lock lets others wait.
_LONGEST_PAUSE = timedelta(seconds=1)
_FIRST_PAUSE = timedelta(milliseconds=50)

_lock = Lock()
_answered: set[str] = set()


def open_store(location: GraphLocation, request_limit_s: float | None = None) -> Backend:
    """The object store of a remote graph, with the time limits of this process.

    With `request_limit_s` a request is given up after that time if this is shorter, and not sent again then.

    Raises:
        StorageError: its endpoint does not answer.
    """
    check_answers(location)
    settings = (item for item in os.environ.items() if item[0].startswith(_SETTINGS))
    return _connected(location.uri, tuple(sorted(settings)), request_limit_s)


@lru_cache(maxsize=_KEPT_STORES)
def _connected(uri: str, settings: tuple[tuple[str, str], ...], request_limit_s: float | None) -> Backend:
    """A store with its connections, which the next one at the same address uses again; `settings` tell them apart."""
    del settings
    timeout_s = REQUEST_TIMEOUT.read_s()
    retry: RetryConfig = {
        "max_retries": RETRIES.read(),
        "retry_timeout": timedelta(seconds=2 * timeout_s),
        "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
    }
    if request_limit_s is None or request_limit_s >= timeout_s:
        return from_url(uri, retry_config=retry)
    limit = timedelta(seconds=request_limit_s)
    # Given options replace all options of the environment, so those that name a connection are given too.
    found = {name: os.environ.get(variable) for name, variable in CONNECTION.items()}
    options: Any = {name: value for name, value in found.items() if value is not None}
    options |= {"timeout": limit, "connect_timeout": limit}
    return from_url(uri, client_options=options, retry_config=retry | {"retry_timeout": limit})


@cache
def set_limits() -> None:
    """Give Lance and obstore the time limits: both read them from the variables of the process."""
    os.environ.setdefault(STORE_TIMEOUT, f"{REQUEST_TIMEOUT.read_s():.0f}s")
    os.environ.setdefault(STORE_CONNECT_TIMEOUT, f"{CONNECT_TIMEOUT.read_s():.0f}s")


def check_answers(location: GraphLocation) -> None:
    """Make sure that the endpoint of a remote graph answers; asks it once per process.

    Raises:
        StorageError: `TRANSIENT`, with what to do about it.
    """
    set_limits()
    address = store_endpoint()
    if address is None:
        # The store of the cloud itself: its names depend on the bucket and the region.
        return
    with _lock:
        if address in _answered:
            return
    problem = why_silent(address)
    if problem is not None:
        raise StorageError(f"{location} cannot be reached: {problem}", StorageFailure.TRANSIENT)
    with _lock:
        _answered.add(address)


def explain_silence() -> str | None:
    """Why requests to the endpoint in use fail, if that is known; None when it answers."""
    address = store_endpoint()
    return None if address is None else why_silent(address)


def why_silent(endpoint: str) -> str | None:
    """Why an endpoint does not answer; None when it does, or when only a proxy can reach it."""
    import http.client
    import urllib.request

    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if urllib.request.getproxies().get(parts.scheme) and not urllib.request.proxy_bypass(host):
        return None
    limit_s = CONNECT_TIMEOUT.read_s()
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=limit_s)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    except ssl.SSLError:
        # Which certificates are trusted is for the libraries to say.
        return None
    except TimeoutError:
        return (
            f"{endpoint} did not answer within {limit_s:g} s; check that the store runs, or set {CONNECT_TIMEOUT} "
            "to a longer time"
        )
    except ConnectionRefusedError:
        return f"{endpoint} refuses connections; check that the store runs, and AWS_ENDPOINT_URL"
    except socket.gaierror:
        return f"the name {host!r} is not known; check AWS_ENDPOINT_URL"
    except http.client.HTTPException:
        # Something answers, if not well.
        return None
    except OSError as error:
        return f"{endpoint} cannot be reached: {error.strerror or error}"
    finally:
        connection.close()
    return None


# ---- Control files of a graph: small objects that appear whole, on disk and on S3 alike
#
# On disk no name leads through a link: `OutsideRootError` tells when one would.


@frozen
class StoredObject:
    """The bytes of an object and the tag of exactly this state of it."""

    data: bytes
    tag: str | None


_LISTING_TRIES = 3
#: The longest object that is read as a whole. Sidecars and schemas stay far below; only the manifest of a dataset with
#: millions of fragments comes near.
MAX_OBJECT_BYTES = 256 * 1024 * 1024
#: How often a conditional write is sent whose answer was lost.
_OWNED_TRIES = 3


def owner_of(data: bytes) -> str | None:
    """The owner that the JSON body of an object names; None when it names none."""
    try:
        owner = json.loads(data)["owner"]
    except (ValueError, KeyError, TypeError):
        return None
    return owner if isinstance(owner, str) else None


def put_owned(objects: ControlObjects, name: str, data: bytes, tag: str | None) -> str | None:
    """Replace the state with `tag`, or create the object without one; the new tag, None when another owner has it.

    `data` is a JSON object with an `owner` that no one else uses. The answer to a conditional write can get lost, and
    a repeated request then meets what the first one wrote. So a failure is never believed before the object was read:
    what names this owner is this owner's.

    Raises:
        StorageError: the storage does not answer, so that its owner is not known.
    """
    owner = owner_of(data)
    failure: StorageError | None = None
    for _ in range(_OWNED_TRIES):
        try:
            done = objects.create(name, data) if tag is None else objects.replace(name, data, tag)
        except StorageError as error:
            if error.failure is StorageFailure.CONFIGURATION:
                raise
            failure, done = error, None
        if done is not None:
            return done
        current = objects.read(name)
        if current is not None and current.data == data:
            return current.tag or ""
        if current is None or owner_of(current.data) != owner:
            if failure is not None and (None if current is None else current.tag) == tag:
                # The object is as it was: the request itself failed.
                continue
            return None
        # An earlier request of this owner arrived late: this one goes on top of it.
        tag = current.tag
    if failure is not None:
        raise failure
    return None


def replace_content(objects: ControlObjects, name: str, data: bytes, tag: str | None) -> bool:
    """Replace the state with `tag`, or create the object without one; whether it has this content now.

    As with `put_owned`, a lost answer does not prove a failure: the content decides.

    Raises:
        StorageError: the storage does not answer.
    """
    try:
        done = objects.create(name, data) if tag is None else objects.replace(name, data, tag)
    except StorageError:
        current = objects.read(name)
        if current is not None and current.data == data:
            return True
        raise
    if done is not None:
        return True
    current = objects.read(name)
    return current is not None and current.data == data


def _shown(location: GraphLocation, name: str) -> str:
    """A name below a graph as a failure tells it: on an object store with the bucket."""
    return name if location.is_local else f"{location.uri}/{name}".rstrip("/")


class ControlObjects:
    """Reads and writes small objects below the root of a graph. Names are relative paths.

    With `durable` they are flushed to disk on local graphs. With `request_limit_s` a request to an object store fails
    after that time at the latest.
    """

    def __init__(self, location: GraphLocation, *, durable: bool, request_limit_s: float | None = None) -> None:
        self._location = location
        self._durable = durable and location.is_local
        self._request_limit_s = request_limit_s
        self._store: Backend | None = None

    @property
    def _backend(self) -> Backend:
        if self._store is None:
            with translated(f"opening {self._location}"):
                if self._location.is_local:
                    self._store = LocalStore(self._location.path, mkdir=True)
                else:
                    self._store = open_store(self._location, self._request_limit_s)
        return self._store

    def _named(self, name: str) -> str:
        return _shown(self._location, name)

    def read(self, name: str) -> StoredObject | None:
        """The object, or None when it does not exist.

        Raises:
            DamageError: it is longer than an object of this system can be.
        """
        if self._location.is_local and not self._inside(name).exists():
            # Opening a local store would create the directory, and reading must not leave a trace.
            return None
        with translated(f"reading {self._named(name)}"):
            try:
                result = obstore.get(self._backend, name)
                if (size := result.meta["size"]) > MAX_OBJECT_BYTES:
                    # Before it is in memory: a sparse file takes no space on disk and all of it here.
                    raise DamageError(
                        f"reading {name}", f"it has {size_text(size)}, at most {size_text(MAX_OBJECT_BYTES)} are read"
                    )
                return StoredObject(bytes(result.bytes()), result.meta["e_tag"])
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object; readers see the old or the new one, never a part."""
        self._inside(name)
        with translated(f"writing {self._named(name)}"):
            obstore.put(self._backend, name, data)
            self._sync(name)

    def create(self, name: str, data: bytes) -> str | None:
        """Create an object; its tag, or None when it exists already."""
        self._inside(name)
        with translated(f"creating {self._named(name)}"):
            try:
                result = obstore.put(self._backend, name, data, mode="create")
            except AlreadyExistsError:
                return None
            self._sync(name)
            return result["e_tag"] or ""

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        """Replace the state with `tag`; the new tag, or None when the object has another state.

        Object stores only: on a local disk exclusion comes from file locks.
        """
        with translated(f"replacing {self._named(name)}"):
            try:
                result = obstore.put(self._backend, name, data, mode={"e_tag": tag})
            except (PreconditionError, FileNotFoundError):
                return None
            return result["e_tag"] or ""

    def delete(self, name: str) -> None:
        """Delete an object; deleting what does not exist is fine."""
        self._inside(name)
        with translated(f"deleting {self._named(name)}"):
            try:
                obstore.delete(self._backend, name)
            except FileNotFoundError:
                return
            if self._durable:
                sync_files([(self._location.path / name).parent])

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, sorted; empty when there is no such folder."""
        if self._location.is_local:
            return self._local_names(folder)
        with translated(f"listing {self._named(folder)}"):
            found = self._list(folder)
            return sorted(meta["path"].rpartition("/")[2] for meta in found["objects"])

    def _list(self, folder: str) -> ListResult[Sequence[ObjectMeta]]:
        for _ in range(_LISTING_TRIES - 1):
            try:
                return obstore.list_with_delimiter(self._backend, f"{folder}/")
            except GenericError as error:
                if store_code(error) is not None:
                    raise
                if (silence := explain_silence()) is not None:
                    message = f"listing {folder} failed: {silence}"
                    raise StorageError(message, StorageFailure.TRANSIENT) from error
                # An answer that ends in the middle of its body: the library does not repeat such a request.
        try:
            return obstore.list_with_delimiter(self._backend, f"{folder}/")
        except GenericError:
            # A failed listing carries no type, a failed look at one object does.
            with suppress(FileNotFoundError):
                obstore.head(self._backend, folder)
            raise

    def _inside(self, name: str) -> Path:
        """The path of an object on disk, where no part may be a link; an object store has none."""
        return inside(self._location, name) if self._location.is_local else Path(name)

    def _local_names(self, folder: str) -> list[str]:
        # One system call instead of a round trip through the runtime: every write begins with this.
        with translated(f"listing {self._named(folder)}"):
            try:
                return sorted(os.listdir(self._inside(folder)))
            except FileNotFoundError:
                return []

    def _sync(self, name: str) -> None:
        if self._durable:
            sync_files([self._location.path / name])


# ---- The files below a graph, with their ages: on disk and on S3 alike


#: Objects that one request to an object store deletes at most.
DELETED_AT_ONCE = 1000
#: Where datasets of types lie.
_KINDS = ("edges", "nodes")
_SHARED = frozenset({"data", "_deletions", "_indices", "_transactions", "_versions"})


@frozen(kw_only=True)
class StoredFile:
    """One file: its name below the root of the graph, its size and when it was written last."""

    name: str
    size_bytes: int
    #: Seconds since the epoch.
    modified_s: float


def list_files(location: GraphLocation, folder: str) -> Iterator[StoredFile]:
    """All files in a folder and in the folders below it, in no particular order; a link is not a file.

    Raises:
        OutsideRootError: the folder leads out of the root, or through a link.
    """
    with translated(f"listing {_shown(location, folder) or 'the graph'}"):
        if location.is_local:
            yield from _local_files(location, folder)
            return
        for batch in obstore.list(open_store(location), folder):
            for meta in batch:
                yield StoredFile(
                    name=meta["path"], size_bytes=meta["size"], modified_s=meta["last_modified"].timestamp()
                )


def _local_files(location: GraphLocation, folder: str) -> Iterator[StoredFile]:
    start = len(location.uri) + 1
    for entry in walk(location, folder):
        if entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Removed in this moment.
                continue
            yield StoredFile(name=entry.path[start:], size_bytes=status.st_size, modified_s=status.st_mtime)


def list_folders(location: GraphLocation, folder: str) -> list[str]:
    """The names of the folders directly in a folder, sorted; a link is not a folder."""
    with translated(f"listing {_shown(location, folder)}"):
        if location.is_local:
            try:
                with os.scandir(inside(location, folder)) as entries:
                    found = [item.name for item in entries if item.is_dir(follow_symlinks=False)]
            except FileNotFoundError:
                return []
            return sorted(found)
        prefixes = obstore.list_with_delimiter(open_store(location), f"{folder}/")["common_prefixes"]
    return sorted(name.rstrip("/").rpartition("/")[2] for name in prefixes)


def list_dataset_folders(location: GraphLocation) -> list[str]:
    """Every directory that can be the dataset of a type, also one whose creation was never published."""
    paths = (f"{kind}/{name}" for kind in _KINDS for name in list_folders(location, kind))
    return [path for path in paths if is_dataset_path(path)]


def used_dataset(location: GraphLocation, folder: str) -> str | None:
    """A dataset below a folder that has more than its first version; looks at names only."""
    for file in list_files(location, folder):
        dataset, _, name = file.name.rpartition("/_versions/")
        if name.endswith(".manifest") and f"_versions/{name}" not in manifest_names(1):
            return dataset
    return None


def delete_files(location: GraphLocation, names: Iterable[str]) -> int:
    """Delete files of datasets, and folders that held nothing else; how many files there were to delete.

    A file that is gone already counts too.

    Raises:
        OutsideRootError: a name is not one that files of a dataset have, or leads through a link; nothing was deleted.
    """
    wanted = list(names)
    for name in wanted:
        if not is_deletable(name):
            raise OutsideRootError(name, "it does not have the name of a file that omnigraph deletes")
    with translated(f"deleting files of {location}"):
        if location.is_local:
            _delete_local(location, wanted)
            return len(wanted)
        store = open_store(location)
        for start in range(0, len(wanted), DELETED_AT_ONCE):
            obstore.delete(store, wanted[start : start + DELETED_AT_ONCE])
    return len(wanted)


def _delete_local(location: GraphLocation, names: list[str]) -> None:
    for place in [inside(location, name) for name in names]:
        place.unlink(missing_ok=True)
    for folder in {_own_folder(PurePosixPath(name)) for name in names} - {None}:
        remove_empty_folders(location, str(folder))


def remove_empty_folders(location: GraphLocation, folder: str) -> None:
    """Remove a folder and those below it, as far as they hold nothing. No writer may be about to use it."""
    if location.is_local:
        for inner, _, _ in os.walk(inside(location, folder), topdown=False):
            with suppress(OSError):
                os.rmdir(inner)


def _own_folder(name: PurePosixPath) -> PurePosixPath | None:
    """The folder of one index or of the blobs of one file, to which nothing is ever added.

    Folders that all writers share are none: one of them could be about to create a file there.
    """
    shared = max((at for at, part in enumerate(name.parts) if part in _SHARED), default=None)
    if shared is None or shared + 2 >= len(name.parts):
        return None
    return PurePosixPath(*name.parts[: shared + 2])
