"""Inputs that somebody made to break a reader: what the targets are, a saved corpus that every test run replays."""
