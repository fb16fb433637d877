"""The second argument of a Lambda handler."""

from dataclasses import dataclass

from tests.support.aws.fake_aws import REGION


@dataclass(frozen=True, slots=True)
class LambdaContext:
    """Invocation data passed to a handler."""

    function_name: str = "test"
    memory_limit_in_mb: int = 128
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:123456789012:function:test"
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"
    remaining_ms: int = 30_000

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds left."""
        return self.remaining_ms
