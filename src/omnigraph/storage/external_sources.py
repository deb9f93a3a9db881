"""Looking at external blobs and copying them: local files, S3 and HTTP. Only allowed addresses come here.

Redirects are not followed and special files are not opened: both would lead to where the policy did not look.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from omnigraph.errors import ExternalBlobSourceError, ResourceLimitError
from omnigraph.storage.failures import readable
from omnigraph.storage.local_sources import opened_file
from omnigraph.types.blob_cells import managed_cell, reference_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import httpx

    from omnigraph.storage.external_policy import ExternalUri

_Result = TypeVar("_Result")
#: External blobs that one mutation or load brings at most, and those that are looked at together.
EXTERNAL_CELLS = 8_192
PARALLEL_PROBES = 8
_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1024 * 1024
_FOUND = 200
_NO_HEAD = (405, 501)


def referring_cells(uris: Sequence[ExternalUri]) -> list[bytes]:
    """Cells that refer to the addresses, each of which exists and can be read.

    Raises:
        ExternalBlobSourceError: one cannot.
    """

    def look(uri: ExternalUri) -> bytes:
        probe(uri)
        return reference_cell(str(uri))

    return _in_parallel(look, uris)


def copied_cells(uris: Sequence[ExternalUri], max_bytes: int) -> list[bytes]:
    """Cells with the bytes behind the addresses, which together have at most `max_bytes`.

    Raises:
        ExternalBlobSourceError: one cannot be read.
        ResourceLimitError: they have more bytes.
    """
    # Looked at first: too much is refused before any of it is in memory.
    sizes = _in_parallel(probe, uris)
    check_bytes(sum(size or 0 for size in sizes), max_bytes)
    return [managed_cell(data) for data in _in_parallel(lambda uri: fetch(uri, max_bytes), uris)]


def check_bytes(size: int, max_bytes: int) -> None:
    """Refuse to copy more bytes than one step may have in memory."""
    if size > max_bytes:
        advice = (
            "load them with mode overwrite, which keeps references, bring fewer at once, or raise "
            "OMNIGRAPH_EXTERNAL_BLOB_MAX_BYTES for a load, OMNIGRAPH_MUTATION_MAX_BYTES for a mutation"
        )
        raise ResourceLimitError("external blob bytes in memory", max_bytes, size, advice)


def probe(uri: ExternalUri) -> int | None:
    """How many bytes an address has; None when its server does not tell. Reads none of them.

    Raises:
        ExternalBlobSourceError: there is nothing, or it cannot be read.
    """
    with _failures(uri):
        match uri.scheme:
            case "file":
                with opened_file(uri) as descriptor:
                    return os.fstat(descriptor).st_size
            case "s3":
                size: int = obstore.head(from_url(f"s3://{uri.authority}"), uri.path)["size"]
                return size
            case _:
                return _probe_http(uri)


def fetch(uri: ExternalUri, max_bytes: int) -> bytes:
    """The bytes behind an address.

    Raises:
        ExternalBlobSourceError: they cannot be read.
        ResourceLimitError: there are more than `max_bytes`.
    """
    pieces: list[bytes] = []
    size = 0
    with _failures(uri):
        for chunk in _chunks(uri):
            pieces.append(chunk)
            size += len(chunk)
            check_bytes(size, max_bytes)
    return b"".join(pieces)


def _chunks(uri: ExternalUri) -> Iterator[bytes]:
    match uri.scheme:
        case "file":
            with opened_file(uri) as descriptor:
                while chunk := os.read(descriptor, _CHUNK_BYTES):
                    yield chunk
        case "s3":
            for part in obstore.get(from_url(f"s3://{uri.authority}"), uri.path).stream():
                yield bytes(part)
        case _:
            with _client(uri) as client, client.stream("GET", str(uri)) as answer:
                _check_status(uri, answer.status_code)
                yield from answer.iter_bytes()


# ---- HTTP


@contextmanager
def _client(uri: ExternalUri) -> Iterator[httpx.Client]:
    import httpx

    # As it is on the server: decompressed bytes would have another length than the server tells.
    as_it_is = {"Accept-Encoding": "identity"}
    try:
        with httpx.Client(follow_redirects=False, timeout=_TIMEOUT_S, headers=as_it_is) as client:
            yield client
    except httpx.HTTPError as error:
        # Its text may repeat the whole address.
        raise ExternalBlobSourceError(str(uri), type(error).__name__) from error


def _probe_http(uri: ExternalUri) -> int | None:
    with _client(uri) as client:
        answer = client.head(str(uri))
        if answer.status_code in _NO_HEAD:
            with client.stream("GET", str(uri)) as answer:
                _check_status(uri, answer.status_code)
        _check_status(uri, answer.status_code)
        length = answer.headers.get("Content-Length", "")
        return int(length) if length.isascii() and length.isdigit() else None


def _check_status(uri: ExternalUri, status: int) -> None:
    if 300 <= status < 400:
        raise ExternalBlobSourceError(str(uri), "its server sends elsewhere, which is not followed")
    if status != _FOUND:
        raise ExternalBlobSourceError(str(uri), f"its server answers {status}")


# ---- all of them


def _in_parallel(
    work: Callable[[ExternalUri], _Result], uris: Sequence[ExternalUri]
) -> list[_Result]:
    if len(uris) <= 1:
        return [work(uri) for uri in uris]
    with ThreadPoolExecutor(PARALLEL_PROBES) as pool:
        return list(pool.map(work, uris))


@contextmanager
def _failures(uri: ExternalUri) -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise ExternalBlobSourceError(str(uri), readable(error)) from error
    except OSError as error:
        raise ExternalBlobSourceError(str(uri), error.strerror or type(error).__name__) from error
