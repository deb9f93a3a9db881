"""Whether the master of a standalone cluster answers: Spark itself finds out after a minute, and does not say so."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from omnigraph.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Iterator


_SCHEME = "spark://"
_TIMEOUT_S = 5.0


def check_master(master: str) -> None:
    """Make sure that somebody listens at a standalone master. Other kinds of masters are not asked.

    Of several masters one is enough: the others are on standby. Opens one connection per address.

    Raises:
        SparkError: nobody listens at any address.
    """
    if not master.startswith(_SCHEME):
        return
    reasons = []
    for host, port in addresses(master):
        try:
            with socket.create_connection((host, port), timeout=_TIMEOUT_S):
                return
        except OSError as error:
            reasons.append(f"{host}:{port} {error.strerror or error}")
    if reasons:
        raise SparkError(
            f"no Spark master answers at {master} ({'; '.join(reasons)}): check OMNIGRAPH_SPARK_MASTER, and that the "
            "master runs"
        )


def addresses(master: str) -> Iterator[tuple[str, int]]:
    """The hosts and ports of a standalone master. What is no address is left to Spark to refuse.

    >>> list(addresses("spark://one:7077,two:7078,three"))
    [('one', 7077), ('two', 7078)]
    """
    for part in master.removeprefix(_SCHEME).split(","):
        host, _, port = part.strip().rpartition(":")
        if host and port.isascii() and port.isdigit() and int(port) < 65536:
            yield host.strip("[]"), int(port)
