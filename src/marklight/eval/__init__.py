"""How good: questions with known answers, asked and counted."""
