"""The decision core: policy, observation and state in, replicas and a reason out; no I/O, time is an argument."""
