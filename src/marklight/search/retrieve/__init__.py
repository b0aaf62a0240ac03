"""Query to hits: stages that find candidates."""
