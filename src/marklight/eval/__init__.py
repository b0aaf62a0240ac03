"""How good, how fast."""
