"""Tests of infscale.web, over real sockets and with real processes."""
