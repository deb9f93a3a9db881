"""What bulk writes leave behind when they fail: forks that they made for nothing, and files of tasks that died."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from omnigraph.budget import finishing
from omnigraph.errors import (
    OmniError,
    QueryCancelledError,
    QueryTimeoutError,
    SparkError,
    StorageError,
)
from omnigraph.recovery.forks import remove_unpublished_forks
from omnigraph.recovery.reclaim import reclaim_staged_files, staged_max_age_s

if TYPE_CHECKING:
    from collections.abc import Collection

    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.tables import Table

_log = logging.getLogger(__name__)
#: Failures on purpose that end tasks wherever they are.
_STOPPED = (SparkError, StorageError, QueryCancelledError, QueryTimeoutError)


def may_leave_files(error: BaseException) -> bool:
    """Whether files may be left that nothing refers to: data that is refused leaves none, a task that ended may."""
    return isinstance(error, _STOPPED) or not isinstance(error, OmniError)


#: Failures that do not tell by themselves whether the work had an effect.
UNCLEAR = (SparkError, StorageError, KeyboardInterrupt)


def unharmed(error: BaseException, promise: str) -> BaseException:
    """The failure of work that had no effect, which says so; only the operation knows whether that is true."""
    if isinstance(error, SparkError):
        return SparkError(f"{error.message}; {promise}")
    if type(error) is StorageError:
        return StorageError(f"{error.message}; {promise}", error.failure)
    error.add_note(promise)
    return error


def tidy_up(
    environment: GraphEnvironment, forks: Collection[Table], *, has_unknown_files: bool
) -> None:
    """Remove forks that nothing refers to, and files that nobody knows; what stays is reclaimed by cleanup."""
    with finishing():
        try:
            if has_unknown_files:
                heads = environment.manifest.state().heads.values()
                paths = {pin.location for head in heads for pin in head.pins.values()}
                reclaim_staged_files(environment, sorted(paths), staged_max_age_s())
        except OmniError as error:
            _log.warning("staged files stay until cleanup: %s", error)
        if forks:
            remove_unpublished_forks(environment, forks)
