"""Tests of infscale.kube, and the API server stand-in that other tests use too."""
