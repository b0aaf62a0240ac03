"""User interfaces: command line, daemon, HTTP API, MCP and web page."""
