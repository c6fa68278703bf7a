"""In front of Streamlit: requests for another host or from another site are refused, answers carry their headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ui.exposure import is_allowed_host, is_own_origin

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTENT_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'sha256-{inline}' 'wasm-unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",  # emotion and plotly write their styles into the page
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' ws: wss: data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "frame-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)
HEADERS = (
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
)
CLOSED = ("/_stcore/metrics", "/_stcore/agent", "/_stcore/upload_file", "/_stcore/script-health-check", "/component")
"""Parts of Streamlit that these screens do not use: its figures, its agents' door, uploads, foreign components."""
ANSWERS = {"lookup": 404, "host": 400, "origin": 403}


class Shield:
    """The middleware.

    Args:
        app: What stands behind it.
        names: Host names that are ours.
        policy: The content policy.
    """

    def __init__(self, app: App, *, names: frozenset[str], policy: str) -> None:
        self._app, self._names = app, names
        fields = (*HEADERS, ("content-security-policy", policy))
        self._fields = [(name.encode(), value.encode()) for name, value in fields]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        wrong = self._wrong(scope)
        if wrong is not None:
            await self._refuse(scope, receive, send, ANSWERS[wrong])
            return
        await self._app(scope, receive, self._with_headers(send))

    def _wrong(self, scope: Scope) -> str | None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = found.get("host"), found.get("origin")
        if not is_allowed_host(host, self._names):
            return "host"
        asks_only = scope["type"] == "http" and scope["method"] in ("GET", "HEAD", "OPTIONS")
        if not is_own_origin(origin, host) and not (asks_only and origin is None):
            return "origin"
        return "lookup" if scope["path"].startswith(CLOSED) else None

    def _with_headers(self, send: Send) -> Send:
        names = {name for name, _ in self._fields}

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
                message = {**message, "headers": [*kept, *self._fields]}
            await send(message)

        return told

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, status: int) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), *self._fields]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"refused\n"})


def content_policy(page: str) -> str:
    """The policy for Streamlit's own page: its inline script is known by what it says, no other may run.

    Args:
        page: Streamlit's ``index.html``.
    """
    import base64
    import hashlib
    import re

    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    sums = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    return CONTENT_POLICY.replace("'sha256-{inline}'", " ".join(f"'sha256-{each}'" for each in sums))
