"""Address of ``vectorforge up``: options, else that of a Lambda Web Function, else this machine's."""

import subprocess

import pytest

from tests.support.command_line import VECTORFORGE
from vectorforge.cli.commands.serve import listening_address
from vectorforge.errors import ConfigurationError


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        (None, ("127.0.0.1", 8000)),
        ("", ("127.0.0.1", 8000)),
        ("0.0.0.0:3000", ("0.0.0.0", 3000)),  # noqa: S104 - the value of Lambda
        ("[::]:3000", ("::", 3000)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_address_is_read_from_endpoint_of_lambda(endpoint: str | None, address: tuple[str, int]) -> None:
    assert listening_address(endpoint) == address


@pytest.mark.parametrize(
    "endpoint", ["3000", ":3000", "host:", "host:http", "host:65536", "host:-1", "host:²"]
)
def test_other_form_is_rejected(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="AWS_LAMBDA_HTTP_ENDPOINT must be host:port"):
        listening_address(endpoint)


def test_up_reads_the_variable_and_demands_a_login_for_other_machines() -> None:
    done = subprocess.run(
        [VECTORFORGE, "up"],
        env={"PATH": "/usr/bin:/bin", "AWS_LAMBDA_HTTP_ENDPOINT": "0.0.0.0:3000"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "--host 0.0.0.0 lets other machines read" in " ".join(done.stderr.split())
