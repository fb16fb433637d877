"""Bring the database schema up to date: as a CloudFormation custom resource, or called directly."""

from vectorforge.aws.handlers.migrate import MigrateFunction

handler = MigrateFunction()
