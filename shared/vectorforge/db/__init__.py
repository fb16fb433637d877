"""PostgreSQL: connections with a tenant, migrations, repositories."""
