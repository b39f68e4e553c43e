"""The mutation run: `make mutation PACKAGE=core`; docs/mutation.md."""
