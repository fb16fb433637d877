"""Plug-ins for LocalStack: Lambda functions run as processes, and custom resources are invoked.

LocalStack loads them in an environment of its own, where nothing of VectorForge is: these modules import
each other, the standard library and LocalStack.
"""
