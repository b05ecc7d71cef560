"""Mutation testing: the product is changed in one place at a time, and the tests must fail."""
