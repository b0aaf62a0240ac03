"""Hits to better hits: stages after fusion."""
