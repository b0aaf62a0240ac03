"""Files to documents to chunks to one commit."""
