"""Tests of the Grafana dashboards: how they are made, and that a real Prometheus answers every panel."""
