"""The command eval: measure search quality with a set of queries and known answers."""

from __future__ import annotations

from pathlib import Path

import click

from marklight.errors import UsageError
from marklight.surfaces.cli.options import AS_JSON, MODE, SET
from marklight.surfaces.cli.output import Bar, note, show, show_json


@click.command("eval", short_help="Measure search quality.")
@click.argument("dataset", required=False, type=click.Path(path_type=Path))
@AS_JSON
@MODE
@click.option(
    "--ablate",
    "with_ablation",
    is_flag=True,
    help="Measure the effect of each stage by leaving it out.",
)
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="KEY=VALUE",
    help="Compare with a second run that uses this setting; repeat to combine several.",
)
@click.option(
    "-n", "--sample", type=int, metavar="N", help="Use only N queries, for a quick estimate."
)
@click.option(
    "--off-topic",
    type=click.Path(path_type=Path),
    metavar="DATASET",
    help="Take the queries without an answer from DATASET [default: 40 built-in queries].",
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
    """Measure search quality with queries whose answers are known.

    DATASET is a .toml file with your own queries, a folder with dataset.toml, or a folder in BEIR
    format. Run `marklight eval` without DATASET to see how to write one.
    """
    from marklight.eval.dataset import HELP
    from marklight.eval.evaluate import evaluate

    if dataset is None:
        click.echo(f"{HELP}", err=True)
        raise UsageError("No dataset given", "See above for how to write one")
    if not dataset.expanduser().exists():
        raise UsageError(
            f"No such dataset: {dataset}", "Run `marklight eval` to see how to write one"
        )
    with Bar() as bar:
        result = evaluate(
            dataset,
            mode=mode,
            assignments=assignments,
            compared=compared,
            with_ablation=with_ablation,
            sample_size=sample,
            off_topic=off_topic,
            progress=bar,
        )
    for notice in result.notices:
        note(notice)
    if as_json:
        show_json(result.to_dict())
    else:
        show(result.to_text())
    return 0
