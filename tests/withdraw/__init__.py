"""Tests of `/withdraw` and of what the sidecar says about its Pod."""
