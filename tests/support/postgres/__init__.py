"""PostgreSQL between the tests and the embedded server: PgBouncer, relays with faults, the pin detector."""
