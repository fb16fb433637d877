"""Lambda service on a laptop: Runtime API, function processes, front doors and event sources.

It speaks AWS's protocols on sockets to processes, so that functions run as on Lambda: frozen, killed, timed
out, throttled, with answers streamed chunk by chunk.

    configuration = FunctionConfiguration(handler="functions.query.handler.handler")
    async with FunctionProcess(configuration) as function, FunctionUrl(function) as url:
        ...  # GET url.url
"""
