"""The `omnigraph-server` executable: flags, and one process until a signal stops it."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import uvicorn

from omnigraph.client.addresses import is_loopback
from omnigraph.core.env_settings import Variable
from omnigraph.core.ids import DEFAULT_GRAPH
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.server.app import make_app
from omnigraph.server.boot import open_service
from omnigraph.server.config import ServerConfig, read_config, single_graph
from omnigraph.server.connections import ConnectionLimits, bounded
from omnigraph.server.responses import configure_logs, logger
from omnigraph.server.service import Service
from omnigraph.server.settings import ServerSettings

_log = logger(__name__)
_DEFAULT_BIND = "127.0.0.1:8080"
_BIND = Variable(
    "OMNIGRAPH_BIND",
    "The address that the server listens at, unless `--bind` gives one.",
    default=f"`{_DEFAULT_BIND}`",
    values="`HOST:PORT`",
)
_UNAUTHENTICATED = Variable(
    "OMNIGRAPH_UNAUTHENTICATED",
    "Serves without tokens, as `--unauthenticated` does: every caller may do everything.",
    default="off",
    values="`1`",
)
MAX_PORT = 65_535
#: Addresses that mean all addresses of this machine: a browser needs one of them.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SWITCH_S = 0.001
#: Also a server without any grace ends the ordinary way, if that takes no time.
_LEAST_GRACE_S = 1.0

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--store", metavar="URI", help="serve one graph")
@click.option("--graph-id", metavar="ID", help="with --store: its id; `default` is the default")
@click.option("--queries", type=_FILE, metavar="PATH", help="with --store: stored queries, a file or directory")
@click.option("--policy", type=_FILE, metavar="FILE", help="with --store: its policy")
@click.option("--config", type=_FILE, metavar="FILE", help="serve several graphs (YAML)")
@click.option("--bind", metavar="HOST:PORT", help=f"{_DEFAULT_BIND} is the default")
@click.option("--host", metavar="HOST", help="the host of --bind alone: an address or a name")
@click.option("--port", type=click.IntRange(0, MAX_PORT), metavar="PORT", help="the port of --bind alone; 0: any")
@click.option("--unauthenticated", is_flag=True, help="serve every client, without tokens")
@click.option("--require-all-graphs", is_flag=True, help="fail when a graph cannot be opened")
def serve(
    store: str | None,
    graph_id: str | None,
    queries: Path | None,
    policy: Path | None,
    config: Path | None,
    bind: str | None,
    host: str | None,
    port: int | None,
    unauthenticated: bool,
    require_all_graphs: bool,
) -> None:
    """Serve graphs over HTTP until a signal stops it; SIGHUP reads tokens and policies again."""
    # Until the server runs there is nothing to reload, and a reload must never end a process that starts.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    configure_logs()
    chosen = _config(store, graph_id, queries, policy, config)
    address = chosen_address(bind, host, port)
    settings = ServerSettings.from_environment()
    if require_all_graphs:
        settings = replace(settings, require_all_graphs=True)
    is_open = unauthenticated or _UNAUTHENTICATED.is_on()
    with listening_socket(*address) as listener, open_service(chosen, settings, unauthenticated=is_open) as service:
        if is_open and not service.is_open:
            _log.warning("there are tokens, so --unauthenticated has no effect")
        if service.is_open and is_reached_by_others(address[0]):
            _log.warning("every client that reaches this address may do everything", address=address[0])
        _run(service, listener, *address)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the server and end the process with its exit code.

    Everything is settled when the server has stopped. Taking the interpreter apart would take seconds more, in which
    nothing can end the process, and would wait for every thread that still works.
    """
    code = 0
    try:
        serve(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="omnigraph-server")
    except OmniError as error:
        sys.stderr.write(f"{error.message}\n")
        code = error.exit_code
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # reported as the interpreter would
        traceback.print_exc()
        code = 1
    # What registered for the end, such as a Spark session, still has it.
    atexit._run_exitfuncs()
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process, whatever its threads do."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of an address to listen at.

    >>> parse_bind("[::1]:0")
    ('::1', 0)

    Raises:
        BadRequestError: the text is not such an address.
    """
    host, colon, port = text.strip().rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not colon or not host or not is_number or int(port) > MAX_PORT:
        raise BadRequestError(f"{text!r} is not an address to listen at: give HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_reached_by_others(host: str) -> bool:
    """Whether other machines may reach a server at this host; a name below `localhost` may be any address of it."""
    return host.endswith(".localhost") or not is_loopback(host)


def chosen_address(bind: str | None, host: str | None, port: int | None) -> tuple[str, int]:
    """The address to listen at: that of `--bind`, or the default with another host or port."""
    if bind is not None and (host is not None or port is not None):
        raise click.BadParameter("give --bind HOST:PORT, or --host and --port")
    usual_host, usual_port = parse_bind(bind or _BIND.text(_DEFAULT_BIND))
    chosen = usual_host if host is None else host.strip().removeprefix("[").removesuffix("]")
    return chosen, usual_port if port is None else port


def _config(
    store: str | None, graph_id: str | None, queries: Path | None, policy: Path | None, config: Path | None
) -> ServerConfig:
    if (store is None) == (config is None):
        raise click.BadParameter("give one of --store URI and --config FILE")
    if store is not None:
        return single_graph(store, graph_id or DEFAULT_GRAPH, queries=queries, policy=policy)
    if queries is not None or policy is not None or graph_id is not None:
        raise click.BadParameter("--graph-id, --queries and --policy stand in the file that --config names")
    assert config is not None, "one of the two is given"
    return read_config(config)


class _AnnouncedServer(uvicorn.Server):
    """Says where it listens as soon as it does, and ends within its grace after a signal."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop: requests have half of the grace to end by themselves, then reads are cancelled."""
        if not self.should_exit:
            grace_s = max(self._service.settings.shutdown_s, _LEAST_GRACE_S)
            _after(grace_s / 2, self._service.stopping.set)
            _after(grace_s, _end_process)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit or not sockets:
            return
        host, port = sockets[0].getsockname()[:2]
        page = f"http://{_address_text(_EVERYWHERE.get(host, host), port)}/"
        graphs = list(self._service.graphs)
        api = f"{page}graphs/{graphs[0]}" if len(graphs) == 1 else f"{page}graphs"
        address = _address_text(host, port)
        # At once: whoever waits for the first line may not read the others.
        sys.stdout.write(f"OMNIGRAPH_LISTEN_ADDR={address}\npage: {page}\nAPI: {api}\n")
        sys.stdout.flush()
        _log.info("listening", address=address, page=page, api=api)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again after a clean shutdown."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _after(seconds: float, act: Callable[[], None]) -> None:
    """Act later, whatever the event loop and the main thread do then."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _end_process() -> None:
    """End, although threads still work: a write that is cut off is settled by the next start."""
    _log.error("the grace is over, requests in flight are cut off")
    _leave(1)


def listening_socket(host: str, port: int) -> socket.socket:
    """The socket to listen at; the connections that it accepts send what they have at once.

    Raises:
        BadRequestError: the address is taken, or not one of this machine.

    Without it the second part of a response waits 40 ms for the acknowledgement of the first: the event loop sees to
    that for sockets that it binds itself, not for one that it is given.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family=family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise BadRequestError(_refused(host, port, error)) from error
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _refused(host: str, port: int, error: OSError) -> str:
    address = _address_text(host, port)
    match error.errno:
        case errno.EADDRINUSE:
            return f"another process listens at {address}: end it, or choose another port with --port"
        case errno.EACCES:
            return f"this user may not listen at {address}: ports below 1024 are for root; choose another with --port"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine: choose another with --host"
    return f"cannot listen at {address}: {error.strerror or error}; choose another address with --host and --port"


