"""Tools that search and answer, for agents, over the Model Context Protocol (https://modelcontextprotocol.io).

``server`` and ``http`` import the official ``mcp`` package, which takes as long as importing the rest of the
API; whoever needs them imports them when the first message comes.
"""
