"""A commit as a document: its message, then the beginning of its diff, file by file."""

from __future__ import annotations

from marklight.ingest.history.changes import Changed
from marklight.ingest.history.objects import Written
from marklight.model import Document, DocumentId, FileState, Heading
from marklight.text import digest

LONGEST_TITLE = 1000
"""Signs of a subject."""
LONGEST_TEXT = 20_000
"""Signs of a message that are searched."""
SHORT = 7
"""Signs by which people call a commit."""


def understand(repository: str, commit: Written, changed: Changed, recipe: str) -> Document:
    """The document; its outline says where the message ends and each file begins."""
    message = commit.message[:LONGEST_TEXT] or "(no message)"
    subject = commit.subject or "(no message)"
    lines = message.split("\n")
    outline = [Heading(1, subject[:LONGEST_TITLE], "message", (1, len(lines)))]
    for number, piece in enumerate(changed.pieces, 1):
        lines += ["", *piece.lines]
        first = len(lines) - len(piece.lines) + 1
        outline.append(Heading(2, piece.path, f"diff-{number}", (first, len(lines))))
    text = "\n".join(lines).encode("utf-8", "replace").decode()
    names = [commit.name, commit.email]
    # So that `author:ada` in a question means her, whatever else she is called.
    called = [*commit.name.split(), commit.email.partition("@")[0]]
    return Document(
        id=DocumentId(repository, commit.hash),
        title=subject[:LONGEST_TITLE],
        text=text,
        file=FileState(len(text), commit.seconds * 10**9),
        digest=digest(text),
        recipe=recipe,
        aliases=(commit.hash[:SHORT],),
        author=commit.name,
        date=commit.date,
        metadata={"author": [*names, *called], "files": list(changed.files)},
        outline=tuple(outline),
        remarks=(*commit.remarks, *changed.remarks),
    )
