"""Other tools on the same folders and queries: one module a tool, each in an environment of its own."""
