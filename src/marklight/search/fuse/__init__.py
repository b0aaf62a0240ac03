"""Lists of hits to one: stages that decide between retrievers."""
