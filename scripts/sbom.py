"""Print a software bill of materials (CycloneDX 1.6, JSON): run-time packages with licences, bundled files with digests.

Run it as `.venv/bin/python scripts/sbom.py [EXTRA …]`, in an environment that has `packaging`. Packages are those that
Marklight needs without extras, or with the named ones; what else is installed is left out. The same environment gives
the same bytes. A package without a licence, or a model file with another digest than its record, is an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from marklight.models.record import GRANITE, package_folder

ROOT = Path(__file__).resolve().parent.parent
FONT = ROOT / "src" / "marklight" / "surfaces" / "web" / "stix-two-math.woff2"
MAX_LICENCE = 100
"""Characters of a licence's name; some packages have the whole text in its place."""
_CLASSIFIER = "License :: "
Packages = dict[str, tuple[Distribution, set[str]]]
"""Distributions by name, with the names of those that each of them needs."""


def required_packages(name: str, extras: Iterable[str] = ()) -> Packages:
    """Return a package and everything that it needs on this platform."""
    packages: Packages = {}
    extras_of: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(name), frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        seen = extras_of.setdefault(name, set())
        if name in packages and wanted <= seen:
            continue
        seen |= wanted
        found = distribution(name)
        needs = packages.setdefault(name, (found, set()))[1]
        for requirement in map(Requirement, found.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *seen)):
                other = canonicalize_name(requirement.name)
                needs.add(other)
                waiting.append((other, frozenset(requirement.extras)))
    return packages


def licences(found: Distribution) -> list[dict[str, Any]]:
    """Return the licences of a distribution: its SPDX expression, else the names in its metadata."""
    metadata = found.metadata
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    name = (metadata.get("License") or "").strip()
    if name and len(name) <= MAX_LICENCE and "\n" not in name:
        return [{"license": {"name": name}}]
    classifiers = metadata.get_all("Classifier") or []
    names = [text.split(" :: ")[-1] for text in classifiers if text.startswith(_CLASSIFIER)]
    return [{"license": {"name": name}} for name in names]


def package_component(name: str, found: Distribution) -> dict[str, Any]:
    """Return the component of a distribution; exit if it has no licence."""
    known = licences(found)
    if not known:
        sys.exit(f"{name} {found.version} names no licence.")
    purl = f"pkg:pypi/{name}@{found.version}"
    kind = "application" if name == "marklight" else "library"
    fields = {"type": kind, "bom-ref": purl, "name": name, "version": found.version}
    return {**fields, "licenses": known, "purl": purl}


def file_component(path: Path, kind: str = "file") -> dict[str, Any]:
    """Return the component of a file, with its digest."""
    digest = sha256(path.read_bytes()).hexdigest()
    reference = f"file:{path.name}"
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": kind, "bom-ref": reference, "name": path.name, "hashes": hashes}


def bundled_components() -> list[dict[str, Any]]:
    """Return the model and the font that the wheel contains; exit if a file of the model has another digest than its record."""
    folder, files = package_folder(GRANITE), []
    for file in GRANITE.files:
        component = file_component(folder / file.path)
        if component["hashes"][0]["content"] != file.sha256:
            sys.exit(f"{file.path} does not have the SHA-256 of its record.")
        files.append(component)
    model = {
        "type": "machine-learning-model",
        "bom-ref": f"model:{GRANITE.name}",
        "name": GRANITE.name,
        "version": GRANITE.weights,
        "description": f"Converted from {GRANITE.source} ({GRANITE.recipe})",
        "licenses": [{"license": {"id": GRANITE.licence}}],
        "components": files,
    }
    font = {**file_component(FONT), "licenses": [{"license": {"id": "OFL-1.1"}}]}
    return [model, font]


def bill_of_materials(extras: Iterable[str] = ()) -> dict[str, Any]:
    """Return the bill of materials of Marklight with some extras."""
    packages, bundled = required_packages("marklight", extras), bundled_components()
    components = {
        name: package_component(name, found) for name, (found, _) in sorted(packages.items())
    }
    root = components.pop("marklight")
    references = {name: component["bom-ref"] for name, component in components.items()}
    references["marklight"] = root["bom-ref"]
    dependencies = {
        references[name]: sorted(references[need] for need in needs if need != name)
        for name, (_, needs) in packages.items()
    }
    dependencies[root["bom-ref"]] += [component["bom-ref"] for component in bundled]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [*components.values(), *bundled],
        "dependencies": [
            {"ref": reference, "dependsOn": needs}
            for reference, needs in sorted(dependencies.items())
        ],
    }


if __name__ == "__main__":
    wrong = [extra for extra in sys.argv[1:] if not re.fullmatch(r"[a-z0-9-]+", extra)]
    if wrong:
        sys.exit(f"{wrong[0]} is not the name of an extra.")
    print(json.dumps(bill_of_materials(sys.argv[1:]), indent=2))
