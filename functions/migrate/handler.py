"""Bring the database schema up to date: as a CloudFormation custom resource, or called directly."""

import gc

gc.disable()  # imports create no garbage, and collections take 4 to 12 % of a start

from vectorforge.aws.handlers.migrate import MigrateFunction  # noqa: E402 - after gc.disable

handler = MigrateFunction()
gc.freeze()  # later collections skip these objects
gc.enable()
