"""A process for reads that may end it: damaged files can make foreign code abort, and no exception tells of that.

The parent sends one request per line and gets one answer per line. A process that ends instead of answering is the
answer too; the next request gets a new process.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from omnigraph.errors import DamageError, OmniError, StorageError, is_panic
from omnigraph.storage.location import GraphLocation

#: Address space of the process: a size that damage made up fails here, and not by taking all memory of the machine.
_ADDRESS_SPACE = 32 << 30


class AsideReader:
    """Runs reads in a process of its own. Not thread-safe; ends its process when the block ends."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> AsideReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # What was not sent any more stays unsent.
                with suppress(OSError):
                    stream.close()

    def ask(self, operation: str, **arguments: object) -> Any:
        """The answer to one request.

        Raises:
            StorageError: the read failed.
            DamageError: the read ended its process.
        """
        process = self._running()
        assert process.stdin is not None, "made with a pipe"
        assert process.stdout is not None, "made with a pipe"
        request = {"operation": operation, "arguments": arguments}
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line.endswith("\n"):
            reason = _end_of(process)
            self._end()
            raise DamageError(_named(operation, arguments), reason)
        answer = json.loads(line)
        if "error" in answer:
            raise StorageError(answer["error"])
        return answer["value"]

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "omnigraph.maintenance.reading_aside", self._uri],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Panics of foreign code write there; the answer tells what failed.
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._process


def _named(operation: str, arguments: dict[str, object]) -> str:
    places = (str(value) for value in arguments.values() if value is not None)
    return f"reading the {operation} {' '.join(places)}"


def _end_of(process: subprocess.Popen[str]) -> str:
    code = process.wait()
    if code < 0:
        return f"the reading process was ended by {signal.Signals(-code).name}"
    return f"the reading process ended with {code}"


# ---- inside the process


def _operations(location: GraphLocation) -> dict[str, Callable[..., object]]:
    from omnigraph.commit.environment import open_environment
    from omnigraph.storage.datasets.completeness import decode_file, decode_fragment, read_contents

    def read_manifest() -> None:
        manifest = open_environment(location, durable=False).manifest
        manifest.state()
        manifest.history()

    return {
        "manifest": read_manifest,
        "version": partial(read_contents, location),
        "fragment": partial(decode_fragment, location),
        "file": partial(decode_file, location),
    }


def _serve(uri: str) -> None:
    from omnigraph.storage._failures import without_advice
    from omnigraph.storage.location import parse_location

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > _ADDRESS_SPACE:
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, hard))
    operations = _operations(parse_location(uri))
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, object]
        try:
            answer = {"value": operations[request["operation"]](**request["arguments"])}
        except OmniError as error:
            answer = {"error": without_advice(error)}
        except BaseException as error:
            # The edge of the process: whatever a read raises is its answer.
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
