"""A peer in its own environment: `python -m histories.worker doltlite`, driven by `session.WorkerSession`.

Reads one request per line and answers each with one line; ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys

from histories.session import LocalSession


def main(system: str) -> None:
    # What libraries print must not end up between the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = LocalSession(system)
    for line in sys.stdin:
        body = json.loads(line)
        try:
            reply = {"result": getattr(session, body["request"])(**body["arguments"])}
        except Exception as error:  # noqa: BLE001 - the edge of the process: the driver shows it
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
    session.close()


if __name__ == "__main__":
    main(sys.argv[1])
