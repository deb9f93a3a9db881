from __future__ import annotations

from spark.conftest import spark

__all__ = ["spark"]
