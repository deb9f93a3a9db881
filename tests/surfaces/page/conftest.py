from __future__ import annotations

from surfaces.server.conftest import pristine, reader, shared_uri

__all__ = ["pristine", "reader", "shared_uri"]
