"""Daemon: one process that keeps a library open and its model loaded; commands and assistants connect to it."""
