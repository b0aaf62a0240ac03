"""The command that measures: eval."""

from __future__ import annotations

from pathlib import Path

import click

from marklight.errors import UsageError
from marklight.surfaces.cli.options import AS_JSON, MODE, SET, note, show, show_json
from marklight.surfaces.cli.progress import Bar


@click.command("eval", short_help="Measure how good the answers are.")
@click.argument("dataset", required=False, type=click.Path(path_type=Path))
@AS_JSON
@MODE
@click.option("--ablate", "with_ablation", is_flag=True, help="Change one stage after the other.")
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="KEY=VALUE",
    help="Against the same with this setting; repeatable, all at once.",
)
@click.option("-n", "--sample", type=int, metavar="N", help="Only N questions, for a quick look.")
@click.option(
    "--off-topic",
    type=click.Path(path_type=Path),
    metavar="DATASET",
    help="Whose questions nothing here answers; else forty on all sorts of things.",
)
@SET
def evaluate(
    dataset: Path | None,
    as_json: bool,
    mode: str,
    with_ablation: bool,
    compared: tuple[str, ...],
    sample: int | None,
    off_topic: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Measure how good the answers are, with questions whose answers are known.

    DATASET is a .toml file with your own questions, a folder with dataset.toml, or a folder in BEIR's
    layout; without one, `marklight eval` shows how to write it.
    """
    # Loaded only now, so that `--help` answers at once.
    from marklight.eval.evaluate import evaluate
    from marklight.eval.own import HOW

    if dataset is None:
        click.echo(f"{HOW}", err=True)
        raise UsageError("no dataset is named", "Above is how to write one")
    if not dataset.expanduser().exists():
        raise UsageError(
            f"there is no dataset {dataset}", "`marklight eval` alone shows how to write one"
        )
    with Bar() as bar:
        found = evaluate(
            dataset,
            mode=mode,
            assignments=assignments,
            compared=compared,
            with_ablation=with_ablation,
            sample=sample,
            off_topic=off_topic,
            progress=bar,
        )
    for notice in found.notices:
        note(notice)
    if as_json:
        show_json(found.to_dict())
    else:
        show(found.to_text())
    return 0
