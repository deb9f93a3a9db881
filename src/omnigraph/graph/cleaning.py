"""Cleaning up a graph: what a caller means by a policy, and the floor below which nobody may go."""

from __future__ import annotations

from datetime import timedelta

from omnigraph.environ import parse_duration_s
from omnigraph.errors import BadRequestError
from omnigraph.manifest.retention import RetentionPolicy
from omnigraph.recovery.cleanup import CleanupCall

#: Commits of every branch that stay whatever is asked for: what an operator needs to look at after a mishap.
KEEP_FLOOR = 3
#: What is advised.
KEEP_ADVISED = 10
#: More than any history has; the machine counts no further.
_KEEP_MOST = 2**62

_MICROSECOND = timedelta(microseconds=1)


def cleanup_call(
    keep: int | None, older_than: str | timedelta | None, *, commits: bool, confirm: bool
) -> CleanupCall:
    """One cleanup, checked.

    Raises:
        BadRequestError: there is no policy, or one that makes no sense.
    """
    if keep is None and older_than is None:
        raise BadRequestError(
            f"say what stays: the newest commits of every branch (`--keep`, {KEEP_ADVISED} is a good number), those of "
            "some time (`--older-than`, such as 7d), or both"
        )
    notes = []
    if keep is not None and (type(keep) is not int or not 1 <= keep <= _KEEP_MOST):
        raise BadRequestError(f"keep is a number of commits, {KEEP_FLOOR} or more, not {keep!r}")
    if keep is not None and keep < KEEP_FLOOR:
        notes.append(f"keep was raised from {keep} to {KEEP_FLOOR}: {KEEP_ADVISED} is advised")
        keep = KEEP_FLOOR
    age_us = None if older_than is None else _age(older_than) // _MICROSECOND
    return CleanupCall(
        policy=RetentionPolicy(keep=keep, age_us=age_us),
        forget_commits=commits,
        preview=not confirm,
        notes=tuple(notes),
    )


def _age(older_than: str | timedelta) -> timedelta:
    if isinstance(older_than, timedelta):
        age = older_than
    else:
        try:
            age = timedelta(seconds=parse_duration_s(older_than))
        except (ValueError, OverflowError) as error:
            raise BadRequestError(
                f"{older_than!r} is not a duration such as 45s, 30m, 12h, 7d or 2w"
            ) from error
    if age < timedelta(0):
        raise BadRequestError("older_than is a time that has passed: it is not negative")
    return age
