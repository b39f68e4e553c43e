#!/usr/bin/env bash
# The walk of docs/kind.md in one go: a cluster on this machine, stand-in engines, load, up to three replicas, down to one.
# About ten minutes. It takes kind, kubectl, docker and this repository's virtual environment (`make venv`); the node's image
# comes from a registry. "expect:" stands before lines that infscale prints just so, "see:" before what else there is to see.
# `k8s/kind.sh delete` takes the cluster away.
set -eu

cd "$(dirname "$0")/.."
cluster=infscale
namespace=infscale-sim
state=$(mktemp -d)
infscale=.venv/bin/infscale

# A kubeconfig of its own: this script never talks to another cluster of yours.
export KUBECONFIG=$state/kubeconfig
trap 'rm -rf "$state"' EXIT

say() { printf '\n== %s\n' "$*"; }

# decide ARGUMENTS...: one look at the replicas, and the decision.
decide() {
    "$infscale" kube -n "$namespace" --deployment sim --target 4 --max 3 --down-window 20 --state "$state/sim.json" "$@"
}

# replicas: how many the Deployment asks for.
replicas() { kubectl -n "$namespace" get deployment sim -o jsonpath='{.spec.replicas}'; }

# until_replicas N SECONDS: decides and scales every 5 s, until N are asked for.
until_replicas() {
    tries=$(($2 / 5))
    until [ "$(replicas)" = "$1" ]; do
        [ "$tries" -gt 0 ] || { echo "not $1 replicas within $2 s, but $(replicas)" >&2; exit 1; }
        tries=$((tries - 1))
        decide --apply || echo "(again in 5 s)" # a Pod that just began or just ended may be missing from a look
        sleep 5
    done
}

if [ "${1:-}" = delete ]; then
    kind delete cluster --name "$cluster"
    exit 0
fi

say "A cluster, and the image in it"
kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 120s
kind get kubeconfig --name "$cluster" >"$KUBECONFIG"
docker image inspect infscale:0.1.0 >/dev/null 2>&1 || docker build -t infscale:0.1.0 . # or: make image
kind load docker-image infscale:0.1.0 --name "$cluster"

say "Stand-in engines"
kubectl apply -k k8s/examples/sim
kubectl -n "$namespace" rollout status deployment/sim --timeout 180s
kubectl -n "$namespace" rollout status deployment/infscale-recommender --timeout 180s
# see: deployment "sim" successfully rolled out; the Pod has 2/2 containers, the engine and its sidecar
kubectl -n "$namespace" get pods -l infscale.dev/workload=sim

say "Idle: one replica is right"
decide
# expect: deployment infscale-sim/sim: spec.replicas 1, pods 1, ready with metrics 1
# see: queue:4 (min 1, max 3): current 1 -> desired 1, and a row for the Pod

say "Load: twelve clients, a target of 4 per replica"
kubectl apply -k k8s/examples/sim-load
kubectl -n "$namespace" wait pod/load --for=condition=Ready --timeout=120s
sleep 10
decide
# see: 12 in flight, 2 running, 10 waiting
# expect: queue:4 (min 1, max 3): current 1 -> desired 3 (up; metric)
# expect: would scale deployment infscale-sim/sim from 1 to 3: nothing is changed without --apply

say "Scale"
until_replicas 3 60
# expect: scaled deployment infscale-sim/sim from 1 to 3
kubectl -n "$namespace" rollout status deployment/sim --timeout 180s

say "The new replicas take traffic"
# Each request is a connection of its own, so kube-proxy gives them their share.
sleep 20
for pod in $(kubectl -n "$namespace" get pods -l infscale.dev/workload=sim -o name); do
    kubectl -n "$namespace" get --raw "/api/v1/namespaces/$namespace/pods/${pod#pod/}:10047/proxy/metrics" | grep '^infscale_inflight_requests'
done
# see: three lines that add up to about 12
decide --apply
# expect: deployment infscale-sim/sim: spec.replicas 3, pods 3, ready with metrics 3
# see: current 3 -> desired 3

say "The load ends"
kubectl delete -k k8s/examples/sim-load
sleep 10
decide --apply
# see: nothing in flight, and the window of 20 s holds the count
# expect: queue:4 (min 1, max 3): current 3 -> desired 3 (none; stabilised)
until_replicas 1 120
# see: once the load has been gone for 20 s
# expect: queue:4 (min 1, max 3): current 3 -> desired 1 (down; min)
# expect: scaled deployment infscale-sim/sim from 3 to 1
kubectl -n "$namespace" get events --field-selector reason=Killing
# see: two Pods of sim; each took about 6 s to drain, idle as it was

say "An HPA in a cluster without an adapter"
kubectl apply -k k8s/examples/sim-hpa
sleep 45
kubectl -n "$namespace" describe hpa sim
# see: ScalingActive False FailedGetExternalMetric ... unable to get external metric infscale-sim/infscale_workload_demand_requests
if decide --apply; then
    echo "scaled beside an HPA" >&2
    exit 1
fi
# see: refused, with the HPA's name: two writers would fight
kubectl delete -k k8s/examples/sim-hpa

say "Done. k8s/kind.sh delete takes the cluster away."
