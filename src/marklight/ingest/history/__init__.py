"""History index: commits of git repositories as documents (message, author, date, files, beginning of the diff)."""
