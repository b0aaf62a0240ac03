"""The API for programs and the web page, over HTTP on this machine."""
