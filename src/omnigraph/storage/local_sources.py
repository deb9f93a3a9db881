"""Opening a local file that the policy allows, so that the file that was checked is the file that is read.

A path can change between a look at it and its opening: a part of it becomes a link. So the file is opened first, one
part of its path after the other and none of them through a link. The path of the descriptor is then known, and it is
that path which is held against the base. Everything is read from the descriptor.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import ExternalBlobPolicyError, ExternalBlobSourceError
from omnigraph.storage.external_policy import real_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.storage.external_policy import ExternalUri

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
            raise ExternalBlobSourceError(
                str(uri), "its path changed while it was opened"
            ) from error
        raise
    finally:
        os.close(folder)
