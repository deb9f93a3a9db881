"""External blobs: which addresses are allowed, and reading exactly the bytes that were checked."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from omnigraph.core.values import managed_cell, reference_cell
from omnigraph.errors import BadRequestError, ExternalBlobPolicyError, ExternalBlobSourceError, ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import readable

if TYPE_CHECKING:
    import httpx


# ---- Which external blobs a writer may refer to or copy: an allow-list of bases, empty by default
#
# Addresses are compared in one normal form, decoded, without dots and at the border of a path segment, so that no
# other spelling of an address gets around the list. A local path is compared after its symbolic links are followed.


#: Longest address of an external blob.
EXTERNAL_URI_BYTES = 64 * 1024
_SCHEMES = ("file", "s3", "http", "https")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SHORTEST_UNPRINTABLE = 0x7F
#: Parameters that carry a secret or stand for one, in lower case.
_SECRETS = frozenset(
    {
        *("x-amz-signature", "x-amz-credential", "x-amz-security-token", "awsaccesskeyid"),
        *("signature", "sig", "token", "access_token", "id_token", "api_key", "apikey", "key"),
        *("password", "passwd", "secret", "auth", "authorization", "code"),
    }
)


@frozen(kw_only=True)
class ExternalUri:
    """An address in its normal form."""

    scheme: str
    #: Host and port, or bucket; empty for a file.
    authority: str
    #: Decoded, without empty ones, `.` and `..`.
    segments: tuple[str, ...]
    #: Whether the path ends with a slash, which tells some servers apart.
    has_slash: bool = False
    query: str = ""
    #: The base that allowed it: whatever is opened has to lie below, too. None where no policy was asked.
    allowed_by: ExternalUri | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> str:
        """The decoded path without the first slash."""
        return "/".join(self.segments)

    def __str__(self) -> str:
        path = "/".join(quote(part, safe="!$&'()*+,;=:@~") for part in self.segments)
        slash = "/" if self.has_slash and path else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.authority}/{path}{slash}{query}"


@frozen
class ExternalPolicy:
    """The bases that are allowed. Picklable: it travels to the tasks of a load."""

    bases: tuple[ExternalUri, ...] = ()

    def check(self, uri: str) -> ExternalUri:
        """The normal form of an address that is allowed; looks at symbolic links, opens nothing.

        Raises:
            ExternalBlobPolicyError: it is malformed, holds credentials, or lies below no base.
            ResourceLimitError: it is longer than `EXTERNAL_URI_BYTES`.
        """
        if (size := len(uri.encode(errors="surrogatepass"))) > EXTERNAL_URI_BYTES:
            advice = "give the bytes as `base64:…`, or a shorter address"
            raise ResourceLimitError("external blob URI bytes", EXTERNAL_URI_BYTES, size, advice)
        if not self.bases:
            raise ExternalBlobPolicyError(
                uri,
                "no external base is allowed here: give the bytes as `base64:…`, or allow the base with "
                "OMNIGRAPH_EXTERNAL_BLOB_BASES or `external_blobs`",
            )
        try:
            found = normal_form(uri)
        except ValueError as problem:
            raise ExternalBlobPolicyError(uri, str(problem)) from problem
        for base in self.bases:
            if _is_below(found, base):
                return replace(found, allowed_by=base)
        raise ExternalBlobPolicyError(uri, "it lies below none of the allowed bases")


#: What holds where nothing was configured.
DENY_ALL = ExternalPolicy()


def policy_of(bases: Iterable[str]) -> ExternalPolicy:
    """The policy that allows these bases.

    Raises:
        BadRequestError: a base is malformed.
    """
    if isinstance(bases, str):
        raise BadRequestError("the external bases are a list of addresses, not one text")
    found = []
    for base in bases:
        try:
            parsed = normal_form(base)
            if parsed.query:
                raise ValueError("a base has no query")
        except (ValueError, TypeError, AttributeError) as problem:
            raise BadRequestError(f"an external base is not allowed to look like this: {problem}") from problem
        found.append(parsed)
    return ExternalPolicy(tuple(found))


def normal_form(uri: str) -> ExternalUri:
    """An address with everything that means the same written the same way.

    >>> str(normal_form("HTTPS://Example.org:443/a/./b/../c%7e%20d"))
    'https://example.org/a/c~%20d'

    Raises:
        ValueError: it is malformed, ambiguous, of a scheme that is not supported, or holds credentials.
    """
    if any(ord(sign) <= ord(" ") or ord(sign) == _SHORTEST_UNPRINTABLE for sign in uri):
        raise ValueError("it holds blanks or control characters")
    if "\\" in uri:
        raise ValueError("it holds a backslash")
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES or not uri[len(scheme) :].startswith("://"):
        raise ValueError(f"it is not an address of {', '.join(f'{name}://' for name in _SCHEMES)}")
    if "@" in parts.netloc:
        raise ValueError("it holds credentials")
    if "#" in uri:
        raise ValueError("it holds a fragment: write `#` as %23")
    if "?" in uri and scheme in ("file", "s3"):
        raise ValueError("it holds a query: write `?` as %3F")
    names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if names & _SECRETS:
        raise ValueError("it holds credentials")
    return ExternalUri(
        scheme=scheme,
        authority=_authority(scheme, parts.netloc, parts.hostname, parts.port),
        segments=_segments(scheme, parts.path),
        has_slash=parts.path.endswith("/"),
        query=parts.query,
    )


def _authority(scheme: str, given: str, host: str | None, port: int | None) -> str:
    if scheme == "file":
        if given.lower() not in ("", "localhost"):
            raise ValueError("a file has no host: write file:///path")
        return ""
    if not host or not given.isascii() or "%" in given:
        raise ValueError("it names no host")
    if scheme == "s3":
        # The name of a bucket has no upper case.
        if port is not None or host != given:
            raise ValueError("it names no bucket")
        return host
    shown = f"[{host}]" if ":" in host else host.rstrip(".")
    return shown if port in (None, _DEFAULT_PORTS[scheme]) else f"{shown}:{port}"


def _segments(scheme: str, path: str) -> tuple[str, ...]:
    raw = path.removeprefix("/").removesuffix("/").split("/")
    if scheme != "file" and "" in raw[:-1]:
        # On a disk two slashes are one; servers may tell them apart.
        raise ValueError("its path holds an empty part")
    found: list[str] = []
    for part in map(_decoded, raw):
        if part in (".", "..") and scheme == "s3":
            raise ValueError("a key of S3 holds no `.` or `..`")
        if part == "..":
            if not found:
                raise ValueError("its path leads above the root")
            found.pop()
        elif part not in ("", "."):
            found.append(part)
    return tuple(found)


def _decoded(raw: str) -> str:
    try:
        part = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its path is not UTF-8") from None
    if any(sign in part for sign in "/\\\0"):
        raise ValueError("its path holds an encoded slash, backslash or null")
    return part


def real_parts(uri: ExternalUri) -> tuple[str, ...]:
    """The parts of a local path after its links are followed."""
    path = os.path.realpath(f"/{uri.path}")
    return tuple(path.strip("/").split("/")) if uri.segments else ()


def _is_below(uri: ExternalUri, base: ExternalUri) -> bool:
    if (uri.scheme, uri.authority) != (base.scheme, base.authority):
        return False
    if uri.scheme == "file":
        return real_parts(uri)[: len(real := real_parts(base))] == real
    return uri.segments[: len(base.segments)] == base.segments


# ---- Opening a local file that the policy allows, so that the file that was checked is the file that is read
#
# A path can change between a look at it and its opening: a part of it becomes a link. So the file is opened first,
# one part of its path after the other and none of them through a link. The path of the descriptor is then known, and
# it is that path which is held against the base. Everything is read from the descriptor.


#: A folder of which only what lies inside is opened: on systems that know it, without the right to list the folder.
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
#: What opening a link without following it gives.
_LINK_ERRORS = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextmanager
def opened_file(uri: ExternalUri) -> Iterator[int]:
    """The descriptor of the file at an allowed address.

    Raises:
        ExternalBlobPolicyError: what was opened does not lie below the base that allowed the address.
        ExternalBlobSourceError: it is not a file, or its path changed in this moment.
        OSError: it cannot be opened.
    """
    path = real_parts(uri)
    descriptor = _open_parts(uri, path)
    try:
        base = None if uri.allowed_by is None else real_parts(uri.allowed_by)
        if base is None or path[: len(base)] != base:
            raise ExternalBlobPolicyError(str(uri), "it lies below none of the allowed bases")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ExternalBlobSourceError(str(uri), "it is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_parts(uri: ExternalUri, parts: tuple[str, ...]) -> int:
    """Open a path that has no links, part by part: none that appears meanwhile is followed."""
    folder = os.open("/", _FOLDER)
    try:
        *above, name = parts or (".",)
        for part in above:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _LINK_ERRORS and real_parts(uri) != parts:
            raise ExternalBlobSourceError(str(uri), "its path changed while it was opened") from error
        raise
    finally:
        os.close(folder)


# ---- Looking at external blobs and copying them: local files, S3 and HTTP. Only allowed addresses come here
#
# Redirects are not followed and special files are not opened: both would lead to where the policy did not look.


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


def _in_parallel(work: Callable[[ExternalUri], _Result], uris: Sequence[ExternalUri]) -> list[_Result]:
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
