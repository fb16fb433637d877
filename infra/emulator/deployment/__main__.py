"""``make deploy-local`` and ``make destroy-local``."""

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.emulator.announcement import announcement, note
from infra.emulator.deployment.emulated_account import Deployed, check_has_keys
from infra.emulator.deployment.local_deployment import LocalDeployment
from infra.settings import STAGES
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import VectorForgeError
from vectorforge.local.laptop import data_folder

_HELP = """\
Deploy the production stacks on this machine, without Docker, an account or a key.

"deploy" synthesizes the CDK app, drops what no emulator has
(infra/emulator/cloudformation/resources.py), and deploys the rest with cdk deploy into LocalStack,
which runs the functions as processes. The database is the embedded PostgreSQL behind PgBouncer.
Everything keeps running after the command; another "deploy" updates it. "destroy" stops what was
started here, and nothing else.
"""
_EXAMPLES = """\
examples:
  make deploy-local
  make deploy-local ARGS="--port 4570"
  make destroy-local
  make destroy-local ARGS="--delete-data"

It needs Node.js 20 or newer and PgBouncer (apt-get install pgbouncer). LocalStack 4.13.1 is
installed at first (320 MB). Without a key, answers quote the documents;
VECTORFORGE_OPENAI_API_KEY and the other keys are stored in the deployment's secret, and all other
VECTORFORGE_* settings in the functions' environment. See docs/operate/local-aws.md.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Deploy or destroy.

    Returns:
        0; or 1 on failure, with the reason on stderr; 130 after Ctrl-C or SIGTERM.
    """
    chosen = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        config = VectorForgeConfig.from_environment()
        folder = data_folder(config, chosen.data_dir) / "deployment"
        deployment = LocalDeployment(folder, note)
        if chosen.command == "destroy":
            return _destroy(deployment, delete_data=chosen.delete_data)
        check_has_keys(STAGES[chosen.stage])
        deployed = deployment.deploy(config, stage=chosen.stage, port=chosen.port, cache=_cache())
    except KeyboardInterrupt:
        note("Interrupted: repeat the command, or run make destroy-local.")
        return 130
    except VectorForgeError as exc:
        note(exc.message)
        return 1
    except OSError as exc:
        note(f"{exc.strerror}: {exc.filename}")
        return 1
    described = _as_json(deployed, deployment) if chosen.json else announcement_of(deployed, deployment)
    sys.stdout.write(described)
    return 0


def _destroy(deployment: LocalDeployment, *, delete_data: bool) -> int:
    ended = deployment.destroy(delete_data=delete_data)
    note("Stopped." if ended else "No deployment is running.")
    if not delete_data and deployment.folder.exists():
        note(f"Database and logs are kept in {deployment.folder}; --delete-data deletes them.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.emulator.deployment",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    deploy = commands.add_parser("deploy", help="start, deploy, and print the addresses")
    deploy.add_argument("--stage", default="dev", choices=list(STAGES), help="default: %(default)s")
    deploy.add_argument(
        "--port",
        type=int,
        default=4566,
        help="port of LocalStack at its first start; 0 takes a free one (%(default)s)",
    )
    deploy.add_argument("--json", action="store_true", help="print the addresses as one line of JSON")
    destroy = commands.add_parser("destroy", help="stop what deploy started")
    destroy.add_argument("--delete-data", action="store_true", help="also delete database and logs")
    for command in (deploy, destroy):
        command.add_argument(
            "--data-dir",
            type=Path,
            help="folder of the database and the logs (its subfolder deployment/ is used)",
        )
    return parser


def _as_json(deployed: Deployed, deployment: LocalDeployment) -> str:
    return f"{json.dumps({**dataclasses.asdict(deployed), 'folder': str(deployment.folder)})}\n"


def announcement_of(deployed: Deployed, deployment: LocalDeployment) -> str:
    """Return the addresses and keys of a deployment, and commands to try it."""
    (tenant, key), *others = deployed.api_keys.items()
    uploads = f"{deployed.endpoint_url}/{deployed.uploads_bucket}/{tenant}/COLLECTION/FILE"
    rows = {
        "API": f"{deployed.url}  (x-api-key: {key}; tenant {tenant})",
        **({"Further keys": ", ".join(f"{name}: {other}" for name, other in others)} if others else {}),
        "AWS services": f"{deployed.endpoint_url}  (AWS_ENDPOINT_URL; any credentials)",
        "Uploads": f"{uploads}  (PUT)",
        "Query log": deployed.query_log_queue_url,
        "": f"dead letters: {deployed.query_log_dead_letter_queue_url}",
        "Ingestion": deployed.ingestion_queue_url,
        " ": f"dead letters: {deployed.ingestion_dead_letter_queue_url}",
        "Secret": deployed.provider_secret_id,
        "Dropped": str(deployment.report),
        "Logs": f"{deployment.logs}/*.log",
    }
    title = "VectorForge is deployed, and runs until: make destroy-local\n"
    login = f"-H 'x-api-key: {key}' "
    return announcement(title, rows, url=deployed.url, uploads=uploads, login=login)


def _cache() -> Path:
    """Return the cache folder (https://specifications.freedesktop.org/basedir-spec/)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "vectorforge"


if __name__ == "__main__":
    sys.exit(main())
