"""Search and answer tools for agents over the Model Context Protocol (https://modelcontextprotocol.io).

``server`` and ``http`` import the official ``mcp`` package, which takes as long as the rest of the API;
import them when the first message arrives.
"""
