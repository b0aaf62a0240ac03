"""The bill of materials names every run-time package with its licence, and two builds give the same wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

from marklight.models.record import GRANITE, package_folder

ROOT = Path(__file__).parents[1]
BUILD = (
    "import sys; sys.path.insert(0, 'scripts'); import build_backend\n"
    "print(build_backend.build_wheel(sys.argv[1]))"
)


def bill_of_materials(*extras: str) -> bytes:
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), *extras]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_the_bill_of_materials_has_all_packages_models_and_licences() -> None:
    bill = json.loads(bill_of_materials())
    components = {component["name"]: component for component in bill["components"]}
    assert {"anyio", "numpy", "onnxruntime", "tantivy"} <= components.keys()
    assert not {"marklight", "psycopg", "pytest", "qdrant-client"} & components.keys()
    assert all(component["licenses"] for component in components.values())
    model = components[GRANITE.name]
    assert model["type"] == "machine-learning-model"
    digests = {file["name"]: file["hashes"][0]["content"] for file in model["components"]}
    folder = package_folder(GRANITE)
    assert digests == {
        file.path: sha256((folder / file.path).read_bytes()).hexdigest() for file in GRANITE.files
    }
    references = {component["bom-ref"] for component in components.values()}
    root = bill["metadata"]["component"]["bom-ref"]
    graph = {entry["ref"]: set(entry["dependsOn"]) for entry in bill["dependencies"]}
    reached, waiting = set[str](), [root]
    while waiting:
        needs = graph.get(waiting.pop(), set()) - reached
        reached |= needs
        waiting += needs
    assert reached == references


def test_the_bill_of_materials_is_reproducible_and_has_extras_on_request() -> None:
    assert bill_of_materials("postgres") == bill_of_materials("postgres")
    names = {each["name"] for each in json.loads(bill_of_materials("postgres"))["components"]}
    assert {"psycopg", "psycopg-pool"} <= names


def build(folder: Path, mask: int, time_ns: int, **environment: str) -> Path:
    """Copy what a wheel is built from, with other modes and times of files, and build it."""
    folder.mkdir()
    sources = (".gitignore", "LICENSE", "README.md", "pyproject.toml", "scripts", "skills", "src")
    for name in sources:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    # As left behind by a build that was killed, and by another version.
    for left in (f"draft.onnx.{mask}", f"old-{mask}.onnx"):
        (folder / "src" / "marklight" / "models" / "bundled" / left).write_bytes(b"")
    for path in (path for path in folder.rglob("*") if path.is_file()):
        path.chmod(path.stat().st_mode & ~mask)
        os.utime(path, ns=(time_ns, time_ns))
    wheel = subprocess.run(
        [sys.executable, "-c", BUILD, folder.parent / f"{folder.name}-wheel"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[-1]
    return folder.parent / f"{folder.name}-wheel" / wheel


def test_two_builds_give_the_same_wheel(tmp_path: Path) -> None:
    first = build(tmp_path / "first", 0o022, 10**18, TZ="UTC", PYTHONHASHSEED="1")
    second = build(tmp_path / "second", 0o077, 10**18 + 10**17, TZ="Asia/Tokyo", LC_ALL="C")
    with ZipFile(first) as one, ZipFile(second) as two:
        assert [(file.filename, file.CRC) for file in one.infolist()] == [
            (file.filename, file.CRC) for file in two.infolist()
        ]
    assert sha256(first.read_bytes()).digest() == sha256(second.read_bytes()).digest()
