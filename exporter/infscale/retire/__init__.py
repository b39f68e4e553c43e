"""Retirement: one replica of a workload is taken away, and only when it is proven idle.

    rules       the rules that a hold or a refusal names
    protocol    states, budgets and transitions. Pure: what was seen (`seen`) and the time are arguments
    record      what is remembered of a retirement; `persisted` keeps it as an annotation or in a file
    target      which replica, frozen, and whether it is the same still; `groups`: a replica of several Pods
    command     which engine a container runs, and whether it has a role that forbids it; `words` of its command
    member      the verdict on one read of a member, from `envelope` (the sidecar's word) and `series` (its page)
    rotation    whether requests can reach it still; `router` asks a router that ignores readiness
    siblings    the workload around it
    reader, withdrawer, look, passes    the cluster side: a read, the lease, a look at everything, a pass

`infscale.cli.retire` runs passes for a person; the recommender and `infscale kube` scale down through `passes.Retirer`.
"""
