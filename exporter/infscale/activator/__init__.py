"""The activator: an HTTP proxy that holds requests while no replica of a workload is ready, and wakes one.

    queue       who is held, in order and bounded           counts      what became of them, as metrics
    endpoints   which replicas there are and are ready      prober      finds that out
    release     the first in line to the least busy         wake        0 replicas to 1, over the Kubernetes API
    body, headers, refusal, upstream, relay, comments       one request, from its head to the last byte of its answer
    proxy       puts them together for one request          serve       and for a process; page shows it

One thread runs an asyncio loop with the proxy; the metrics pages and the calls of the Kubernetes API have their own.
"""
