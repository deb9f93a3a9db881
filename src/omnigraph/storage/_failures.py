"""Foreign exceptions → our errors, classified by type and by the codes of the S3 protocol, never by message."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import obstore.exceptions as obstore_errors
import pyarrow as pa

from omnigraph.errors import DamageError, OmniError, StorageError, StorageFailure, is_panic
from omnigraph.storage.store_variables import REGION, store_endpoint, store_region

#: What reading stored bytes raises when they do not mean what was written. A TypeError or an AttributeError is none of
#: it: these say that a program is wrong, and sending its user to look for damage would hide that.
_UNREADABLE = (ValueError, LookupError, ArithmeticError, EOFError, struct.error, pa.ArrowException)

_PERHAPS_DAMAGED = "if it happens again, `omnigraph verify` tells whether a file is damaged"
_BY_ERRNO = {
    errno.ENOSPC: StorageFailure.CONFIGURATION,
    errno.EDQUOT: StorageFailure.CONFIGURATION,
    errno.EROFS: StorageFailure.CONFIGURATION,
    errno.EACCES: StorageFailure.CONFIGURATION,
    errno.EPERM: StorageFailure.CONFIGURATION,
    errno.ETIMEDOUT: StorageFailure.TRANSIENT,
    errno.ECONNRESET: StorageFailure.TRANSIENT,
    errno.ENOENT: StorageFailure.NOT_FOUND,
}


_FULL = (errno.ENOSPC, errno.EDQUOT)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
#: What obstore and Lance say instead of the code of a redirect that they cannot follow.
_REDIRECT = "redirect without LOCATION"
_DENIED = (
    "the store denies access: the credentials need s3:ListBucket on the bucket, s3:GetObject on the graph, and for "
    "writing s3:PutObject and s3:DeleteObject"
)
_REFUSED = "the store refuses the credentials: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
_ELSEWHERE = "the bucket lies in another region: set AWS_REGION to its region"
_NO_CREDENTIALS = (
    "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine has a role"
)
_PLAIN_HTTP = "the endpoint begins with http://: set AWS_ALLOW_HTTP=true to allow that"
_CLOCK = "the clock of this machine differs from that of the store by more than 15 minutes: set it"
_OVERLOADED = "the store is overloaded: try again"
#: What the libraries say before any request reaches the store: they look for a role of the machine, or refuse http.
_BEFORE_THE_STORE = (
    (
        re.compile(r"169\.254\.169\.254|169\.254\.170\.2|NoCredentials|no providers in chain", re.IGNORECASE),
        _NO_CREDENTIALS,
    ),
    (re.compile(r"http://\S+.*builder error", re.DOTALL), _PLAIN_HTTP),
)
#: The codes are part of the protocol of S3, other than the texts beside them.
_CODES: dict[str | None, tuple[StorageFailure, str]] = {
    "NoSuchBucket": (
        StorageFailure.CONFIGURATION,
        "the bucket does not exist: create it, or correct the address of the graph",
    ),
    "AccessDenied": (StorageFailure.CONFIGURATION, _DENIED),
    "AllAccessDisabled": (StorageFailure.CONFIGURATION, _DENIED),
    "InvalidAccessKeyId": (StorageFailure.CONFIGURATION, _REFUSED),
    "SignatureDoesNotMatch": (StorageFailure.CONFIGURATION, _REFUSED),
    "InvalidBucketName": (StorageFailure.CONFIGURATION, "this is not the name of a bucket: correct the address"),
    "RequestTimeTooSkewed": (StorageFailure.CONFIGURATION, _CLOCK),
    "InvalidToken": (StorageFailure.CONFIGURATION, _REFUSED),
    "ExpiredToken": (StorageFailure.CONFIGURATION, _REFUSED),
    "PermanentRedirect": (StorageFailure.CONFIGURATION, _ELSEWHERE),
    "TemporaryRedirect": (StorageFailure.CONFIGURATION, _ELSEWHERE),
    "AuthorizationHeaderMalformed": (StorageFailure.CONFIGURATION, _ELSEWHERE),
    "IllegalLocationConstraintException": (StorageFailure.CONFIGURATION, _ELSEWHERE),
    "SlowDown": (StorageFailure.TRANSIENT, _OVERLOADED),
    "ServiceUnavailable": (StorageFailure.TRANSIENT, _OVERLOADED),
    "InternalError": (StorageFailure.TRANSIENT, _OVERLOADED),
    "RequestTimeout": (StorageFailure.TRANSIENT, _OVERLOADED),
}
_NOISE = re.compile(r"LanceError\(\w+\): |, \S+\.rs:\d+:\d+|<\?xml.*")


def classify(error: BaseException) -> StorageFailure:
    """What is known about why a storage call failed."""
    code = store_code(error)
    if code in _CODES:
        return _CODES[code][0]
    if _before_the_store(error) is not None:
        return StorageFailure.CONFIGURATION
    if _error_number(error) in _FULL:
        return StorageFailure.CONFIGURATION
    match error:
        case FileNotFoundError() | obstore_errors.NotFoundError():
            return StorageFailure.NOT_FOUND
        case PermissionError() | obstore_errors.PermissionDeniedError():
            return StorageFailure.CONFIGURATION
        case obstore_errors.UnauthenticatedError() | obstore_errors.NotSupportedError():
            return StorageFailure.CONFIGURATION
        case NotImplementedError() | obstore_errors.UnknownConfigurationKeyError():
            return StorageFailure.CONFIGURATION
        case obstore_errors.AlreadyExistsError() | obstore_errors.PreconditionError():
            return StorageFailure.PRECONDITION
        case TimeoutError() | ConnectionError():
            return StorageFailure.TRANSIENT
        case OSError():
            return _BY_ERRNO.get(error.errno or 0, StorageFailure.UNKNOWN)
    return StorageFailure.UNKNOWN


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the failures of Lance, Arrow and obstore into `StorageError`; our own errors pass.

    A panic and a value that cannot be become `DamageError`: with files as their writers left them there is none.
    Mistakes of the program stay what they are.
    """
    try:
        yield
    except OmniError:
        raise
    except (OSError, RuntimeError, obstore_errors.BaseError) as error:
        failure = classify(error)
        message = f"{what} failed: {readable(error)}"
        if failure is StorageFailure.UNKNOWN:
            message += f"; {_PERHAPS_DAMAGED}"
        raise StorageError(message, failure) from error
    except MemoryError as error:
        # Of Python or Arrow. A damaged length asks for too much, but a machine can also be short of memory.
        message = f"{what} failed: there is not enough memory ({readable(error)})"
        raise StorageError(f"{message}; {_PERHAPS_DAMAGED}", StorageFailure.UNKNOWN) from error
    except _UNREADABLE as error:
        if store_code(error) in _CODES:
            raise StorageError(f"{what} failed: {readable(error)}", classify(error)) from error
        raise DamageError(what, readable(error)) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise DamageError(what, readable(error)) from error


