"""Plain ASGI middleware; ``BaseHTTPMiddleware`` would queue every chunk of a stream once more.

Order, outermost first: ``RequestMetrics``, ``CrossOrigin`` where other origins are allowed,
``RequestContext`` (request state, headers, error responses), ``ReadingPace``, on Lambda ``TimeLimit``,
``LocalGuard``, ``Authentication``, ``BodyLimit`` and on Lambda ``LazyStartup``.
"""
