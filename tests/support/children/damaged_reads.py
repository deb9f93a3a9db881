"""Damages copies of a graph, one after the other, and tells what verifying and reading them gave.

A process of its own: damaged files may end it. `start` says where to go on after that.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from omnigraph import Graph
from omnigraph.errors import OmniError
from omnigraph.maintenance import verify
from support.damaged_graphs import InThisProcess, ask_one, harm, questions

_ADDRESS_SPACE = 12 << 30


def attempt(work: Any) -> list[object]:
    try:
        return ["answer", work()]
    except OmniError as error:
        return ["typed", f"{type(error).__name__}: {error}"]
    except BaseException as error:  # noqa: BLE001  # what must not happen is what this looks for
        return ["untyped", f"{type(error).__module__}.{type(error).__name__}: {error}"]


def run_case(source: Path, copy: Path, case: dict[str, Any]) -> dict[str, object]:
    random = Random(case["seed"])
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    names = [copy / name for name in case["names"]]
    changed = harm(copy / case["file"], case["kind"], random, names)
    result: dict[str, object] = {"changed": changed}
    if not changed:
        return result
    result["verify"] = attempt(lambda: [str(item) for item in Graph.verify_at(copy).problems])
    result["doctor"] = attempt(lambda: Graph.examine(copy).is_healthy)
    opened: list[Graph] = []
    result["open"] = attempt(lambda: opened.append(Graph.open(copy)))
    if opened:
        for question in questions():
            result[question] = attempt(partial(ask_one, opened[0], question))
        opened[0].close()
    return result


def main(plan: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, resource.RLIM_INFINITY))
    verify.AsideReader = InThisProcess  # type: ignore[misc,assignment]
    body = json.loads(Path(plan).read_text(encoding="utf-8"))
    for number in range(body["start"], len(body["cases"])):
        case = body["cases"][number] | {"names": body["names"]}
        copy = Path(body["folder"]) / f"case{number}" / "g.omni"
        print(json.dumps([number, run_case(Path(body["source"]), copy, case)]), flush=True)
        shutil.rmtree(copy.parent, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
