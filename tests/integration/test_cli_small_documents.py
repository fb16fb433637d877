"""``vectorforge ingest`` of many small files: a real process, and a model that counts its requests."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from psycopg.conninfo import make_conninfo

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer

FILES = 40


# Forty files share two requests; a larger file has its own
async def test_small_files_share_embedding_requests(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    for number in range(FILES):
        text = f"# Guide {number}\n\nStep {number} follows step {number - 1}.\n"
        (tmp_path / f"{number:02}.md").write_text(text)
    (tmp_path / "large.txt").write_text("A sentence of some words. " * 400)
    async with FakeEmbeddingsServer(dimension=64, api_key="sk-embedder") as embedder:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("vectorforge"), "ingest", ".", "--json",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            env=inherited | {
                "VECTORFORGE_DATABASE_URL": make_conninfo(make_database(), user="vectorforge_app"),
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
                "VECTORFORGE_EMBEDDING_BASE_URL": embedder.base_url,
                "VECTORFORGE_EMBEDDING_MODEL": "fake-embeddings",
                "VECTORFORGE_EMBEDDING_DIMENSION": "64",
                "VECTORFORGE_EMBEDDING_API_KEY": "sk-embedder",
            },
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(output)["succeeded"] == FILES + 1
        sizes = sorted(len(request["input"]) for request in embedder.requests)
    assert len(sizes) <= 4, sizes
    assert FILES in sizes, sizes
