from __future__ import annotations

from support.spark import spark, tasks_of_tests

__all__ = ["spark", "tasks_of_tests"]
