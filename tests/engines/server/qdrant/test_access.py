"""API key and TLS of Qdrant, with real servers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines import QdrantSettings, ServerSettings
from marklight.engines.server.qdrant.cluster import Cluster
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters
from tests.contracts.builders import entry
from tests.servers.postgres import new_library
from tests.servers.qdrant import Unavailable, running_nodes

KEY = "a-key-that-nobody-prints"


@contextmanager
def secured(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a new library on a node that was started with these settings."""
    try:
        with running_nodes(settings=environment) as (node,), new_library() as address:
            yield f"{address}&vectors=qdrant://{node.address}"
    except Unavailable as reason:
        pytest.skip(str(reason))


def opened(address: str, settings: QdrantSettings) -> Engine:
    return engines.open(address, ServerSettings(qdrant=settings))


def write_and_search(engine: Engine) -> list[str]:
    with engine.writing(5):
        engine.commit(Batch(entries=(entry("a.md", "apple"),)))
    with engine.snapshot() as snapshot:
        found = snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 5)
        return [snapshot.documents.owners([each.chunk_id])[each.chunk_id].path for each in found]


def test_a_key_from_the_environment_is_needed_and_never_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with secured({"QDRANT__SERVICE__API_KEY": KEY}) as address:
        for wrong in ("", "wrong-" + KEY):
            monkeypatch.setenv("QDRANT_API_KEY", wrong)
            engine = opened(address, QdrantSettings())
            with pytest.raises(StoreError) as raised:
                write_and_search(engine)
            engine.close()
            assert "refuses the API key" in str(raised.value)
            assert "QDRANT_API_KEY" in str(raised.value.hint)
            assert KEY not in str(raised.value)
        monkeypatch.setenv("QDRANT_API_KEY", KEY)
        engine = opened(address, QdrantSettings())
        assert write_and_search(engine) == ["a.md"]
        assert KEY not in f"{engine.describe()} {engine.server()}"
        engine.close()


@pytest.fixture
def certificates() -> Iterator[Path]:
    """A folder with an authority (`ca.pem`) and a certificate for 127.0.0.1, made by openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl")
    # Not below the folder of the test: the server is another user, who may not enter that.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
        for arguments in (
            ["-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority"],
            [
                *("-x509", *key, "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=node"),
                *("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-addext", "basicConstraints=critical,CA:FALSE"),
            ],
        ):
            command = [openssl, "req", *arguments]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (folder / "key.pem").chmod(0o644)
        yield folder


def test_a_node_is_checked_with_the_certificates_of_an_authority(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        "QDRANT__SERVICE__ENABLE_TLS": "true",
        "QDRANT__TLS__CERT": str(certificates / "cert.pem"),
        "QDRANT__TLS__KEY": str(certificates / "key.pem"),
        "QDRANT__TLS__CA_CERT": str(certificates / "ca.pem"),
    }
    authority = str(certificates / "ca.pem")
    with secured(environment) as address:
        engine = opened(address, QdrantSettings(tls=True, ca_file=authority))
        assert write_and_search(engine) == ["a.md"]
        engine.close()
        monkeypatch.setattr(Cluster, "timeout_seconds", 3.0)
        for tls in (True, False):  # signed by no public authority, and without TLS
            engine = opened(address, QdrantSettings(tls=tls))
            with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
                write_and_search(engine)
            engine.close()
        with pytest.raises(StoreError, match=r"nowhere\.pem cannot be read"):
            opened(address, QdrantSettings(tls=True, ca_file="nowhere.pem"))
