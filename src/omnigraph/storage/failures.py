"""Foreign exceptions → our errors, classified by type and never by message."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore.exceptions as obstore_errors

from omnigraph.errors import OmniError, StorageError, StorageFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Turn the failures of Lance, Arrow and obstore into `StorageError`; our own errors pass."""
    try:
        yield
    except OmniError:
        raise
    except (OSError, ValueError, RuntimeError, obstore_errors.BaseError) as error:
        raise StorageError(f"{what} failed: {readable(error)}", classify(error)) from error


def readable(error: BaseException) -> str:
    """The first line of a foreign message, without places in Rust sources and the markup of a server."""
    first_line = (str(error).strip() or repr(error)).splitlines()[0]
    return _NOISE.sub("", first_line).strip(" :,")
