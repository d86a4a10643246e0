"""A resource claim of one device, for the API server stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multus.testing.node import NODE_NAME

CLAIMED = "example.test/vf"
"""The resource."""
DEVICE_ID = "0000:3b:02.1"


def claim() -> list[dict[str, Any]]:
    """A claim of one device, and the slice that tells its ID."""
    attributes = {"k8s.cni.cncf.io/deviceID": {"string": DEVICE_ID}, "k8s.cni.cncf.io/resourceName": {"string": CLAIMED}}
    results = [{"request": "nic", "driver": "nic.example.test", "pool": NODE_NAME, "device": "vf1"}]
    return [
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "nic", "namespace": "default"},
            "status": {"allocation": {"devices": {"results": results}}},
        },
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "slice"},
            "spec": {
                "driver": "nic.example.test", "nodeName": NODE_NAME, "pool": {"name": NODE_NAME, "generation": 1},
                "devices": [{"name": "vf1", "attributes": attributes}],
            },
        },
    ]  # fmt: skip


def claimed_pod(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored pod, with the claim."""
    spec = {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}], "nodeName": NODE_NAME}
    return {**stored, "spec": spec, "status": {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "nic"}]}}
