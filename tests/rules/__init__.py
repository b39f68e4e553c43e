"""The recording rules, held to the decision core by `promtool test rules`, by mutation and on a real Prometheus."""
