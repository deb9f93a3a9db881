from __future__ import annotations

from support.s3 import fail_at, root, s3_endpoint, s3_root

__all__ = ["fail_at", "root", "s3_endpoint", "s3_root"]
