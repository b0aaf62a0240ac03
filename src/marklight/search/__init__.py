"""Search pipeline: rewrite, retrieve, fuse and refine."""
