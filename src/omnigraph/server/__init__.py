"""The HTTP server: REST, MCP and the explorer page.

Owns: flags and boot, tokens, the edge of policy, admission and body limits, streams, the error envelope, logs, metrics.
Never touches storage by itself. Start reading at `app`, then `calls`.
"""
