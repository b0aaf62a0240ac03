"""The group of all commands, and how errors leave it: one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from marklight.errors import MarklightError
from marklight.surfaces.cli import evaluating, finding, keeping, models, relating
from marklight.surfaces.cli.options import complain
from marklight.surfaces.cli.query import query

EXIT_INTERRUPTED = 130
"""As shells count it: 128 + the number of the interrupt signal."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="marklight", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where in the program an error arose.")
def app(debug: bool) -> None:
    """Find the right passage in a folder of Markdown, on your own machine.

    \b
    marklight search "how do I roll back a deployment" docs
    """


for command in (
    finding.search,
    query,
    keeping.index,
    finding.get,
    finding.outline,
    relating.related,
    relating.links,
    keeping.ignored,
    keeping.status,
    keeping.doctor,
    keeping.settings,
    models.models,
    evaluating.evaluate,
):
    app.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    debug = "--debug" in arguments
    try:
        result = app.main(list(arguments), prog_name="marklight", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f". `{error.ctx.command_path} --help` shows how"
        said = error.format_message().rstrip(".")
        complain(f"{said}{hint.removeprefix('.') if said.endswith('?') else hint}")
        return error.exit_code
    except MarklightError as error:
        if debug:
            raise
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        complain("stopped; what was indexed so far is kept, and the next run goes on from there")
        return EXIT_INTERRUPTED
    except SystemExit:
        return 0  # click's way to leave when whoever reads our output has seen enough
    except OSError as error:
        # Output that cannot be written is not tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # whoever read it has seen enough
        if debug:
            raise
        complain(": ".join(filter(None, [error.strerror or str(error), error.filename])))
        return 3
    except Exception as error:
        if debug:
            raise
        complain(
            f"unexpected {type(error).__name__}: {error}. This is a fault in Marklight;"
            " `marklight --debug …` shows where"
        )
        return 3
