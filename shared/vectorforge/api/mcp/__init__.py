"""Search and answer tools for agents over the Model Context Protocol (https://modelcontextprotocol.io).

``server`` imports the official ``mcp`` package, which takes as long as the rest of the API;
import it when the first message arrives.
"""
