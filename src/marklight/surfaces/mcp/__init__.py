"""MCP server: tools, resources and prompts over the operations of a library."""
