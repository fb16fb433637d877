"""Building blocks of the stacks: functions, their code, queues, buckets, Bedrock access."""
