"""Plug-ins for LocalStack: Lambda functions run as processes, and custom resources are invoked.

LocalStack loads them in an environment of its own, without VectorForge: these modules import each other,
``infra.emulator.lambda_service`` (copied along), the standard library and LocalStack.
"""