def without_advice(error: OmniError) -> str:
    """What failed and why, for a report that ends with advice of its own."""
    if isinstance(error, DamageError):
        return f"{error.what} failed: {error.reason}"
    return error.message.removesuffix(f"; {_PERHAPS_DAMAGED}")


def readable(error: BaseException) -> str:
    """What a foreign failure means and what to do, where that is known; else the first line of its message.

    Without places in Rust sources and the markup of a server.
    """
    code = store_code(error)
    if code in _CODES:
        return f"{_CODES[code][1]} ({code} from {_store_asked()})"
    if (advice := _before_the_store(error)) is not None:
        return f"{advice}; asked was {_store_asked()}"
    if isinstance(error, PermissionError | obstore_errors.PermissionDeniedError) and ("Server returned" in str(error)):
        return f"{_DENIED} (403 from {_store_asked()})"
    first_line = (str(error).strip() or repr(error)).splitlines()[0]
    said = _NOISE.sub("", first_line).strip(" :,")
    return f"{said}; free some space on the disk" if _error_number(error) in _FULL else said


def _before_the_store(error: BaseException) -> str | None:
    """Why a request did not reach the store, where the libraries tell it in their texts only."""
    text = str(error)
    return next((advice for pattern, advice in _BEFORE_THE_STORE if pattern.search(text)), None)


def _store_asked() -> str:
    """The store that requests go to: its endpoint and region."""
    asked, place = store_endpoint() or "the S3 of AWS", store_region()
    return f"{asked}, {f'region {place}' if place else f'{REGION} is not set'}"


def _error_number(error: BaseException) -> int | None:
    """The number by which the operating system names a failure; Lance and obstore tell it in their texts."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return None if found is None else int(found[1])


def store_code(error: BaseException) -> str | None:
    """The code by which an S3 store names a failure, out of the body of its answer."""
    text = str(error)
    found = _CODE.search(text)
    if found is None and _REDIRECT in text:
        return "PermanentRedirect"
    return None if found is None else found[1]
