"""The command group, the entry point `main`, and the mapping of errors to messages and exit codes."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module

import click

from marklight.errors import MarklightError
from marklight.surfaces.cli.output import Bar, Hints, complain

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as in shells."""

_DASHED = re.compile(r"-[^\W\d]{2}|--?[^\s=]*\s|-[^\w-]")
"""Matches a query that click takes for an option: `-house`, `-not this`; but not `--lmit` or `-n5`."""
_SUGGESTIONS = re.compile(r"\(Did you mean one of: ([^()]+)\?\)")
"""Matches the suggestions of click where it has several."""


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, each imported on first use: a search does not load the modules of the others."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = dict(modules)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = import_module(f"marklight.surfaces.cli.{self._modules[name]}")
            self._loaded[name] = getattr(module, FUNCTIONS.get(name, name).replace("-", "_"))
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules[name], self._loaded[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


FUNCTIONS = {"eval": "evaluate", "import": "import_", "list": "list_"}
"""Functions that are not named like their command, as that is a built-in or a keyword."""

COMMANDS = LazyCommands(
    {
        "search": "search_commands",
        "list": "list_command",
        "ask": "ask_command",
        "query": "search_commands",
        "index": "index_commands",
        "get": "document_commands",
        "outline": "document_commands",
        "commits": "search_commands",
        "related": "document_commands",
        "links": "document_commands",
        "ignored": "index_commands",
        "status": "status_command",
        "doctor": "index_commands",
        "clean": "clean_command",
        "copy": "transfer_commands",
        "export": "transfer_commands",
        "import": "transfer_commands",
        "settings": "settings_commands",
        "trust": "settings_commands",
        "serve": "server_commands",
        "stop": "server_commands",
        "worker": "worker_command",
        "models": "model_commands",
        "eval": "eval_command",
        "mcp": "server_commands",
        "install-mcp": "client_commands",
        "completion": "completion",
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
    help="Print a traceback if an error occurs.",
)
@click.option("--no-daemon", is_flag=True, help="Do not use a daemon, even if one is running.")
def app(no_daemon: bool) -> None:
    """Search folders of Markdown files on your own machine, by keyword and by meaning.

    A library is a folder of documents together with its index.

    \b
    marklight search "how do I roll back a deployment" docs
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
        message = _SUGGESTIONS.sub(_suggestion, error.format_message()).rstrip(".")
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


def _hint(error: click.UsageError, context: click.Context | None, arguments: Sequence[str]) -> str:
    """Return how to correct a command line that click rejected."""
    if context is None:
        # Click reports an option without a value before it knows the command.
        names = [name for name in arguments[:1] if name in COMMANDS]
        return f"See `{' '.join(['marklight', *names])} --help`"
    names = [each.name or "" for each in context.command.params if isinstance(each, click.Argument)]
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
