"""Foreign exceptions → our errors, classified by type and never by message."""

from __future__ import annotations

import errno
import re
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore.exceptions as obstore_errors
import pyarrow as pa

from omnigraph.errors import DamageError, OmniError, StorageError, StorageFailure, is_panic

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What reading stored bytes raises when they do not mean what was written.
_UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    MemoryError,
    EOFError,
    struct.error,
    pa.ArrowException,
)

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


_NOISE = re.compile(r"LanceError\(\w+\): |, \S+\.rs:\d+:\d+|<\?xml.*")


def classify(error: BaseException) -> StorageFailure:
    """What is known about why a storage call failed."""
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
    """
    try:
        yield
    except OmniError:
        raise
    except (OSError, RuntimeError, obstore_errors.BaseError) as error:
        failure = classify(error)
        message = f"{what} failed: {readable(error)}"
        if failure is StorageFailure.UNKNOWN:
            message += "; if it happens again, `omnigraph verify` tells whether a file is damaged"
        raise StorageError(message, failure) from error
    except _UNREADABLE as error:
        raise DamageError(what, readable(error)) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise DamageError(what, readable(error)) from error


def readable(error: BaseException) -> str:
    """The first line of a foreign message, without places in Rust sources and the markup of a server."""
    first_line = (str(error).strip() or repr(error)).splitlines()[0]
    return _NOISE.sub("", first_line).strip(" :,")
