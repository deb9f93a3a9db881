"""Bulk work: load, export, compaction and index builds, on Spark executors or in this process.

Owns: reading of sources, shaping and checking of records, the tasks that read and write fragments, the joins behind
rules between rows, progress. Never commits: it hands staged writes to the commit protocol. Only Arrow, plain values and
JSON messages cross to executors. Start reading at `load`, then `staging`, `shaping` and `relations`.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports

if TYPE_CHECKING:
    from omnigraph.pipeline.load import LoadJob
    from omnigraph.pipeline.plan import Grammar, LoadMode
    from omnigraph.pipeline.progress import Progress, Silent, StageProgress
    from omnigraph.pipeline.workers import LocalWorkers, Workers

__all__ = [
    "Grammar",
    "LoadJob",
    "LoadMode",
    "LocalWorkers",
    "Progress",
    "Silent",
    "StageProgress",
    "Workers",
]

__getattr__ = late_exports(
    __name__,
    {
        "LoadJob": "load",
        "Grammar": "plan",
        "LoadMode": "plan",
        "Progress": "progress",
        "Silent": "progress",
        "StageProgress": "progress",
        "LocalWorkers": "workers",
        "Workers": "workers",
    },
)
