"""Life cycle of a deployment on this machine."""

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.emulator.aws_emulator import REGION, answers, free_port
from infra.emulator.aws_functions import SLOW_EMULATOR, passed_on, provider_keys
from infra.emulator.deployment.background import BackgroundProcesses, end
from infra.emulator.deployment.cdk import Cdk
from infra.emulator.deployment.database import embedded, start_database, start_proxy
from infra.emulator.deployment.emulated_account import Deployed, EmulatedAccount
from infra.emulator.deployment.localstack import (
    HEALTH_PATH,
    MODULE_WITH_PLUGINS,
    install_localstack,
    install_plugins,
    localstack_variables,
)
from infra.emulator.localstack_plugins.settings import Settings
from vectorforge.config import VectorForgeConfig
from vectorforge.embedding.providers.minilm import DIMENSION
from vectorforge.errors import ConfigurationError
from vectorforge.local.account import account_for, make_folder

ROOTS = ("/var/task/certificates/database.pem", "/var/task/certificates/proxy.pem")
"""Paths of the root certificates in the functions' database URLs (infra/data/database.py)."""

_START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 3.0
"""Before SIGKILL: none of the processes has a state to save, and LocalStack takes ten seconds to end."""
_MODEL = "all-MiniLM-L6-v2"
_PORTS = ("aws", "database", "embeddings")
_EMULATOR, _EMBEDDINGS = "localstack", "embeddings"


