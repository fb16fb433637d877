"""Contract suites: tests to inherit, one class for each abstract adapter."""
