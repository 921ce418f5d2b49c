"""The HTTP answers of the gateway's doors, built from what was decided."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from controller.gateway.access import Page
from controller.gateway.refusals import Refusal, RefusalCause, render_headers, render_refusal
from controller.gateway.standing import Terminal

_JSON: Final = "application/json"

BUG: Final = Refusal(RefusalCause.BUG, "The gateway met a bug; its log names the place.")


def render_sessions(terminal: Terminal) -> dict[str, Any]:
    """Render a session list as the vendor's API does, with the object's own session or none."""
    session = terminal.status.session
    if session is None or session.id is None or session.ended is not None:
        return {"count": 0, "sessions": []}
    created = session.created.isoformat().replace("+00:00", "Z") if session.created is not None else ""
    # Not the command: its words may be secret, and the right to attach is no right to read the object.
    entry = {"id": session.id, "command": "", "created": created, "is_active": True, "tty": True}
    return {"count": 1, "sessions": [entry]}


def answer(body: Mapping[str, Any]) -> web.Response:
    """Answer with 200; nothing here may be kept by anybody in between."""
    return web.Response(body=orjson.dumps(body), content_type=_JSON, headers={"Cache-Control": "no-store"})


def answer_refusal(refusal: Refusal) -> web.Response:
    """Answer with a refusal."""
    return web.Response(
        status=refusal.code,
        body=orjson.dumps(render_refusal(refusal)),
        content_type=_JSON,
        headers={**render_headers(refusal), "Cache-Control": "no-store"},
    )


def admit_page(response: web.StreamResponse, page: Page) -> None:
    """Let an admitted page read the answer, and send its token; never with cookies."""
    response.headers["Access-Control-Allow-Origin"] = page.origin
    response.headers["Access-Control-Allow-Methods"] = "GET, HEAD, POST"
    response.headers["Access-Control-Allow-Headers"] = "authorization"
    response.headers["Access-Control-Expose-Headers"] = "retry-after"
    response.headers["Vary"] = "Origin"
