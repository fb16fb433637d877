"""The bundled query function, which looks for a missing key again after half a second."""

from tests.functions.keyless_query_handler import BundlePathFinder
from vectorforge.aws.handlers.query import QueryFunction

__all__ = ["BundlePathFinder", "handler"]

handler = QueryFunction(look_again_s=0.5)
