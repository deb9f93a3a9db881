"""Structured logs: one JSON object per line on standard error, or readable lines on a terminal.

Loggers belong to the standard library, so that whoever embeds the application decides where they go; only the
executable configures them.
"""

from __future__ import annotations

import logging
import sys
from typing import cast

import structlog

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


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
