"""Run fault campaigns against a running system (``make campaign``) and report the outcome.

Parts: faults (the default), streams, waves, messages, tenancy, erasure, query-log; each has its own --help.
"""

import importlib
import logging
import sys

PARTS = {
    "faults": "tests.campaigns.fault_campaign",
    "streams": "tests.campaigns.stream_campaign",
    "waves": "tests.campaigns.wave_campaign",
    "messages": "tests.campaigns.message_campaign",
    "tenancy": "tests.campaigns.tenancy_campaign",
    "erasure": "tests.campaigns.erasure_campaign",
    "query-log": "tests.campaigns.query_log_campaign",
}

_HELP = """usage: make campaign ARGS="[part] [options]"

  faults      the fault matrix: each row injects its fault under load (default)
  streams     streams cut in eight ways: one terminal event each
  waves       waves of killed database connections: what is answered, what is lost
  messages    100,000 messages of the query log, doubled and poisoned: exactly the right rows
  tenancy     interleaved transactions of 50 tenants through PgBouncer: no foreign row
  erasure     a tenant of 10,000 passages erased, and looked for in dump, queues, buckets and logs
  query-log   the query function killed at twelve points: one row for each question

make campaign ARGS="faults --help" explains a part and its options.
"""


def main() -> None:
    """Run the part named by the first argument."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["--help"], ["-h"]):
        print(_HELP, end="")
        return
    part = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "faults"
    if part not in PARTS:
        print(f"There is no part {part!r}.\n\n{_HELP}", end="", file=sys.stderr)
        sys.exit(2)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # it would report every client that disconnects
    importlib.import_module(PARTS[part]).main(arguments)


if __name__ == "__main__":
    main()
