"""Mutation testing of the rules in `oracle_core`: `make mutants`, or with `ARGS='trend projection'` a part."""
