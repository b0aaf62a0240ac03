"""Short stable names for texts."""

from __future__ import annotations

from hashlib import blake2b


def digest(*parts: str, size: int = 16) -> str:
    """A short stable name for these texts together; the length of each is part of it."""
    hasher = blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()
