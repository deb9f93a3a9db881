"""Responses in the forms that all routes share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.responses import Response

from omnigraph.wire.protocol import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping


def json_bytes(document: Mapping[str, object]) -> bytes:
    """A document as compact JSON text."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def json_response(
    document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document as a response."""
    return Response(json_bytes(document), status_code=status, headers=headers, media_type=JSON)
