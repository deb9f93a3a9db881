"""The HTTP server: who may do what, how much at a time, and every method of a graph as a route.

Owns: flags and boot, tokens, the edge of policy, admission and body limits, streams, the error envelope, logs, metrics
and the OpenAPI document. Decides nothing about graphs: every route authenticates, authorises, and calls the façade.
Start reading at `app`, then `calls` and `routes`.
"""

from omnigraph.server.app import describe_routes, make_app
from omnigraph.server.boot import open_service
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import Tokens, read_tokens

__all__ = ["ServerSettings", "Tokens", "describe_routes", "make_app", "open_service", "read_tokens"]
