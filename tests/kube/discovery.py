"""What kubectl asks an API server before anything else: its version, its groups, the resources of a group."""

from __future__ import annotations

from tests.kube.store import Json, Kind


def discovery(kinds: list[Kind], parts: list[str]) -> Json | None:
    """The answer for a path in parts, None if the path is about something else."""
    groups = {kind.group: kind.version for kind in kinds if kind.group}
    match parts:
        case ["version"]:
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, v) for g, v in groups.items()]}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["api", "v1"] | ["apis", _, _]:
            version = "/".join(parts[1:])
            found = [resource for kind in kinds if kind.api_version == version for resource in _resources(kind)]
            whole = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": found}
            return whole if found else None
    return None


def _group(group: str, version: str) -> Json:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resources(kind: Kind) -> list[Json]:
    whole = {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": True, "kind": kind.kind}
    whole |= {"shortNames": list(kind.short), "verbs": ["create", "delete", "get", "list", "patch", "update"]}
    scale = {"name": f"{kind.plural}/scale", "singularName": "", "namespaced": True, "kind": "Scale"}
    scale |= {"group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]}
    calls = [
        {"name": f"pods/{sub}", "singularName": "", "namespaced": True, "kind": f"Pod{sub.title()}Options", "verbs": v}
        for sub, v in (("exec", ["create", "get"]), ("proxy", ["create", "delete", "get", "patch", "update"]))
    ]
    return [whole, scale] if kind.scale else [whole, *calls] if kind.kind == "Pod" else [whole]
