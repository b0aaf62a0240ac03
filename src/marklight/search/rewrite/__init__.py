"""Query rewriting: stages that change the query before retrieval."""
