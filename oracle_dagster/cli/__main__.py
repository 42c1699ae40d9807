"""`python -m oracle_dagster.cli` is `oracle`."""

from oracle_dagster.cli import main

main()
