"""The MCP endpoint of a graph: its stored queries and its own operations as tools of an agent.

A tool call is the HTTP request that it stands for, made inside the process with the token of the caller: policy,
admission, limits and errors are those of the routes, because it is the routes that answer. Start reading at `endpoint`.
"""
