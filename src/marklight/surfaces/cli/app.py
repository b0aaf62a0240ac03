"""The group of all commands, and how errors leave it: one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module

import click

from marklight.errors import MarklightError
from marklight.surfaces.cli.options import complain

EXIT_INTERRUPTED = 130
"""As shells count it: 128 + the number of the interrupt signal."""


_DASHED = re.compile(r"-[^\W\d]{2}|--?[^\s=]*\s|-[^\w-]")
"""What begins like an option and was hardly meant as one: `-house`, `-not this`, but no `--lmit`, no `-n5`."""


class Homes(MutableMapping[str, click.Command]):
    """Commands by name, each loaded when it is called: a search has no use for the other modules."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            home = import_module(f"marklight.surfaces.cli.{self._homes[name]}")
            self._loaded[name] = getattr(home, CALLED.get(name, name).replace("-", "_"))
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._homes[name], self._loaded[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._homes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


CALLED = {"eval": "evaluate"}
"""Commands whose function has another name: its own would hide one of Python's."""

COMMANDS = Homes(
    {
        "search": "finding",
        "query": "query",
        "index": "keeping",
        "get": "finding",
        "outline": "finding",
        "commits": "commits",
        "related": "relating",
        "links": "relating",
        "ignored": "keeping",
        "status": "keeping",
        "doctor": "keeping",
        "settings": "keeping",
        "trust": "trusting",
        "serve": "serving",
        "stop": "serving",
        "models": "models",
        "eval": "evaluating",
        "mcp": "assisting",
        "install-mcp": "installing",
        "completion": "completing",
    }
)


@click.group(
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="marklight", message="%(prog)s %(version)s")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show where in the program an error arose.",
)
@click.option("--no-daemon", is_flag=True, help="Do the work in this process, whatever runs.")
def app(no_daemon: bool) -> None:
    """Find the right passage in a folder of Markdown, on your own machine.

    \b
    marklight search "how do I roll back a deployment" docs
    """
    if no_daemon:
        os.environ["MARKLIGHT_DAEMON"] = "off"


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
        if isinstance(error, click.UsageError):
            hint = f". {_hint(error, error.ctx, arguments)}"
        said = error.format_message().rstrip(".")
        complain(f"{said}{hint.removeprefix('.') if said.endswith('?') else hint}")
        return error.exit_code
    except MarklightError as error:
        if debug:
            _show_where()
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
            _show_where()
        complain(": ".join(filter(None, [error.strerror or str(error), error.filename])))
        return 3
    except Exception as error:
        if debug:
            _show_where()
        complain(
            f"unexpected {type(error).__name__}: {error}. This is a fault in Marklight;"
            " `marklight --debug …` shows where"
        )
        return 3


def _hint(error: click.UsageError, context: click.Context | None, arguments: Sequence[str]) -> str:
    """What to do about a command line that is not understood."""
    if context is None:
        # An option without its value is told before click says whose it is.
        named = [each for each in arguments[:1] if each in COMMANDS]
        return f"`{' '.join(['marklight', *named])} --help` shows how"
    taken = [each.name for each in context.command.params if isinstance(each, click.Argument)]
    asks = "query" in taken
    if "extra argument" in error.message and asks:
        return "A question of several words stands in quotes"
    misread = isinstance(error, (click.NoSuchOption, click.BadParameter))
    if taken and misread and "--" not in arguments and any(map(_DASHED.match, arguments)):
        return f"Put -- before a {'question' if asks else 'name'} that begins with a dash"
    return f"`{context.command_path} --help` shows how"


def _show_where() -> None:
    import traceback  # what goes well has no use for it

    traceback.print_exc()
