"""Set-up for assistants: our entry in the configuration of another program, and the skill that teaches it."""
