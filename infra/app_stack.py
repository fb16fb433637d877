"""The functions and what wakes them; a new version of the code is an update of this stack alone."""

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.data_stack import DataStack
from infra.settings import StageSettings


class AppStack(Stack):
    """Composes; what it is made of defines itself."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, data: DataStack, **kwargs: Any
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
