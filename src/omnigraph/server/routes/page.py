"""The explorer page and its assets."""

from __future__ import annotations

import mimetypes
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import NotFoundError

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


def _assets() -> dict[str, Traversable]:
    """Every file of the page by its path; nothing else can be asked for."""
    found: dict[str, Traversable] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            elif not item.name.endswith((".py", ".pyc")):
                found[f"{prefix}{item.name}"] = item

    root = files("omnigraph.server") / "page"
    if root.is_dir():
        walk(root, "")
    return found


_ASSETS = _assets()


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def index(_: Request) -> Response:
    """The page."""
    return _asset(_INDEX)


@router.get("/page/{path:path}", include_in_schema=False)
async def asset(request: Request) -> Response:
    """A file of the page."""
    return _asset(request.path_params["path"])


def _asset(path: str) -> Response:
    item = _ASSETS.get(path)
    if item is None:
        raise NotFoundError("there is nothing at this path")
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Response(item.read_bytes(), media_type=kind, headers=_HEADERS)
