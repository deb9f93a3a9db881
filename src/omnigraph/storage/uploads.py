"""Files for others in an object store: what an export leaves at a place that holds nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from omnigraph.storage._failures import translated
from omnigraph.storage.location import GraphLocation
from omnigraph.storage.objects import DELETED_AT_ONCE, open_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

#: Larger files go up in parts, and appear when the last part is there; the others are created in one request, which
#: the store refuses if something of that name came meanwhile.
_ONE_REQUEST_BYTES = 64 * 1024 * 1024


def holds_objects(location: GraphLocation) -> bool:
    """Whether there is an object of this name, or any below it.

    Raises:
        StorageError: the store cannot be asked.
    """
    store, name = _parent_store(location)
    with translated(f"looking at {location}"):
        below = next(iter(obstore.list(store, f"{name}/", chunk_size=1)), [])
        return bool(below) or _is_there(store, name)


def upload_new(location: GraphLocation, files: Sequence[tuple[Path, str]]) -> bool:
    """Upload files in their order, each with its name below the place; an empty one is the place itself.

    Nothing is replaced: False when something has one of the names. Whenever not all files are there in the end, those
    that were uploaded are deleted.

    Raises:
        StorageError: the store failed.
    """
    store, base = _parent_store(location)
    done: list[str] = []
    try:
        with translated(f"writing {location}"):
            for path, name in files:
                key = f"{base}/{name}" if name else base
                if not _upload(store, key, path):
                    break
                done.append(key)
            else:
                return True
    except BaseException:
        _discard(store, done)
        raise
    _discard(store, done)
    return False


def remove_uploaded(location: GraphLocation, names: Sequence[str]) -> None:
    """Delete files that were uploaded below a place, as far as the store allows."""
    store, base = _parent_store(location)
    _discard(store, [f"{base}/{name}" for name in names])


def _upload(store: Backend, key: str, path: Path) -> bool:
    if path.stat().st_size > _ONE_REQUEST_BYTES:
        if _is_there(store, key):
            return False
        obstore.put(store, key, path, use_multipart=True)
        return True
    try:
        obstore.put(store, key, path, mode="create", use_multipart=False)
    except (AlreadyExistsError, PreconditionError):
        return False
    return True


def _discard(store: Backend, keys: Sequence[str]) -> None:
    with suppress(BaseError):
        for start in range(0, len(keys), DELETED_AT_ONCE):
            obstore.delete(store, keys[start : start + DELETED_AT_ONCE])


def _is_there(store: Backend, key: str) -> bool:
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    return True


def _parent_store(location: GraphLocation) -> tuple[Backend, str]:
    """The store of the folder that a place lies in, and the name of the place there."""
    parent, _, name = location.uri.rpartition("/")
    return open_store(GraphLocation(parent, is_local=False)), name
