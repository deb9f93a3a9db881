"""Which external blobs a writer may refer to or copy: an allow-list of bases, empty by default.

Addresses are compared in one normal form, decoded, without dots and at the border of a path segment, so that no other
spelling of an address gets around the list. A local path is compared after its symbolic links are followed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from omnigraph.errors import BadRequestError, ExternalBlobPolicyError, ResourceLimitError

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
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
            raise BadRequestError(
                f"an external base is not allowed to look like this: {problem}"
            ) from problem
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
        raise ValueError(f"it is no address of {', '.join(f'{name}://' for name in _SCHEMES)}")
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
        raise ValueError("its path is no UTF-8") from None
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
