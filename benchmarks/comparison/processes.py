"""Ending the worker processes of a comparison."""

from __future__ import annotations

import subprocess

_STOP_TIMEOUT_S = 10.0


def stop_worker(process: subprocess.Popen[str]) -> None:
    """End a worker: it stops when its input ends, or is killed."""
    assert process.stdin is not None, "opened with a pipe"
    process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
