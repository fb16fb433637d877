"""Print the files that one streamed hybrid query executes on a laptop, with the calls of each."""

import sys
import tempfile
from pathlib import Path

from tests.support.query_trace.laptop import trace_laptop_query
from vectorforge.local.postgres import EmbeddedPostgres


def main() -> None:
    """Trace one query and print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            trace = trace_laptop_query(folder)
        finally:
            EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)
    for file in trace.files:
        sys.stdout.write(f"{trace.calls[file]:6}  {file}\n")
    sys.stdout.write(f"{len(trace.calls)} files, {trace.lines} lines, {trace.total_calls} calls\n")


if __name__ == "__main__":
    main()
