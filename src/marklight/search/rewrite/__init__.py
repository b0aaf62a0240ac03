"""Query to query: stages that look at the question first."""
