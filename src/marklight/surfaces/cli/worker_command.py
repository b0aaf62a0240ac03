"""The command worker: embeds the queued passages of a shared index."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from marklight.surfaces.cli.options import SET, in_library, open_own
from marklight.surfaces.cli.output import note, show


@click.command(short_help="Embed the queued passages of a shared index.")
@in_library
@click.option("--drain", is_flag=True, help="Stop when the queue is empty.")
@click.option(
    "--retry-failed", is_flag=True, help="First put the failed texts back into the queue."
)
@SET
def worker(
    folder: Path | None,
    drain: bool,
    retry_failed: bool,
    assignments: tuple[str, ...],
) -> int:
    """Embed the queued passages of a shared index, until stopped.

    For an index on a server with `queue.embed = "workers"`. Any number of workers can run at once, on any machine that has
    the model; they need the settings of the library, but not its documents. On SIGTERM or Ctrl-C, a worker finishes its
    current batch and stops; a second signal stops it at once. `marklight status` shows the queue.
    """
    from marklight.library.embedding_worker import EmbeddingWorker

    with open_own(folder, assignments) as library:
        embedding = EmbeddingWorker(library, note)
        if retry_failed:
            count = embedding.queue.retry_failed(embedding.model)
            note(f"Put {count:,} failed texts back into the queue")
        show(f"embedding for {library.engine.describe()} as {embedding.name}")
        _stop_on_signals(embedding.stop)
        embedding.run(drain=drain)
        show(f"embedded: {embedding.embedded:,}")
    return 0


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Stop after the current batch at the first SIGINT or SIGTERM, at once at the second."""

    def handle(number: int, _: Any) -> None:
        stop()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
