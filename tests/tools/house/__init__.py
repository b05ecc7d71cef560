"""A report on the shape of the code, for people to look at: `make house`. It fails on nothing."""
