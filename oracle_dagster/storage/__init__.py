"""PostgreSQL: schema, migrations, reading slices as columns, writing slices in one transaction."""
