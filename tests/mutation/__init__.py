"""Mutation testing of the rules in `oracle_core`: `make mutants`; a part with `ARGS='trend projection'`."""
