"""Commits of git repositories as documents: message, author, date, files and the beginning of the diff."""
