"""The functions' bundles and the stacks' templates, each built once for all processes of a run.

Bundles are for the Python and the machine that the tests run on.
"""

import dataclasses
import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest

from infra.bundling.bundle import Bundle, make_bundle
from infra.setting_types import BackupSettings, CustomDomain, MonitoringSettings, TokenIssuer
from infra.settings import DEV, LARGE, LEAN, PROD
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate
from tests.support.aws.scripted_aws import ScriptedAws

if TYPE_CHECKING:
    from aws_cdk import App

    from tests.infra.deployment_commands import Commands
    from tests.infra.deployment_doctor import Doctor

PLATFORM = f"{platform.machine()}-manylinux_2_34"

# Depends on the machine, and prints a banner in every output.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")

VARIANTS = (
    DEV,
    LEAN,
    PROD,
    LARGE,
    dataclasses.replace(
        DEV,
        stage="url",
        front_door="function_url",
        query=dataclasses.replace(DEV.query, max_concurrency=50),
        cors_origins=("https://app.example.org",),
        monitoring=MonitoringSettings(),
    ),
    dataclasses.replace(
        LEAN,
        stage="web",
        cors_origins=("https://*.example.org", "http://localhost:3000"),
        monitoring=MonitoringSettings(),
    ),
    dataclasses.replace(
        PROD,
        stage="both",
        authorizer=None,
        front_door="both",
        backup=BackupSettings(restore_test=True),
        start="provisioned",
        provisioned_concurrency=2,
        query=dataclasses.replace(PROD.query, max_concurrency=50),
        api_gateway_log_role=False,
        uploads_kept_days=None,
        upload_origins=("https://docs.example.org",),
        tenants=("acme", "beta-2"),
        iam_tenants={"arn:aws:iam::123456789012:role/teams/acme-reader": "acme"},
        cloudfront_domain=CustomDomain(
            "ask.example.org", "arn:aws:acm:us-east-1:123456789012:certificate/11111111-2222-3333"
        ),
    ),
)
"""The stages, and further variants of their settings."""

AURORA_WITH_TOKENS = dataclasses.replace(
    PROD,
    stage="aurora",
    database=dataclasses.replace(PROD.database, engine="aurora", readers=1),
    backup=BackupSettings(restore_test=True),
    authorizer=None,
    token_issuer=TokenIssuer("https://idp.example", "vectorforge", "https://idp.example/jwks.json"),
)
"""Has no instance of RDS and no gateway keys, which tests of all variants expect."""

MadeOnce: TypeAlias = Callable[[str, Callable[[Path], str]], tuple[Path, str]]


@pytest.fixture(scope="session")
def uv() -> str:
    """Return the uv program that runs these tests."""
    found = os.environ.get("UV") or shutil.which("uv")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Fill a new folder in the first process of a run that requests it by this name.

    Returns the folder, and the report about it.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, make: Callable[[Path], str]) -> tuple[Path, str]:
        folder, report_file = shared / name, shared / f"{name}.said"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not report_file.exists():
                shutil.rmtree(folder, ignore_errors=True)  # left by a failed attempt
                report_file.write_text(make(folder))
        return folder, report_file.read_text()

    return made


