"""The CNI network ``bridge-port``: a veth between a pod and a named port of a bridge that the operator has made."""
