"""Run the real Claude Code and Codex with a scripted model, and check what reaches the model.

    python -m benchmarks.real_clients [--npm FOLDER] [--program MARKLIGHT] [--label LABEL]

FOLDER has the npm packages `@anthropic-ai/claude-code` and `@openai/codex` (`npm install --prefix FOLDER …`). Each client starts in an empty home
folder, `marklight install-mcp` configures it, and a model on loopback makes twenty tool calls. Nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._measure import ROOT, result_path
from benchmarks._scripted_model import Call, Script, scripted_model
from marklight.private_files import cache_folder
from marklight.text.tokens import count_tokens

SECONDS = 600
"""Time limit of a client; a call takes a second or two."""
DEFAULT_TOKENS = 2000
CODEX_PREFIX = re.compile(r"\AWall time: [\d.]+ seconds\nOutput:\n")
"""Added by Codex to every tool result."""
OURS = re.compile(r"\.md\b|\bdocuments?\b")
"""Every answer has a path or a number of documents; an error message of the client has neither."""
QUERIES = ("how do I connect an assistant", "what does a score mean", "rebuild the index")
CALLS = (
    *(Call("query_documents", {"query": query, "max_tokens": 300}) for query in QUERIES),
    *(Call("query_documents", {"query": query, "max_tokens": 1000}) for query in QUERIES),
    *(Call("query_documents", {"query": query}) for query in QUERIES),
    Call("query_documents", {"query": "filters by date", "limit": 20, "max_tokens": 1500}),
    Call("query_documents", {"query": "how do I prune roses", "max_tokens": 400}),
    Call(
        "search_with_hypothesis", {"hypothesis": "Set a token for the server.", "max_tokens": 500}
    ),
    Call("get_document", {"ref": "serving.md", "max_tokens": 300}),
    Call("get_document", {"ref": "serving.md#access-control"}),
    Call("get_document", {"ref": "reference.md", "max_tokens": 2000}),
    Call("list_documents", {"query": "index", "max_tokens": 300}),
    Call("list_documents", {}),
    Call("outline", {"path": "reference.md"}),
    Call("related_documents", {"path": "serving.md"}),
    Call("index_status", {}),
)


def claude_code(npm: Path, home: Path, address: str) -> list[str]:
    """Return the command of Claude Code for one prompt, without a network."""
    (home / "env.json").write_text(
        json.dumps(
            {
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            }
        )
    )
    program = str(npm / "node_modules" / ".bin" / "claude")
    return [program, "-p", "Answer from my notes.", "--allowedTools", "mcp__marklight"]


def codex(npm: Path, home: Path, address: str) -> list[str]:
    """Return the command of Codex for one prompt; its configuration names the scripted model."""
    (home / "env.json").write_text("{}")
    config = home / ".codex" / "config.toml"
    provider = (
        'model = "scripted"\nmodel_provider = "scripted"\napproval_policy = "never"\n\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{address}/v1"\nwire_api = "responses"\n\n'
    )
    # Codex passes only a few variables on.
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in own_folders().items())
    config.write_text(f"{provider}{config.read_text()}\n[mcp_servers.marklight.env]\n{lines}")
    program = str(npm / "node_modules" / ".bin" / "codex")
    return [program, "exec", "--skip-git-repo-check", "Answer from my notes."]


def own_folders() -> dict[str, str]:
    """Return variables by which Marklight finds its models, and knows the index as its own."""
    data = os.environ.get("XDG_DATA_HOME", str(Path.home() / ".local" / "share"))
    return {"MARKLIGHT_CACHE_DIR": str(cache_folder()), "XDG_DATA_HOME": data}


CLIENTS = {"claude-code": claude_code, "codex": codex}


def run_client(name: str, npm: Path, program: str, folder: Path) -> Script:
    """Let a client work through all calls in an empty home folder."""
    script = Script(CALLS, "marklight")
    with (
        tempfile.TemporaryDirectory(dir=Path.home(), prefix=f".{name}-") as made,
        scripted_model(script) as address,
    ):
        home = Path(made)
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        environment = {**kept, "HOME": made, **own_folders()}
        install = [program, "install-mcp", name, str(folder)]
        subprocess.run(install, env=environment, check=True, capture_output=True)
        command = CLIENTS[name](npm, home, address)
        environment |= json.loads((home / "env.json").read_text())
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if len(script.seen) < len(CALLS) or not script.definitions:
            print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return script


def judge(script: Script) -> list[dict[str, Any]]:
    """Return for each call whether text reached the model, and within the budget."""
    rows = []
    for number, call in enumerate(script.calls):
        seen = CODEX_PREFIX.sub("", script.seen.get(number, ""))
        budget = call.arguments.get("max_tokens", DEFAULT_TOKENS)
        size = count_tokens(seen)
        rows.append(
            {
                "tool": call.tool,
                "max_tokens": budget,
                "tokens": size,
                "text": bool(OURS.search(seen)) and not _is_json(seen),
                "within": 0 < size <= budget,
                "begins": seen[:80],
            }
        )
    return rows


def _is_json(text: str) -> bool:
    return "\n{" in f"\n{text}"[: len(text) // 2 + 2] and _parses(text[text.index("{") :])


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "calls": len(rows),
        "text": sum(row["text"] for row in rows),
        "within max_tokens": sum(row["within"] for row in rows),
        "both": sum(row["text"] and row["within"] for row in rows),
        "tokens in all": sum(row["tokens"] for row in rows),
        "each": list(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--npm", type=Path, required=True, help="folder with the npm packages")
    parser.add_argument("--program", default="marklight", help="the command to measure")
    parser.add_argument("--label", default="now", help="key of the results (default: now)")
    parser.add_argument("--client", action="append", choices=CLIENTS)
    parser.add_argument(
        "--notes", type=Path, help="where to copy the documents (default: a temporary folder)"
    )
    given = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as made:
        folder = given.notes or Path(made) / "notes"
        if not folder.exists():
            shutil.copytree(ROOT / "docs", folder)
        subprocess.run([given.program, "index", str(folder)], check=True)
        for name in given.client or CLIENTS:
            version = [str(given.npm / "node_modules/.bin" / name.partition("-")[0]), "--version"]
            printed = subprocess.run(version, capture_output=True, text=True, check=True).stdout
            script = run_client(name, given.npm, given.program, folder)
            defined = count_tokens(json.dumps(script.definitions))
            results[name] = {
                "version": printed.strip(),
                "tool definitions, tokens": defined,
                **summary(judge(script)),
            }
            shown = {key: value for key, value in results[name].items() if key != "each"}
            print(json.dumps({name: shown}))
            for row in results[name]["each"]:
                print(f"  {'ok ' if row['text'] and row['within'] else 'BAD'} {json.dumps(row)}")
    path = result_path("real_clients")
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    kept.setdefault(given.label, {}).update(results)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
