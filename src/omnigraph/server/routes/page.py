"""The explorer page and its assets."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import NotFoundError
from omnigraph.server.blob_conditions import is_not_modified

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

router = APIRouter()
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}
_INDEX = "index.html"
_METHODS = ["GET", "HEAD"]


@router.api_route("/", methods=_METHODS, include_in_schema=False)
async def index(request: Request) -> Response:
    """The page."""
    return _answer(request, _INDEX)


@router.api_route("/page/{path:path}", methods=_METHODS, include_in_schema=False)
async def asset(request: Request) -> Response:
    """A file of the page."""
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
    if path not in _assets():
        raise NotFoundError("there is nothing at this path")
    content, etag = _content(path)
    headers = _HEADERS | {"ETag": etag}
    if is_not_modified(request.headers, etag):
        return Response(status_code=304, headers=headers)
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers=headers)


@cache
def _content(path: str) -> tuple[bytes, str]:
    """A file of the page and its tag; both stay the same as long as the server runs."""
    content = _assets()[path].read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@cache
def _assets() -> dict[str, Traversable]:
    """Every file of the page by its path; nothing else can be asked for."""
    found: dict[str, Traversable] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            else:
                found[f"{prefix}{item.name}"] = item

    walk(files("omnigraph.server") / "page", "")
    return found
