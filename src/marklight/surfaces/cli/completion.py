"""Shell completion: the scripts, and completions of collections, tags, documents and headings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.formatting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marklight.library import Library

MAX_COMPLETIONS = 200
"""Completions offered at once; more would scroll away."""
BASH = r"""_marklight_completion() {
    local IFS=$'\n'
    local response completion value word index prefix
    local words=() last=-1 current=0

    # bash splits --in=docs and key=value at the sign; they are one word for the program.
    for ((index = 0; index < ${#COMP_WORDS[@]}; index++)); do
        word=${COMP_WORDS[index]}
        if ((last > 0)) && [[ $word == = || ${words[last]} == *= ]]; then
            words[last]+=$word
        else
            ((++last))
            words[last]=$word
        fi
        if ((index == COMP_CWORD)); then current=$last; prefix=${words[last]%"$word"}; fi
    done
    if [[ ${COMP_WORDS[COMP_CWORD]} == = ]]; then prefix=${words[current]}; fi

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD="$current" _MARKLIGHT_COMPLETE=bash_complete "$1")

    while read -r completion; do
        value=${completion#*,}
        case ${completion%%,*} in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain)
                value=${value#"$prefix"}
                if [[ $value == *= ]]; then compopt -o nospace 2>/dev/null; fi
                printf -v value %q "$value"
                COMPREPLY+=("$value")
                ;;
        esac
    done <<< "$response"

    return 0
}

complete -o nosort -F _marklight_completion marklight
"""
"""Click's script for bash, but it quotes names: bash inserts a word unchanged, `;` and `$` included.

zsh and fish quote what they insert themselves.
"""


def script(shell: str) -> str:
    """Return the completion script of a shell: bash, zsh or fish."""
    if shell == "bash":
        return BASH
    from click.shell_completion import get_completion_class

    from marklight.surfaces.cli import app

    completion = get_completion_class(shell)
    assert completion is not None
    return completion(app, {}, "marklight", "_MARKLIGHT_COMPLETE").source()


def collections(context: click.Context, incomplete: str) -> list[str]:
    """Complete names of collections."""
    return _completions(context, incomplete, lambda library: library.collections)


def tags(context: click.Context, incomplete: str) -> list[str]:
    """Complete tags of documents, including the parents of nested tags."""
    return _completions(context, incomplete, lambda library: library.tags())


def documents(context: click.Context, incomplete: str) -> list[str]:
    """Complete paths of indexed documents."""
    return _completions(context, incomplete, lambda library: _paths(library, incomplete))


def references(context: click.Context, incomplete: str) -> list[str]:
    """Complete paths of documents; after a `#`, anchors of headings."""
    path, separator, _ = incomplete.partition("#")
    if not separator:
        return documents(context, incomplete)

    def anchors(library: Library) -> Iterable[str]:
        headings = library.outline(path).headings
        return [f"{path}#{heading.anchor}" for heading in headings if heading.anchor]

    return _completions(context, incomplete, anchors)


def settings(context: click.Context, incomplete: str) -> list[str]:  # noqa: ARG001 - the signature of all completions
    """Complete `KEY=` with the keys of all settings; after the sign, values of settings that have few."""
    from marklight.library.configuration import SCHEMA, stage_name
    from marklight.settings import combine, known_keys

    key, sign, _ = incomplete.partition("=")
    if not sign:
        return [f"{name}=" for name in known_keys(SCHEMA) if name.startswith(incomplete)]
    default = combine([], SCHEMA).values.get(key)
    values = ["true", "false"] if isinstance(default, bool) else []
    if key in ("search.skip", "search.use", "search.fuse"):
        from marklight.search import pipeline

        fusing = key == "search.fuse"
        kinds = (
            [pipeline.FUSE] if fusing else [pipeline.REWRITE, pipeline.RETRIEVE, pipeline.REFINE]
        )
        values = sorted(stage_name(stage) for kind in kinds for stage in kind)
    return [f"{key}={value}" for value in values if f"{key}={value}".startswith(incomplete)]


def clients(context: click.Context, incomplete: str) -> list[str]:  # noqa: ARG001 - the signature of all completions
    """Complete clients of `install-mcp`."""
    from marklight.surfaces.setup import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]


def _paths(library: Library, incomplete: str) -> list[str]:
    page = library.documents(like=incomplete, limit=MAX_COMPLETIONS)
    return [id.named(page.several_collections) for id, _ in page.documents]


def _completions(
    context: click.Context, incomplete: str, candidates: Callable[[Library], Iterable[str]]
) -> list[str]:
    try:
        with _library(context) as library:
            matching = (word for word in candidates(library) if word.startswith(incomplete))
            # A word is inserted unchanged, so one that needs escaping is not offered.
            return [word for word in matching if word == one_line(word)][:MAX_COMPLETIONS]
    except Exception:
        return []  # the command itself reports the error; a shell cannot show it here


@contextmanager
def _library(context: click.Context) -> Iterator[Library]:
    """Open the library that the command line names, else the one that contains the current folder."""
    from marklight.surfaces.cli.options import open_own

    given = dict(context.params)
    # Click assigns no arguments where the word before the cursor is an option that still lacks its value.
    names = [
        parameter.name
        for parameter in context.command.params
        if isinstance(parameter, click.Argument)
    ]
    for name, value in zip(names, context.args, strict=False):
        if name and not given.get(name):
            given[name] = value
    folder = given.get("folder") or given.get("place")
    with open_own(folder and Path(folder), given.get("assignments") or ()) as library:
        yield library
