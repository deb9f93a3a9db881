"""SIGHUP: tokens and policies are read again, all of them or none, while requests go on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import OmniError
from omnigraph.server.boot import read_authority
from omnigraph.server.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.server.boot import FreshAuthority
    from omnigraph.server.service import Service

_log = logger(__name__)


@contextmanager
def install_reload(service: Service) -> Iterator[None]:
    """Reload at SIGHUP while the server runs; only a process that owns its signals can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, reload, service))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def reload(service: Service) -> bool:
    """Read tokens and policies again. What cannot be read changes nothing; says whether it worked."""
    # One after the other: otherwise what was read first could be put in place last.
    with service.reloading:
        try:
            fresh = read_authority(service.config, os.environ, is_open=service.is_open)
        except OmniError as problem:
            _log.error("reload refused, nothing changed", reason=problem.message)
        except Exception:  # noqa: BLE001  # nobody waits for this thread: what it does not tell is never known
            _log.exception("reload failed, nothing changed")
        else:
            _replace(service, fresh)
            service.metrics.reloads.labels("done").inc()
            return True
    service.metrics.reloads.labels("refused").inc()
    return False


def _replace(service: Service, fresh: FreshAuthority) -> None:
    for graph_id, served in service.graphs.items():
        if served.gate is not None:
            served.gate.replace(fresh.policies[graph_id])
    gate = service.authority.server_gate
    if gate is not None and fresh.server_policy is not None:
        gate.replace(fresh.server_policy)
    service.authority.tokens = fresh.tokens
    _log.info("tokens and policy reloaded", actors=0 if fresh.tokens is None else len(fresh.tokens))
