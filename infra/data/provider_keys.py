"""The secret with the vendors' keys."""

from aws_cdk import CfnOutput, SecretValue, Stack
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.encryption import customer_key
from infra.constructs.python_function import PythonFunction
from infra.constructs.retention import removal
from infra.stage_settings import StageSettings


class ProviderKeys(Construct):
    """Keys of LLM and embedding vendors as a JSON object, empty at first (docs/operate/secrets.md).

    Attributes:
        secret: The secret.
        environment: Variables of the functions that ask vendors.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            secret_name=stage.provider_secret,
            encryption_key=customer_key(self, stage),
            description='Vendors\' keys as a JSON object of settings: {"openai_api_key": "..."}',
            # Without a value CDK lets AWS make a random text up, which is no object of keys.
            secret_string_value=SecretValue.unsafe_plain_text("{}"),
            removal_policy=removal(stage),
        )
        self.environment = {
            "VECTORFORGE_PROVIDER_SECRET_ID": self.secret.secret_arn,
            "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",  # the local model is in no bundle
            **stage.environment,
        }
        # `printf` is the shell's own: no list of processes shows the key, nor does the shell's history.
        CfnOutput(
            Stack.of(self),
            "ProviderKeyCommand",
            description="Asks for a key of OpenAI, and stores it as the only content of the secret",
            value=(
                'printf "Key: "; read -rs K && printf \'{"openai_api_key": "%s"}\' "$K" | '
                f"aws secretsmanager put-secret-value --region {Stack.of(self).region} "
                f"--secret-id {stage.provider_secret} --secret-string file:///dev/stdin"
            ),
        )

    def allow_reading(self, function: PythonFunction) -> None:
        """Allow a function to read the keys, but not the tags and policies of the secret."""
        function.allow("secretsmanager:GetSecretValue", on=[self.secret.secret_arn])
