"""Control files of a graph: small objects that appear whole, on disk and on S3 alike.

On disk no name leads through a link: `OutsideRootError` tells when one would.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import LocalStore

from omnigraph.errors import DamageError, StorageError, StorageFailure
from omnigraph.sizes import size_text
from omnigraph.storage.boundary import inside
from omnigraph.storage.durability import sync_files
from omnigraph.storage.failures import store_code, translated
from omnigraph.storage.remote import explain_silence, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore import ListResult, ObjectMeta
    from obstore.store import ObjectStore as Backend

    from omnigraph.storage.location import GraphLocation


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The bytes of an object and the tag of exactly this state of it."""

    data: bytes
    tag: str | None


class ControlObjects(Protocol):
    """Reads and writes small objects below the root of a graph. Names are relative paths."""

    def read(self, name: str) -> StoredObject | None:
        """The object, or None when it does not exist."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object; readers see the old or the new one, never a part."""
        ...

    def create(self, name: str, data: bytes) -> str | None:
        """Create an object; its tag, or None when it exists already."""
        ...

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        """Replace the state with `tag`; the new tag, or None when the object has another state."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object; deleting what does not exist is fine."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, sorted; empty when there is no such folder."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with the objects directly in it; deleting what does not exist is fine."""
        ...


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


class ObstoreObjects:
    """Control objects through obstore; flushed to disk on local graphs when `durable` is set.

    With `request_limit_s` a request to an object store fails after that time at the latest.
    """

    def __init__(
        self, location: GraphLocation, *, durable: bool, request_limit_s: float | None = None
    ) -> None:
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

    def read(self, name: str) -> StoredObject | None:
        """The object, or None when it does not exist.

        Raises:
            DamageError: it is longer than an object of this system can be.
        """
        if self._location.is_local and not self._inside(name).exists():
            # Opening a local store would create the directory, and reading must not leave a trace.
            return None
        with translated(f"reading {name}"):
            try:
                result = obstore.get(self._backend, name)
                if (size := result.meta["size"]) > MAX_OBJECT_BYTES:
                    # Before it is in memory: a sparse file takes no room on disk and all of it here.
                    raise DamageError(
                        f"reading {name}",
                        f"it has {size_text(size)}, at most {size_text(MAX_OBJECT_BYTES)} are read",
                    )
                return StoredObject(bytes(result.bytes()), result.meta["e_tag"])
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object; readers see the old or the new one, never a part."""
        self._inside(name)
        with translated(f"writing {name}"):
            obstore.put(self._backend, name, data)
            self._sync(name)

    def create(self, name: str, data: bytes) -> str | None:
        """Create an object; its tag, or None when it exists already."""
        self._inside(name)
        with translated(f"creating {name}"):
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
        with translated(f"replacing {name}"):
            try:
                result = obstore.put(self._backend, name, data, mode={"e_tag": tag})
            except (PreconditionError, FileNotFoundError):
                return None
            return result["e_tag"] or ""

    def delete(self, name: str) -> None:
        """Delete an object; deleting what does not exist is fine."""
        self._inside(name)
        with translated(f"deleting {name}"):
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
        with translated(f"listing {folder}"):
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

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with the objects directly in it; deleting what does not exist is fine."""
        for name in self.names(folder):
            self.delete(f"{folder}/{name}")
        if self._location.is_local:
            with translated(f"deleting {folder}"), suppress(FileNotFoundError):
                self._inside(folder).rmdir()

    def _inside(self, name: str) -> Path:
        """The path of an object on disk, where no part may be a link; an object store has none."""
        return inside(self._location, name) if self._location.is_local else Path(name)

    def _local_names(self, folder: str) -> list[str]:
        # One system call instead of a round trip through the runtime: every write begins with this.
        with translated(f"listing {folder}"):
            try:
                return sorted(os.listdir(self._inside(folder)))
            except FileNotFoundError:
                return []

    def _sync(self, name: str) -> None:
        if self._durable:
            sync_files([self._location.path / name])
