"""One process that holds the model and follows the files; others attach to it."""
