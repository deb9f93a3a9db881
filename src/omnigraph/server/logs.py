"""Structured logs: one JSON object per line on standard error, or readable lines on a terminal.

Loggers belong to the standard library, so that whoever embeds the application decides where they go; only the
executable configures them.
"""

from __future__ import annotations

import logging
import sys
from typing import cast

import structlog

from omnigraph.printable import one_line, printable

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)

#: Members that have several lines.
_LONG = ("exception", "stack")


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module: takes an event and its facts."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", wrapped)


def _without_control(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Entries that no terminal obeys, and that stay on their line: paths and names are untrusted."""
    return {
        name: (printable if name in _LONG else one_line)(value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def configure_logs(*, level: int = logging.INFO) -> None:
    """Send what the server and the libraries below it log to standard error."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _without_control,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # What they tell at INFO is told here with more facts, or is about one request.
    for name in ("uvicorn", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)
