"""The command line: text for people, JSON for programs.

The command group, the entry point `main`, and the mapping of errors to messages and exit codes.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import cast

import click

from marklight.errors import MarklightError
from marklight.surfaces.cli.output import Bar, Hints, complain

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as in shells."""

_DASHED = re.compile(r"-[^\W\d]{2}|--?[^\s=]*\s|-[^\w-]")
"""Matches a query that click takes for an option: `-house`, `-not this`; but not `--lmit` or `-n5`."""
_SUGGESTIONS = re.compile(r"\(Did you mean one of: ([^()]+)\?\)")
"""Matches the suggestions of click where it has several."""


SECTIONS = {
    "Search and read": "search query list ask commits get outline links related".split(),
    "Keep the index": "index status doctor clean".split(),
    "Connect": "serve mcp install-mcp".split(),
    "Configure and measure": "settings models eval".split(),
}
"""Names of the commands, in the sections of `--help`."""
MORE = "ignored copy export import worker".split()
"""Commands that few users need; `--help` lists only their names."""
MODULES = {
    "search_commands": "search query list ask commits",
    "document_commands": "get outline links related",
    "index_commands": "index ignored doctor copy export import",
    "status_command": "status clean",
    "connect_commands": "serve mcp install-mcp worker",
    "configure_commands": "settings models eval",
}
"""Commands of each module."""
FUNCTIONS = {"eval": "evaluate", "import": "import_", "list": "list_"}
"""Functions that are not named like their command, as that is a built-in or a keyword."""


class LazyCommands(Mapping[str, click.Command]):
    """Commands by name, each imported on first use: a search does not load the modules of the others."""

    def __init__(self) -> None:
        modules = {name: module for module, names in MODULES.items() for name in names.split()}
        self._modules = {
            name: modules[name] for names in (*SECTIONS.values(), MORE) for name in names
        }

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"marklight.surfaces.cli.{self._modules[name]}")
        command: click.Command = getattr(module, FUNCTIONS.get(name, name).replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


COMMANDS = LazyCommands()


class CommandGroup(click.Group):
    """The commands, listed in `--help` by purpose."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write a section for each purpose, and a line with the names of the other commands."""
        width = max(len(name) for part in SECTIONS.values() for name in part)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), COMMANDS[name].get_short_help_str(formatter.width))
                        for name in names
                    ]
                )
        with formatter.section("More"):
            formatter.write_text(", ".join(MORE))


def _print_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell and not ctx.resilient_parsing:
        from marklight.surfaces.cli.completion import script

        click.echo(script(shell))
        ctx.exit()


@click.group(
    cls=CommandGroup,
    commands=cast(MutableMapping[str, click.Command], COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="marklight", message="%(prog)s %(version)s")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Print a traceback if an error occurs.",
)
@click.option("--no-daemon", is_flag=True, help="Do not use a daemon, even if one is running.")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    metavar="SHELL",
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Print a completion script for bash, zsh or fish.",
)
def app(no_daemon: bool) -> None:
    """Search folders of Markdown files on your own machine, by keyword and by meaning.

    A library is a folder of documents together with its index.

    \b
    marklight search "how do I roll back a deployment" docs

    Without a command, in a folder that is indexed, search starts while you type.
    """
    if no_daemon:
        os.environ["MARKLIGHT_DAEMON"] = "off"


def main() -> None:
    """Run the `marklight` command."""
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        # Under another locale, names of files would be other names: documents would be removed from the index.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    # A passage may contain any character, whatever encoding the terminal or pipe declares.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    debug = "--debug" in arguments
    Hints.folder = None
    try:
        if not arguments and _is_in_library():
            arguments = ["query"]
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
        text = " ".join(error.format_message().split())  # click lists choices on lines of their own
        message = _SUGGESTIONS.sub(_suggestion, text).rstrip(".")
        complain(f"{message}{hint.removeprefix('.') if message.endswith('?') else hint}")
        return error.exit_code
    except MarklightError as error:
        if debug:
            _print_traceback()
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        kept = ". Everything indexed so far is kept; the next run continues from there"
        complain(f"Interrupted{kept if Bar.indexed else ''}")
        return EXIT_INTERRUPTED
    except SystemExit:
        return 0  # raised by click when the reader of a pipe has gone
    except OSError as error:
        # Keeps Python from flushing unwritable output again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the reader of the pipe has gone
        if debug:
            _print_traceback()
        complain(": ".join(filter(None, [error.strerror or str(error), error.filename])))
        return 3
    except Exception as error:
        if debug:
            _print_traceback()
        complain(
            f"Unexpected {type(error).__name__}: {error}. This is a bug in Marklight."
            " Please report it with the traceback from `marklight --debug …`"
        )
        return 3


def _is_in_library() -> bool:
    """Return true on a terminal in a folder of a library: `marklight` alone searches it."""
    from marklight.place import is_library, locate

    return sys.stdin.isatty() and sys.stdout.isatty() and is_library(locate(None).folder)


def _hint(error: click.UsageError, context: click.Context | None, arguments: Sequence[str]) -> str:
    """Return how to correct a command line that click rejected."""
    if context is None:
        # Click reports an option without a value before it knows the command.
        names = [name for name in arguments[:1] if name in COMMANDS]
        return f"See `{' '.join(['marklight', *names])} --help`"
    if "No such command 'completion" in error.message:
        return "Use `marklight --completion bash`, or zsh or fish"
    names = [
        parameter.name or ""
        for parameter in context.command.params
        if isinstance(parameter, click.Argument)
    ]
    takes_query = "query" in names
    if "extra argument" in error.message and takes_query:
        return "Put a query of several words in quotes"
    misread = isinstance(error, (click.NoSuchOption, click.BadParameter))
    if names and misread and "--" not in arguments and any(map(_DASHED.match, arguments)):
        return f"Put -- before a {'query' if takes_query else 'name'} that starts with a dash"
    return f"See `{context.command_path} --help`"


def _suggestion(match: re.Match[str]) -> str:
    """Return the suggestions of click as a sentence, so that another one can follow."""
    return f"Did you mean {match[1].replace(', ', ' or ')}?"


def _print_traceback() -> None:
    import traceback  # not needed by a successful command

    traceback.print_exc()
