"""A process that writes to a graph until it is told to end, and says what was acknowledged, line by line."""

from __future__ import annotations

import sys

from omnigraph.errors import ConflictError, OmniError, RecoveryRequiredError, StorageError
from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_CITING


def main(uri: str, who: str, writes: int) -> None:
    graph = Graph.open(uri)
    for number in range(writes):
        doi = f"{who}{number}"
        print(f"begin {doi}", flush=True)
        try:
            done = graph.mutate(ADD_CITING, {"doi": doi, "to": "a"}).commit is not None
        except RecoveryRequiredError:
            print(f"unknown {doi}", flush=True)
            continue
        except (ConflictError, StorageError):
            done = False
        except OmniError as error:
            print(f"failed {doi} {type(error).__name__}: {error}", flush=True)
            continue
        print(f"{'done' if done else 'refused'} {doi}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
