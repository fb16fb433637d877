"""Contract suites and protocol-faithful doubles. Never imported by production code."""
