"""Traffic to replay: requests with their arrival and their tokens, from files, from a shape, or out of Prometheus.

    for arrival_s, prompt_tokens, output_tokens in open_trace("week.csv", scale=0.1): ...

    trace           `open_trace`: what a file is, scale and limit; a Trace can be walked as often as one likes
    synthetic       a rate over time, kinds of arrivals and lengths, described in YAML
    lengths         token counts by quantiles, and around means that change
    files           lines of files, with errors as file:line
    csv_requests, azure, burstgpt, mooncake     one request a row
    rates           one rate a row
    scaling         less or more of a trace that has one request a row
    options         the flags that name a trace
    prometheus*     arrivals rebuilt from counters that Prometheus has

Nothing here holds a trace of requests in memory: two million of them pass one by one.
"""
