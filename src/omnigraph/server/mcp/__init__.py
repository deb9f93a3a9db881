"""The MCP endpoint: operations and stored queries as tools of an agent."""
