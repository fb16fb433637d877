"""The Lambda service on a laptop: the Runtime API, function processes, front doors and event sources.

It speaks AWS's protocols on real sockets to real processes, so that a function is run as on Lambda: frozen,
killed, timed out, throttled, its answer streamed chunk by chunk.

    configuration = FunctionConfiguration(handler="functions.query.handler.handler")
    async with FunctionProcess(configuration) as function, FunctionUrl(function) as door:
        ...  # GET door.url
"""
