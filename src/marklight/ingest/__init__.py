"""Index files and git commits: discover, parse, chunk, embed."""
