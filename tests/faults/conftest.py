from __future__ import annotations

from support.spark import spark

__all__ = ["spark"]
