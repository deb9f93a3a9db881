"""Structured logs: one JSON object per line on standard error, or readable lines on a terminal."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs(*, level: int = logging.INFO) -> None:
    """Send what this server and the libraries below it log to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
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
    # It reports the life of a session manager, which here is that of one request.
    logging.getLogger("mcp").setLevel(logging.WARNING)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module."""
    found: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return found
