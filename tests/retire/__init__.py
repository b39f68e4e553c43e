"""Tests of infscale.retire."""
