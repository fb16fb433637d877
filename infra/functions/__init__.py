"""The Lambda functions of the application stack, each with its triggers, queues and permissions."""
