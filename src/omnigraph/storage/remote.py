"""How long an object store may take, and whether it is there at all.

Lance and obstore try a request again and again, and a store that does not answer makes one open take minutes. So the
first use of an endpoint asks it once, plainly, and what is wrong is said at once. Both libraries read their time limits
from variables, which are set here from those of this project.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import urllib.request
from datetime import timedelta
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.store import from_url

from omnigraph.environ import duration_s, whole_number
from omnigraph.errors import StorageError, StorageFailure

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

    from omnigraph.storage.location import GraphLocation

#: How long one request may take.
REQUEST_TIMEOUT = "OMNIGRAPH_STORAGE_TIMEOUT"
#: How long an endpoint may take to accept a connection, and to answer the first question.
CONNECT_TIMEOUT = "OMNIGRAPH_STORAGE_CONNECT_TIMEOUT"
#: How often a request is sent again that failed for a reason that may pass.
RETRIES = "OMNIGRAPH_STORAGE_RETRIES"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

#: Variables that decide what a store is and how it is asked.
_SETTINGS = ("AWS_", "OMNIGRAPH_STORAGE_")
#: Options of connections that obstore reads from variables with `AWS_` before their names.
_CONNECTION = (
    "allow_http",
    "allow_invalid_certificates",
    "http1_only",
    "http2_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
    "randomize_addresses",
    "user_agent",
)
#: Stores that are kept with their connections: one for every graph, table and fork in use.
_KEPT_STORES = 128
#: The pauses between tries of one request grow up to this: a writer that holds the commit lock lets others wait.
_LONGEST_PAUSE = timedelta(seconds=1)
_FIRST_PAUSE = timedelta(milliseconds=50)

_lock = Lock()
_answered: set[str] = set()


def open_store(location: GraphLocation, request_limit_s: float | None = None) -> Backend:
    """The object store of a remote graph, with the time limits of this process.

    With `request_limit_s` a request is given up after that time if this is shorter, and not sent again then.

    Raises:
        StorageError: its endpoint does not answer.
    """
    check_answers(location)
    settings = (item for item in os.environ.items() if item[0].startswith(_SETTINGS))
    return _connected(location.uri, tuple(sorted(settings)), request_limit_s)


@lru_cache(maxsize=_KEPT_STORES)
def _connected(
    uri: str, settings: tuple[tuple[str, str], ...], request_limit_s: float | None
) -> Backend:
    """A store with its connections, which the next one at the same address uses again; `settings` tell them apart."""
    del settings
    timeout_s = duration_s(REQUEST_TIMEOUT, "30s")
    retry: Any = {
        "max_retries": whole_number(RETRIES, 5, highest=100),
        "retry_timeout": timedelta(seconds=2 * timeout_s),
        "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
    }
    if request_limit_s is None or request_limit_s >= timeout_s:
        return from_url(uri, retry_config=retry)
    limit = timedelta(seconds=request_limit_s)
    # Given options replace all options of the environment, so those that name a connection are given too.
    found = {name: os.environ.get(f"AWS_{name.upper()}") for name in _CONNECTION}
    options: Any = {name: value for name, value in found.items() if value is not None}
    options |= {"timeout": limit, "connect_timeout": limit}
    return from_url(uri, client_options=options, retry_config=retry | {"retry_timeout": limit})


@cache
def set_limits() -> None:
    """Give Lance and obstore the time limits: both read them from the variables of the process."""
    os.environ.setdefault("AWS_TIMEOUT", f"{duration_s(REQUEST_TIMEOUT, '30s'):.0f}s")
    os.environ.setdefault("AWS_CONNECT_TIMEOUT", f"{duration_s(CONNECT_TIMEOUT, '10s'):.0f}s")


def check_answers(location: GraphLocation) -> None:
    """Make sure that the endpoint of a remote graph answers; asks it once per process.

    Raises:
        StorageError: `TRANSIENT`, with what to do about it.
    """
    set_limits()
    endpoint = _endpoint()
    if endpoint is None:
        # The store of the cloud itself: its names depend on the bucket and the region.
        return
    with _lock:
        if endpoint in _answered:
            return
    problem = why_silent(endpoint)
    if problem is not None:
        raise StorageError(f"{location} cannot be reached: {problem}", StorageFailure.TRANSIENT)
    with _lock:
        _answered.add(endpoint)


def explain_silence() -> str | None:
    """Why requests to the endpoint in use fail, if that can be told; None when it answers."""
    endpoint = _endpoint()
    return None if endpoint is None else why_silent(endpoint)


def why_silent(endpoint: str) -> str | None:
    """Why an endpoint does not answer; None when it does, or when only a proxy can reach it."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if urllib.request.getproxies().get(parts.scheme) and not urllib.request.proxy_bypass(host):
        return None
    limit_s = duration_s(CONNECT_TIMEOUT, "10s")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=limit_s)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    except ssl.SSLError:
        # Which certificates are trusted is for the libraries to say.
        return None
    except TimeoutError:
        return (
            f"{endpoint} did not answer within {limit_s:g} s; check that the store runs, or set {CONNECT_TIMEOUT} "
            "to a longer time"
        )
    except ConnectionRefusedError:
        return f"{endpoint} refuses connections; check that the store runs, and AWS_ENDPOINT_URL"
    except socket.gaierror:
        return f"the name {host!r} is not known; check AWS_ENDPOINT_URL"
    except http.client.HTTPException:
        # Something answers, if not well.
        return None
    except OSError as error:
        return f"{endpoint} cannot be reached: {error.strerror or error}"
    finally:
        connection.close()
    return None


def _endpoint() -> str | None:
    return next((value for name in _ENDPOINTS if (value := os.environ.get(name))), None)
