"""Content digests (BLAKE2b) and keys of bounded length."""

from __future__ import annotations

from hashlib import blake2b


def digest(*parts: str, size: int = 16) -> str:
    """Return a hexadecimal BLAKE2b digest of these strings; the length of each is hashed too."""
    hasher = blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


MAX_KEY = 255
"""Characters of a name that is stored unchanged: the limit of a file name on common file systems."""


def bounded_key(name: str) -> str:
    """Return a name as it is stored and looked up; a name that is too long is replaced by its digest.

    A path may have thousands of characters, and every link of a document is stored with its own path.
    """
    return name if len(name) <= MAX_KEY else f"digest {digest(name)}"
