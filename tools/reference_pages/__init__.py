"""The pages of docs/reference, each made from the code that holds its facts. Used by tools/reference.py."""
