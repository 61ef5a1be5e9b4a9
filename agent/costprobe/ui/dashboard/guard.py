"""Request checks and security headers of the dashboard.

Every web site that the operator visits can send requests to a loopback address: by a DNS name for
127.0.0.1 (DNS rebinding), a form, or a frame. Therefore the Host header must be a name that a third
party cannot map to this host, only reading is allowed, no other origin may read a response, and the
page itself may load nothing from other servers.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUERY_BYTES_MAX = 2048
_PORT = re.compile(r"[0-9]{1,5}")
_DIRECTIVES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
POLICY = "; ".join(_DIRECTIVES)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Guard:
    """Reject requests that the dashboard never sends, and add security headers to every response.

    Args:
        app: The application behind the guard.
        allowed_hosts: Host names of the server, beside localhost and IP addresses.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = {"localhost", *(_lowered(host) for host in allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or reject it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own_headers = {name for name, _ in HEADERS}
                kept = [pair for pair in message.get("headers", ()) if pair[0] not in own_headers]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not is_allowed(hosts[0].decode("latin-1"), self._allowed):
            return PlainTextResponse(
                "unknown host name; start the server with --allow-host NAME\n", 400
            )
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("only GET and HEAD are allowed\n", 405, {"allow": "GET, HEAD"})
        if len(scope["query_string"]) > QUERY_BYTES_MAX:
            return PlainTextResponse(f"a query of more than {QUERY_BYTES_MAX} bytes\n", 414)
        return None


def is_allowed(host: str, allowed: Collection[str]) -> bool:
    """Return whether a Host header is an allowed name or an IP address, which DNS cannot rebind.

    Args:
        host: The Host header, with or without a port.
        allowed: Names in lower case.
    """
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return bool(bracket) and _is_port(port) and _is_address(address, 6)
    name, colon, port = host.partition(":")
    return _is_port(colon + port) and (_lowered(name) in allowed or _is_address(name, 4))


def _is_port(text: str) -> bool:
    return not text or (text.startswith(":") and _PORT.fullmatch(text[1:]) is not None)


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _lowered(name: str) -> str:
    return name.lower().removesuffix(".")


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
