"""A process that runs jobs: one JSON request per line in, one JSON answer per line out."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.races.jobs import run_job


def main() -> None:
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"outcomes": run_job(**request)}
        except Exception:  # noqa: BLE001 - the parent reports it
            answer = {"failure": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