@dataclass(frozen=True, slots=True)
class LocalDeployment:
    """A deployment; everything of it is in its folder.

    Attributes:
        folder: Absolute.
        note: Called with each step.
    """

    folder: Path
    note: Callable[[str], None] = lambda _: None

    @property
    def logs(self) -> Path:
        """Folder with one log for each process and each function."""
        return self.folder / "logs"

    @property
    def report(self) -> Path:
        """Report of the changes to the production templates."""
        return self.logs / "emulated_template.txt"

    @property
    def _complete(self) -> Path:
        """Marker of a successful last deployment."""
        return self.folder / "complete"

    def deploy(self, config: VectorForgeConfig, *, stage: str, port: int, cache: Path) -> Deployed:
        """Start what is not running, and update the stacks.

        Args:
            config: Settings of this environment; the providers' keys are stored in the deployment's secret.
            stage: A stage of infra/settings.py.
            port: Port of LocalStack at its first start; 0 takes a free one.
            cache: For what can be made again: LocalStack's installation.

        Raises:
            ConfigurationError: A prerequisite is missing or a step failed; the text says what to do.
            DatabaseUnavailableError: The database failed to start.
        """
        make_folder(self.folder, account_for(self.folder / "postgres"))
        self.logs.mkdir(exist_ok=True)
        with self._lock(), ThreadPoolExecutor(1) as background:
            try:
                return self._deploy(config, background, stage=stage, port=port, cache=cache)
            except KeyboardInterrupt:
                self._end_orphans()  # a signal to this process alone does not reach them
                raise

    def _deploy(
        self, config: VectorForgeConfig, background: ThreadPoolExecutor, *, stage: str, port: int, cache: Path
    ) -> Deployed:
        cdk = Cdk(self.folder, self.logs / "cdk.log", stage)
        self.note("Synthesizing the production templates and bundling the functions ...")
        ports = self._ports(port)
        synthesizing = background.submit(cdk.synthesize, _environment(ports))
        roots = self._start_database(ports["database"])
        self._start_embeddings(ports["embeddings"])
        account = EmulatedAccount(f"http://127.0.0.1:{ports['aws']}")
        is_new = self._start_emulator(ports["aws"], cache, roots)
        synthesizing.result()
        try:
            self._deploy_stacks(cdk, account, ports)
        except ConfigurationError as exc:
            if is_new:
                raise
            self.note(f"{exc.message}\nLocalStack cannot apply every update; recreating the stacks ...")
            self._start_emulator(ports["aws"], cache, roots)
            self._deploy_stacks(cdk, account, ports)
        deployed = account.look(stage)
        account.store_keys(deployed.provider_secret_id, provider_keys(config))
        self.note("Waiting for an answer ...")
        self._wait_for_answer(deployed)
        return deployed

    def destroy(self, *, delete_data: bool = False) -> bool:
        """Stop the processes that ``deploy`` started, and delete their temporary files.

        Args:
            delete_data: Delete database and logs, too.

        Returns:
            Whether anything was running.

        Raises:
            DatabaseUnavailableError: The database failed to stop.
        """
        if not self.folder.exists():
            return False
        with self._lock():
            self._end_orphans()
            processes = self._processes()
            ended = [
                name
                for name in reversed(processes.names())
                if processes.stop(name, timeout_s=_STOP_TIMEOUT_S)
            ]
            server = embedded(self.folder)
            if server.running_pid() is not None:
                server.stop(force=True)
                ended.append("postgres")
            for name in ("emulator", "plugins", "cdk.out.local"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        if delete_data:
            self._delete()
        return bool(ended)

    def _delete(self) -> None:
        """Delete the folder, also while the synthesis of a killed command still writes to it."""
        give_up_at = time.monotonic() + _STOP_TIMEOUT_S
        while self.folder.exists():
            shutil.rmtree(self.folder, ignore_errors=time.monotonic() < give_up_at)

    def _end_orphans(self) -> None:
        """End commands of CDK that survive a killed ``deploy``, and would go on writing into the folder."""
        import psutil

        assemblies = {str(self.folder / "cdk.out"), str(self.folder / "cdk.out.local")}
        for process in psutil.process_iter(["cmdline"]):
            if not assemblies.isdisjoint(process.info["cmdline"] or ()):
                end(process, timeout_s=_STOP_TIMEOUT_S)

    # -- processes

    def _start_database(self, port: int) -> Path:
        self.note("Starting PostgreSQL, and PgBouncer before it ...")
        server, certificates = start_database(self.folder)
        start_proxy(self._processes(), self.folder, server, certificates, port)
        return certificates.root

    def _start_embeddings(self, port: int) -> None:
        """Start the local model, which no bundle holds."""
        self.note("Starting the embedding model ...")
        log = self.logs / f"{_EMBEDDINGS}.log"
        command = [sys.executable, "-m", "infra.emulator.deployment.embeddings_server", "--port", str(port)]
        self._processes().start(_EMBEDDINGS, command, log=log)
        self._wait_for(_EMBEDDINGS, f"http://127.0.0.1:{port}/health", log)

    def _start_emulator(self, port: int, cache: Path, roots: Path) -> bool:
        """Start LocalStack unless it is running; restart it after a failed deployment.

        Returns:
            Whether it was started.
        """
        processes = self._processes()
        if processes.is_running(_EMULATOR):
            if self._complete.exists():
                return False
            processes.stop(_EMULATOR, timeout_s=_STOP_TIMEOUT_S)
        self.note("Starting LocalStack ...")
        python = install_localstack(cache)
        state = self.folder / "emulator"
        shutil.rmtree(state, ignore_errors=True)
        (state / "tmp").mkdir(parents=True)
        plugins = install_plugins(self.folder / "plugins")
        functions = Settings(logs=str(self.logs), mounts=dict.fromkeys(ROOTS, str(roots)))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(state),
            "TMPDIR": str(state / "tmp"),
            **localstack_variables(port, state, REGION, plugins=plugins, functions=functions),
        }
        log = self.logs / f"{_EMULATOR}.log"
        command = [str(python), "-m", MODULE_WITH_PLUGINS]
        processes.start(_EMULATOR, command, log=log, environment=environment)
        self._wait_for(_EMULATOR, f"http://127.0.0.1:{port}{HEALTH_PATH}", log)
        return True

    def _processes(self) -> BackgroundProcesses:
        return BackgroundProcesses(self.folder / "processes.json")

    def _wait_for(self, name: str, url: str, log: Path) -> None:
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while not answers(url):
            if time.monotonic() > give_up_at or not self._processes().is_running(name):
                raise ConfigurationError(f"{name} failed to start; see {log}.")
            time.sleep(0.1)

    def _ports(self, port: int) -> dict[str, int]:
        """Return the ports of the first start, so that printed addresses stay valid."""
        file = self.folder / "ports.json"
        if file.exists():
            found: dict[str, int] = json.loads(file.read_text())
            return found
        advice = "Choose another with --port."
        taken = {free_port(port, advice)}
        while len(taken) < len(_PORTS):
            taken.add(free_port(0, ""))
        ports = dict(zip(_PORTS, sorted(taken, key=lambda one: one != port), strict=True))
        file.write_text(json.dumps(ports))
        return ports

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one command at a time."""
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise ConfigurationError(f"Another command is using {self.folder}.") from exc
            yield

    # -- stacks

    def _deploy_stacks(self, cdk: Cdk, account: EmulatedAccount, ports: Mapping[str, int]) -> None:
        account.bootstrap()
        self._turn(cdk, account, ports)
        self.note("Deploying the stacks with cdk deploy ...")
        self._complete.unlink(missing_ok=True)
        cdk.deploy(account.endpoint_url)
        account.check_stacks(cdk.stacks())
        cdk.delete_former_code()
        self._complete.touch()

    def _turn(self, cdk: Cdk, account: EmulatedAccount, ports: Mapping[str, int]) -> None:
        proxy = f"localhost:{ports['database']}"
        references = {
            "AWS::RDS::DBProxy.Endpoint": proxy,
            "AWS::RDS::DBInstance.Endpoint.Address": proxy,
            "AWS::RDS::DBInstance.DbiResourceId": "embedded-postgres",
            "AWS::RDS::DBInstance.MasterUserSecret.SecretArn": account.owner_secret(),
        }
        told = cdk.turn(references)
        self.report.write_text(told)
        counts = [line.rstrip(":") for line in told.splitlines() if line.endswith(":")]
        self.note(f"Changed the templates for the emulator: {', '.join(counts)}; see {self.report}")

    def _wait_for_answer(self, deployed: Deployed) -> None:
        host, _, path = deployed.url.removeprefix("http://").partition("/")
        url = f"http://127.0.0.1:{host.rpartition(':')[2]}/{path}/health"
        give_up_at = time.monotonic() + _ANSWER_TIMEOUT_S
        while not answers(url, host, timeout_s=_ANSWER_TIMEOUT_S):
            if time.monotonic() > give_up_at:
                raise ConfigurationError(f"The API does not answer; see {self.logs}.")
            time.sleep(0.5)


def _environment(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the variables of every function besides those of production."""
    return {
        **SLOW_EMULATOR,
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": f"http://127.0.0.1:{ports['embeddings']}/v1",
        "VECTORFORGE_EMBEDDING_MODEL": _MODEL,
        "VECTORFORGE_EMBEDDING_DIMENSION": str(DIMENSION),
        **passed_on(),
    }
