"""Responses that the pages of a host and of a fleet share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

STATIC: Final = Path(__file__).parent / "static"
_NOT_STORED: Final = {"cache-control": "no-store"}


class _Static(StaticFiles):
    """Static files; a browser revalidates them each time, so that an upgrade takes effect."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401 - Starlette's own arguments, passed on
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


STATIC_FILES: Final = Mount("/static", _Static(directory=STATIC))


def page_route(file: str) -> Route:
    """Return the route of a page of HTML."""

    async def page(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
        return FileResponse(STATIC / file, headers={"cache-control": "no-cache"})

    return Route("/", page)


class _Json(JSONResponse):
    """JSON in UTF-8, in which lone surrogates are escaped: a database's answer may name a host so."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - any JSON value
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")


def json_response(document: dict[str, Any]) -> Response:
    """Return a document that no cache keeps."""
    return _Json(document, headers=_NOT_STORED)


def error_response(status: int, text: str) -> Response:
    """Return the reason of a failure as `error`."""
    return _Json({"error": text}, status, _NOT_STORED)


def refused(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """Answer an invalid parameter."""
    return error_response(400, str(error))


def unknown(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """Answer an unknown path."""
    return error_response(404, "not found")
