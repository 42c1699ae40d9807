"""A specification that runs: every rule of the product has a test here that names it."""