def http_server(service: Service, host: str, port: int) -> uvicorn.Config:
    """Make the HTTP/1.1 server of the service, with bounded connections."""
    return uvicorn.Config(
        make_app(service),
        host=host,
        port=port,
        http=bounded(ConnectionLimits.of(service.settings)),
        ws="none",
        timeout_keep_alive=service.settings.keep_alive_s,
        timeout_graceful_shutdown=service.settings.shutdown_s,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
    )


def _run(service: Service, listener: socket.socket, host: str, port: int) -> None:
    server = _AnnouncedServer(http_server(service, host, port), service)
    try:
        # Two servers may have bound the address while neither listened.
        listener.listen(server.config.backlog)
    except OSError as error:
        raise BadRequestError(_refused(host, port, error)) from error
    _log.info(
        "serving",
        graphs=list(service.graphs),
        quarantined=list(service.quarantined),
        state="open" if service.is_open else "tokens",
    )
    # What is there now stays: collections of garbage, for which all threads wait, need not look at it again.
    gc.collect()
    gc.freeze()
    # The event loop gets the interpreter this fast, also while reads compute.
    sys.setswitchinterval(_SWITCH_S)
    try:
        server.run(sockets=[listener])
    finally:
        # Whatever ended the server: no abandoned read goes on, and none keeps the process alive.
        service.stopping.set()
    _log.info("stopped")
