"""The one door through which datasets of a graph are opened: whatever they record, they read inside the graph."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import lance
from lance import LanceDataset

from omnigraph.environ import whole_number
from omnigraph.storage.addresses import rebased, with_bases

#: Every version of a table and of the catalog adds about 30 KB, and hardly an old one is read again.
_METADATA_CACHE_BYTES = 32 * 1024 * 1024
_INDEX_CACHE_BYTES = 1024 * 1024 * 1024


@cache
def session() -> Any:  # lance exports its Session without a type
    """The one Lance session of this process: fresh handles share its caches.

    Lance would keep 1 GiB of metadata and 6 GiB of indexes, and every commit adds to both.
    """
    return lance.Session(  # type: ignore[attr-defined]  # lance exports it without a type
        metadata_cache_size_bytes=whole_number(
            "OMNIGRAPH_METADATA_CACHE_BYTES", _METADATA_CACHE_BYTES
        ),
        index_cache_size_bytes=whole_number("OMNIGRAPH_INDEX_CACHE_BYTES", _INDEX_CACHE_BYTES),
    )


def open_dataset(uri: str, version: int | None = None, *, shared: bool = True) -> LanceDataset:
    """A dataset, or a fork of one, at a version or at its HEAD.

    A fork that was recorded for another root reads its base where the graph lies now; nothing is written for that.
    Without `shared` it uses no session: caches may know a dataset that was dropped and made again at the same address.

    Raises:
        OutsideRootError: a version of it reads files outside of its dataset.
    """
    caches = session() if shared else None
    found = lance.dataset(uri, version=version, session=caches)
    place = partial(rebased, uri=uri)
    if all(place(base.path) == base.path for base in found.base_paths().values()):
        return found
    message = with_bases(found._ds.serialized_manifest(), place)
    return LanceDataset(uri, version=found.version, serialized_manifest=message, session=caches)
