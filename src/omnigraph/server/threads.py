"""Threads for work that would hold up the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from omnigraph.errors import InternalError, is_panic

if TYPE_CHECKING:
    from collections.abc import Callable

_Outcome = TypeVar("_Outcome")


async def run_in_thread(
    work: Callable[..., _Outcome], *arguments: Any, limiter: anyio.CapacityLimiter
) -> _Outcome:
    """What work gives that runs in a thread.

    Raises:
        InternalError: an extension module gave up. The loop would take that for the end of the process.
    """
    return await anyio.to_thread.run_sync(_contained, work, arguments, limiter=limiter)


def _contained(work: Callable[..., _Outcome], arguments: tuple[Any, ...]) -> _Outcome:
    try:
        return work(*arguments)
    except BaseException as error:
        if is_panic(error):
            raise InternalError(f"an extension module gave up: {error}") from error
        raise
