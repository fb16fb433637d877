"""Patch that lets LocalStack move an alias to another version, as CloudFormation does in every update.

LocalStack 4.13 mistakes an alias for one of another function if the function's code has changed, and fails to
create a second one of the same name.
"""

from typing import Any

_NEW_ALIAS = ["/properties/Name"]
"""Properties whose change replaces the alias; LocalStack adds ``FunctionName``, a reference."""
_UPDATED = ("FunctionName", "FunctionVersion", "Name", "Description", "RoutingConfig")


def let_aliases_move() -> None:
    """Patch LocalStack's provider of ``AWS::Lambda::Alias`` in this process."""
    from localstack.services.lambda_.resource_providers.lambda_alias import LambdaAliasProvider

    LambdaAliasProvider.SCHEMA = {**LambdaAliasProvider.SCHEMA, "createOnlyProperties": _NEW_ALIAS}
    LambdaAliasProvider.update = _update


def _update(_: Any, request: Any) -> Any:
    from localstack.services.cloudformation.resource_provider import OperationStatus, ProgressEvent

    model = request.desired_state
    wanted = {name: model[name] for name in _UPDATED if name in model}
    answer = request.aws_client_factory.lambda_.update_alias(**wanted)
    return ProgressEvent(OperationStatus.SUCCESS, resource_model={**model, "Id": answer["AliasArn"]})
