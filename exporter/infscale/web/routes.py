"""Which handler answers which path: exact paths, few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infscale.web.message import Request, Response, text_response

Handler = Callable[[Request], Response]


class Router:
    """The paths of one listener. Filled before the listener starts, only read afterwards."""

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, Handler]] = {}

    def add(self, path: str, handler: Handler, methods: Iterable[str] = ("GET",)) -> None:
        """Let `handler` answer `path` for `methods`; HEAD goes with GET. A path may be added once for each method."""
        by_method = self._routes.setdefault(path, {})
        for method in methods:
            if method in by_method:
                raise ValueError(f"{method} {path} has a handler already")
            by_method[method] = handler
            if method == "GET":
                by_method.setdefault("HEAD", handler)

    def dispatch(self, request: Request) -> Response:
        """Return the handler's answer, or 404 or 405 in text."""
        by_method = self._routes.get(request.path)
        if by_method is None:
            return text_response(404, f"no such path; this server answers: {', '.join(sorted(self._routes))}")
        handler = by_method.get(request.method)
        if handler is None:
            allowed = ", ".join(sorted(by_method))
            return text_response(405, f"this path takes {allowed}", {"Allow": allowed})
        return handler(request)
