"""Emulated AWS on one machine: the Lambda service, and deployments into moto and LocalStack.

The only part of infra that imports the library.
"""
