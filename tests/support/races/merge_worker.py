"""As `worker.py`, for races of merges."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.races import merge_jobs, worker

if __name__ == "__main__":
    worker.run_job = merge_jobs.run_job
    worker.main()
