"""The data stack: network, database and the providers' keys, which outlive deployments of the functions."""
