"""What the operation that runs is called where people look for it: in Spark's UI, its history and its logs."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPERATION: ContextVar[str] = ContextVar("omnigraph_operation", default="")
_DETAIL: ContextVar[str] = ContextVar("omnigraph_detail", default="")


@contextmanager
def operation(kind: str, uri: str) -> Iterator[None]:
    """Name the operation of a block: what it does, and to which graph.

    >>> with operation("load", "/data/papers.omni"), detail("Cites"):
    ...     job_name("check relations")
    'omnigraph load papers.omni: check relations (Cites)'
    """
    token = _OPERATION.set(f"{kind} {uri.rstrip('/').rpartition('/')[2]}")
    try:
        yield
    finally:
        _OPERATION.reset(token)


@contextmanager
def detail(text: str) -> Iterator[None]:
    """Name what a stage works on inside a block."""
    token = _DETAIL.set(text)
    try:
        yield
    finally:
        _DETAIL.reset(token)


def job_name(stage: str) -> str:
    """The description of a job of the operation that runs."""
    operation_name, what = _OPERATION.get(), _DETAIL.get()
    name = f"omnigraph {operation_name}" if operation_name else "omnigraph"
    return f"{name}: {stage}" + (f" ({what})" if what else "")
