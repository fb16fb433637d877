"""The AWS account of a laptop: emulators, and a deployment of the CDK app to them.

The only part of infra that imports the library.
"""
