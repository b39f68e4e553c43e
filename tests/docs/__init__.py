"""The commands of the documentation, taken from its own fences and run."""
