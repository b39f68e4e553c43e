"""What the tests of the alerts are made of: the alerts and their promtool tests as data, labels, mutants."""