@pytest.fixture(scope="session")
def bundle(made_once: MadeOnce) -> Callable[[str], tuple[Path, Bundle]]:
    """Build the bundle of a function; return its folder and the report."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    @cache
    def made(function: str) -> tuple[Path, Bundle]:
        def make(folder: Path) -> str:
            report = make_bundle(function, folder, python_version=version, platform=PLATFORM)
            return json.dumps(dataclasses.asdict(report))

        folder, report = made_once(f"bundle-{function}", make)
        return folder, Bundle(**json.loads(report))

    return made


@pytest.fixture(scope="session")
def bare_python() -> tuple[str, ...]:
    """Return a Python that sees only its standard library and PYTHONPATH."""
    return (sys.executable, "-S", "-P", "-B", "-W", "error")


@pytest.fixture(scope="session")
def bare_environment() -> Callable[..., dict[str, str]]:
    """Return the environment of a process over a bundle: no variables of ours, and no home."""

    def environment(folder: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        bare = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
        return {**bare, **(variables or {})}

    return environment


@pytest.fixture(scope="session")
def cdk_app(tmp_path_factory: pytest.TempPathFactory) -> "App":
    """Build all variants in one app, without bundles, for tests of constructs; ``assembly`` is its output."""
    from aws_cdk import App

    from infra.app import build

    outdir = str(tmp_path_factory.mktemp("assembly"))
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=outdir)
    for stage in (*VARIANTS, AURORA_WITH_TOKENS):
        build(app, stage)
    return app


@pytest.fixture(scope="session")
def assembly(made_once: MadeOnce, request: pytest.FixtureRequest) -> Path:
    """Synthesize all variants: ``<stack>.template.json`` for each stage."""

    def synthesize(_: Path) -> str:
        app: App = request.getfixturevalue("cdk_app")
        return str(app.synth().directory)

    return Path(made_once("assembly", synthesize)[1])


@pytest.fixture(scope="session")
def app_templates(assembly: Path) -> dict[str, StackTemplate]:
    """Return the app stack of each variant by stage."""
    return _templates(assembly, "App")


@pytest.fixture(scope="session")
def data_templates(assembly: Path) -> dict[str, StackTemplate]:
    """Return the data stack of each variant by stage."""
    return _templates(assembly, "Data")


def _templates(assembly: Path, stack: str) -> dict[str, StackTemplate]:
    def read(stage: StageSettings) -> StackTemplate:
        file = assembly / f"VectorForge-{stage.stage}-{stack}.template.json"
        return StackTemplate(json.loads(file.read_text()))

    return {stage.stage: read(stage) for stage in VARIANTS}


@pytest.fixture(params=VARIANTS, ids=lambda stage: stage.stage)
def stage(request: pytest.FixtureRequest) -> StageSettings:
    return cast("StageSettings", request.param)


@pytest.fixture
def template(stage: StageSettings, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[stage.stage]


@pytest.fixture(
    params=[stage for stage in VARIANTS if stage.front_door != "function_url"], ids=lambda stage: stage.stage
)
def rest(request: pytest.FixtureRequest, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[request.param.stage]


@pytest.fixture(
    params=[stage for stage in VARIANTS if stage.front_door != "rest_api"], ids=lambda stage: stage.stage
)
def url(request: pytest.FixtureRequest, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[request.param.stage]


@pytest.fixture(scope="session")
def doctor_assemblies(made_once: MadeOnce) -> Path:
    """Synthesize one assembly per stage: "dev" is dual-stack, "prod" has NAT, "lean" has a region."""
    from tests.infra.deployment_doctor import synthesize

    def make(folder: Path) -> str:
        folder.mkdir()
        synthesize(folder / "dev", "dev", nat=False)
        synthesize(folder / "prod", "prod", nat=True)
        synthesize(folder / "lean", "lean", nat=False, region="us-west-2")
        return ""

    return made_once("assemblies", make)[0]


@pytest.fixture(scope="session")
def scripted_aws() -> Iterator[ScriptedAws]:
    """Start the services of an AWS account."""
    with ScriptedAws() as server:
        yield server


@pytest.fixture
def account(scripted_aws: ScriptedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedAws:
    """Point the environment to an empty account, without other settings of this machine."""
    scripted_aws.reset()
    scripted_aws.recover()
    for name in [name for name in os.environ if name.startswith(("AWS_", "VECTORFORGE_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in scripted_aws.environment.items():
        monkeypatch.setenv(name, value)
    return scripted_aws


@pytest.fixture
def doctor(
    account: ScriptedAws,
    doctor_assemblies: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> "Doctor":
    """Run the doctor in a clone with the pinned CDK, a supported Node, and a bootstrapped account."""
    from tests.infra.deployment_doctor import Doctor, make_clone, stand_in

    account.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    stand_in(tmp_path / "tools", "echo v24.1.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    return Doctor(make_clone(tmp_path / "clone"), doctor_assemblies, account, monkeypatch, capsys)


@pytest.fixture
def commands(account: ScriptedAws, tmp_path: Path) -> "Commands":
    """Return our commands with an empty account and a CDK that only records its calls."""
    from tests.infra.deployment_commands import ROOT, Commands, write_stand_in

    write_stand_in(tmp_path)
    paths = os.pathsep.join((str(ROOT), str(ROOT / "shared")))
    return Commands(tmp_path, account, {**os.environ, "PYTHONPATH": paths})
