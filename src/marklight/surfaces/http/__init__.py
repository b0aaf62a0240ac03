"""HTTP server: the JSON API, the web page and MCP at /mcp, on this machine by default."""
