"""What a shell offers at the Tab key: collections, tags, documents and headings of the library; and the command that sets it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from marklight.escaping import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.shell_completion import CompletionItem

    from marklight.library import Library

MOST = 200
"""What is offered at once; more would only scroll away."""
SHELLS = ("bash", "zsh", "fish")
BASH = r"""_marklight_completion() {
    local IFS=$'\n'
    local response completion value

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" _MARKLIGHT_COMPLETE=bash_complete "$1")

    while read -r completion; do
        value=${completion#*,}
        case ${completion%%,*} in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) printf -v value %q "$value"; COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"

    return 0
}

complete -o nosort -F _marklight_completion marklight
"""
"""The script of click for bash, except that it quotes names: bash inserts a word as it is given, `;` and `$` included.

zsh and fish quote what they insert themselves.
"""


@click.command(short_help="Print what makes the Tab key complete.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print what makes a shell complete commands, options, paths, collections and tags.

    \b
    bash: marklight completion bash >> ~/.bashrc
    zsh:  marklight completion zsh >> ~/.zshrc
    fish: marklight completion fish > ~/.config/fish/completions/marklight.fish
    """
    if shell == "bash":
        click.echo(BASH)
        return 0
    from click.shell_completion import get_completion_class

    from marklight.surfaces.cli.app import app

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(app, {}, "marklight", "_MARKLIGHT_COMPLETE").source())
    return 0


def collections(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 - click's shape
    """Names of collections."""
    return _offered(context, begun, lambda library: library.collections)


def tags(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 - click's shape
    """Tags that documents have, the ones above nested ones too."""
    return _offered(context, begun, lambda library: library.tags())


def documents(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 - click's shape
    """Paths of documents as they are indexed."""
    return _offered(context, begun, lambda library: _paths(library, begun))


def references(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Paths of documents; after a `#` the headings of one."""
    path, sign, _ = begun.partition("#")
    if not sign:
        return documents(context, parameter, begun)

    def anchors(library: Library) -> Iterable[str]:
        return [f"{path}#{each.anchor}" for each in library.outline(path).headings if each.anchor]

    return _offered(context, begun, anchors)


def clients(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 - click's shape
    """Assistants that `install-mcp` knows."""
    from marklight.surfaces.setup.clients import CLIENTS

    return [each for each in CLIENTS if each.startswith(begun)]


def served(
    context: click.Context,  # noqa: ARG001 - click's shape
    parameter: click.Parameter,  # noqa: ARG001 - click's shape
    begun: str,
) -> list[CompletionItem]:
    """What stands behind `serve`: a folder, status or stop."""
    from click.shell_completion import CompletionItem

    # The folder first: bash forgets what it was told before one.
    return [
        CompletionItem(begun, type="dir"),
        *(CompletionItem(each) for each in ("status", "stop") if each.startswith(begun)),
    ]


def _paths(library: Library, begun: str) -> list[str]:
    return [id.path for id, _ in library.documents(like=begun, limit=MOST).documents]


def _offered(
    context: click.Context, begun: str, find: Callable[[Library], Iterable[str]]
) -> list[str]:
    try:
        with _library(context) as library:
            found = (each for each in find(library) if each.startswith(begun))
            # A word is inserted as it is, so one that cannot be shown as it is is not offered.
            return [each for each in found if each == one_line(each)][:MOST]
    except Exception:
        return []  # whatever is wrong is told when the command runs; a shell has no place for it


@contextmanager
def _library(context: click.Context) -> Iterator[Library]:
    """The library that the words before the cursor name, else the one around the current folder."""
    from marklight.surfaces.cli.options import open_own

    given = context.params
    folder = given.get("folder") or (given.get("path") if context.info_name == "search" else None)
    with open_own(folder) as library:
        yield library
