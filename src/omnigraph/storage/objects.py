"""Control files of a graph: small objects that appear whole, on disk and on S3 alike.

On disk no name leads through a link: `OutsideRootError` tells when one would.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import LocalStore, from_url

from omnigraph.storage.boundary import inside
from omnigraph.storage.durability import sync_files
from omnigraph.storage.failures import translated

if TYPE_CHECKING:
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


class ObstoreObjects:
    """Control objects through obstore; flushed to disk on local graphs when `durable` is set."""

    def __init__(self, location: GraphLocation, *, durable: bool) -> None:
        self._location = location
        self._durable = durable and location.is_local
        self._store: Backend | None = None

    @property
    def _backend(self) -> Backend:
        if self._store is None:
            with translated(f"opening {self._location}"):
                if self._location.is_local:
                    self._store = LocalStore(self._location.path, mkdir=True)
                else:
                    self._store = from_url(self._location.uri)
        return self._store

    def read(self, name: str) -> StoredObject | None:
        """The object, or None when it does not exist."""
        if self._location.is_local and not self._inside(name).exists():
            # Opening a local store would create the directory, and reading must not leave a trace.
            return None
        with translated(f"reading {name}"):
            try:
                result = obstore.get(self._backend, name)
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
            try:
                found = obstore.list_with_delimiter(self._backend, f"{folder}/")
            except GenericError:
                # A failed listing carries no type, a failed look at one object does.
                obstore.head(self._backend, folder)
                raise
            return sorted(meta["path"].rpartition("/")[2] for meta in found["objects"])

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
