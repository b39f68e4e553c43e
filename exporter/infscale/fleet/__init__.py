"""Where the replicas of a workload are, and what each has in flight: fleet sources, which answer with a `Fleet`.

    parse        the text of a source (`dns:vllm-peers:10047`) -> a Source
    source       what every source is, and its settings
    single, static, dns, prometheus, kubernetes
    survey       places -> replicas: one deadline for all reads, every answer understood as it comes
    reader       reads many pages at once: `crowd` (one thread, many sockets) and a few threads of `infscale.scrape`
    members      what is remembered from look to look: who was ready once, who is lost, since when
    peer, engines, from_readings   what an answer says: a sidecar's JSON, an engine's page, a Reading
    resolver     a name -> its addresses, bounded in time; `dns_wire` has the messages
    turn         which of many peers evaluate

The sidecar (with a fleet source), the recommender and `infscale kube` observe through it. Nothing here decides.
"""
