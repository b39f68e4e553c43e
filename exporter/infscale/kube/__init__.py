"""Kubernetes, as far as a recommender needs it: workloads and their scale, Pods, who else scales them, a Lease.

    cluster        `Cluster`, the interface that the rest of infscale uses, and what implements it
    objects        what it returns: frozen dataclasses, never JSON
    deletion_cost  which Pods leave first, written once for each scale-down
    lease          who is the one that scales: pure; `leases` reads and writes it
    access         how to get a `Cluster` here: in a Pod, or as a person
    incluster      access from a Pod, with its service account
    kubectl        access for a person, with their kubeconfig; `kubectl_proxy` is its way to Pods
    podcalls       a Pod's page through the API server, a command in a container
    rest           one call over either `transport`: tries, refusals; `kinds` says where a workload is in the API
    decode         its JSON to `objects`, by `fields` and `selector`
    errors         `KubeError` and its kin

Nothing here decides how many replicas there should be.
"""
