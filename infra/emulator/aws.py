"""``make local-aws``: the system as it is deployed, on one machine, without Docker."""

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.emulator.announcement import announcement, note
from infra.emulator.aws_resources import MAX_RECEIVE_COUNT
from infra.emulator.aws_system import LocalPaths, RunningStack, running_system
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError, VectorForgeError
from vectorforge.local.laptop import LocalSetup, data_folder, local_setup, sample_documents

_HELP = """\
Run VectorForge on this machine as it runs on AWS, without Docker, a key or an account.

The four Lambda functions run as processes under an emulated Lambda service: the query function
streams its answers through a function URL; query logs and documents go through SQS; uploads to an
S3 bucket are ingested; the schema is made by the migrate function in an embedded PostgreSQL.
SQS, S3 and Secrets Manager come from an emulator, which is started and stopped with the rest.
"""
_EXAMPLES = """\
examples:
  make local-aws
  make local-aws ARGS="--port 9000 --no-sample"
  make local-aws ARGS="--endpoint-url http://localhost:4566"      an emulator that runs already

Without a key, answers quote the documents. VECTORFORGE_OPENAI_API_KEY and the other keys
are stored in the emulator's Secrets Manager, where the functions find them as on AWS; all other
VECTORFORGE_* settings are passed on. See docs/operate/local-aws.md.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C or SIGTERM.

    Returns:
        0; or 1 if it cannot start, with the reason on stderr.
    """
    chosen = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        config = VectorForgeConfig.from_environment()
        folder = data_folder(config, chosen.data_dir) / "aws"
        note("Starting the database ...")
        with local_setup(config, data_dir=folder, supervised=True, create=True) as setup:
            asyncio.run(_serve(setup, chosen, folder))
    except KeyboardInterrupt:
        note("Stopped.")
    except VectorForgeError as exc:
        sys.stderr.write(f"{exc.message}\n")
        return 1
    return 0


async def _serve(setup: LocalSetup, chosen: argparse.Namespace, folder: Path) -> None:
    try:
        places = LocalPaths(folder, chosen.port, chosen.aws_port)
    except OSError as exc:
        raise ConfigurationError(f"{folder} is not writable; choose another with --data-dir.") from exc
    system = running_system(
        setup,
        places,
        endpoint_url=chosen.endpoint_url,
        sample=_sample(setup.config) if chosen.sample else None,
        note=note,
    )
    async with system as running:
        described = _as_json(running) if chosen.json else _announcement(running, setup, places)
        sys.stdout.write(described)
        sys.stdout.flush()
        await asyncio.Event().wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.emulator.aws",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port of API and page; 0 takes a free one (%(default)s)"
    )
    parser.add_argument(
        "--aws-port", type=int, default=4566, help="port of the emulator; 0 takes a free one (%(default)s)"
    )
    parser.add_argument(
        "--endpoint-url",
        default=os.environ.get("AWS_ENDPOINT_URL") or None,
        help="use a running emulator instead of starting one (AWS_ENDPOINT_URL)",
    )
    parser.add_argument(
        "--no-sample", dest="sample", action="store_false", help="do not upload the project's README and docs"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="folder of the database and the logs (its subfolder aws/ is used)"
    )
    parser.add_argument("--json", action="store_true", help="print the addresses as one line of JSON")
    return parser


def _sample(config: VectorForgeConfig) -> dict[str, Path]:
    """Return the project's own documents by key; none if tenants have keys."""
    if config.server.api_keys:
        return {}
    prefix = f"{config.server.local_tenant}/{config.query.default_collection}"
    return {f"{prefix}/{source}": file for source, file in sample_documents()}


def _as_json(system: RunningStack) -> str:
    described = {
        "url": system.url,
        "endpoint_url": system.endpoint_url,
        **dataclasses.asdict(system.resources),
    }
    return f"{json.dumps(described)}\n"


def _announcement(system: RunningStack, setup: LocalSetup, places: LocalPaths) -> str:
    url, resources = system.url.replace("127.0.0.1", "localhost"), system.resources
    tries = f"after {MAX_RECEIVE_COUNT} tries: "
    tenant = "TENANT" if setup.config.server.api_keys else setup.config.server.local_tenant
    uploads = f"{system.endpoint_url}/{resources.uploads_bucket}/{tenant}/COLLECTION/FILE"
    keys = ", ".join(system.keys) or "no keys: answers are quoted"
    rows = {
        "Page and API": f"{url}  (the query function, streaming)",
        "AWS services": f"{system.endpoint_url}  (AWS_ENDPOINT_URL; any credentials)",
        "Uploads": f"{uploads}  (PUT)",
        "Query log": f"{resources.query_log_queue_url}",
        "": f"{tries}{resources.query_log_dead_letter_queue_url}",
        "Ingestion": f"{resources.ingestion_queue_url}",
        " ": f"{tries}{resources.ingestion_dead_letter_queue_url}",
        "Secret": f"{resources.provider_secret_id}  ({keys})",
        "Database": str(setup.config.database.data_dir) if setup.embedded else "VECTORFORGE_DATABASE_URL",
        "Logs": f"{places.logs}/*.log",
    }
    login = "-H 'authorization: Bearer KEY' " if setup.config.server.api_keys else ""
    title = "VectorForge runs as on AWS. Ctrl-C stops it.\n"
    return announcement(title, rows, url=url, uploads=uploads, login=login, curl="curl -sN")


if __name__ == "__main__":
    sys.exit(main())
