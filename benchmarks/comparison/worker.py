"""A peer in its own environment: `python -m comparison.worker ladybug DATA STORE`, driven by `session.WorkerSession`.

Reads one request per line and answers each with one line; ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from comparison.session import LocalSession


def main() -> None:
    name, data, store = sys.argv[1:]
    # What libraries print must not end up between the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**body: object) -> None:
        print(json.dumps(body), file=replies, flush=True)

    session = LocalSession(name, Path(data), Path(store))
    reply(result={"version": session.version, "build_s": session.build_s, "workloads": sorted(session.workloads)})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = getattr(session, request["method"])(**request["arguments"])
        except Exception as error:  # noqa: BLE001 - the edge of the process: the driver shows it
            reply(error=f"{type(error).__name__}: {error}")
        else:
            reply(result=result)


if __name__ == "__main__":
    main()
