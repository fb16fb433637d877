"""Files and vector stores with the unmodified ``openai`` package for JavaScript."""

from tests.clients.conftest import RunNode
from tests.clients.guides import Guides


async def test_openai_package_uploads_and_searches_files(guides: Guides, run_node: RunNode) -> None:
    got = await run_node("files.mjs", guides.options)
    uploaded, batch, renamed = got["uploaded"], got["batch"], got["renamed"]
    assert (uploaded["status"], uploaded["object"]) == ("completed", "vector_store.file")
    assert (batch["status"], batch["file_counts"]["completed"]) == ("completed", 2)
    assert got["updated"]["attributes"] == {"kind": "press"}
    assert [(one["file_id"], one["filename"]) for one in got["found"]] == [(uploaded["id"], "press.md")]
    assert (renamed["name"], renamed["metadata"]) == ("hall", {"floor": "3"})
    assert renamed["file_counts"]["total"] == 3
    assert got["content"] == "The saw is oiled every Monday."
    assert sorted(one["filename"] for one in got["attached"]) == ["drill.md", "lathe.md", "press.md"]
    assert got["deleted"]["deleted"] is True
    assert got["failure"]["status"] == 404
    assert "not found" in got["failure"]["message"]
