"""Tests of the fleet sources: real sidecars, a real Prometheus, a name server, and stand-ins for many peers."""
