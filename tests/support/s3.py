"""An S3 server on the loopback address, and a graph root that is local in one run and on S3 in the other.

The server lives as long as the session; the variables that point to it last for one test of this folder, so that no
other test sees them. Every bucket name is used with one endpoint only: Lance keeps object stores by address.
"""

from __future__ import annotations

import itertools
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from omnigraph.core import failpoints

_numbers = itertools.count(1)


class S3Server:
    """The S3 of moto on a free port, without its search for the service that a request means: it takes longer."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        app = create_backend_app("s3")
        self._server = make_server(
            "127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler
        )
        # It looks that often whether it has to end.
        serve = partial(self._server.serve_forever, poll_interval=0.01)
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def create_bucket(endpoint: str, name: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def point_to(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Let Lance and obstore talk to an endpoint, with invented credentials."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """One server for all tests of the folder."""
    server = S3Server()
    yield server.endpoint
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An unused root on S3, in a bucket of its own: the server looks at every key of a bucket that it lists."""
    point_to(monkeypatch, s3_endpoint)
    bucket = f"graphs-{next(_numbers)}"
    create_bucket(s3_endpoint, bucket)
    return f"s3://{bucket}/graph.omni"


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An unused root, on disk and on S3."""
    if request.param == "local":
        return str(tmp_path / "graph.omni")
    found: str = request.getfixturevalue("s3_root")
    return found


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Make one place fail, or none."""

    def arrange(instruction: str | None) -> None:
        failpoints.reset()
        if instruction is None:
            monkeypatch.delenv(failpoints.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(failpoints.VARIABLE, f"{instruction}=raise")

    yield arrange
    failpoints.reset()
