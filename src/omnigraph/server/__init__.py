"""The HTTP server: who may do what, how much at a time, and every method of a graph as a route.

Owns: flags and boot, tokens, the edge of policy, admission and body limits, streams, the error envelope, logs, metrics
and the OpenAPI document. Decides nothing about graphs: every route authenticates, authorises, and calls the façade.
Start reading at `app`, then `calls` and `routes`.
"""
