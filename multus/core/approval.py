"""Whether a node's request for a certificate is granted: the rules, and nothing else.

Spec: 14-helpers.md of the behaviour notes, §5.1 and §5.2; alternative names and a signature that is not the key's own are
refused on top.
"""

from __future__ import annotations

import re

from multus.errors import InvalidConfigError
from multus.protocol.documents import quote
from multus.protocol.signing_requests import SIGNER, USAGES
from multus.types.certificates import GROUP
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.types.certificates import RequestContent, SigningRequest

NODE_PREFIX = "system:node"
LONGEST_S = 365 * 24 * 3600
_GROUPS = frozenset(("system:nodes", GROUP, "system:authenticated"))
_NODE_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NODE_NAME_MAX = 253


class Verdict(NamedTuple):
    """The answer to a request, and why."""

    is_approval: bool
    message: str


def is_ours(request: SigningRequest, content: RequestContent) -> bool:
    """Whether a request is for us to decide: a client's certificate in the name of Multus."""
    return request.signer == SIGNER and any(name.startswith(GROUP) for name in content.common_names)


def decide(request: SigningRequest, parse: Callable[[bytes], RequestContent]) -> Verdict | None:
    """Decide on a request; None: it is decided already.

    Args:
        parse: Reads PKCS #10 in PEM; raises DecodingError.

    Raises:
        DecodingError: Code 6, it is no request for a certificate.
        InvalidConfigError: Code 7, its user has no name of a node in it.
    """
    if request.is_decided:
        return None
    content = parse(request.request)
    prefix, colon, node_name = request.username.rpartition(":")
    if not colon or not node_name:
        raise InvalidConfigError(f"user {quote(request.username)} does not end in the name of a node")
    problem = _problem(request, content, prefix, node_name)
    return Verdict(False, problem) if problem else Verdict(True, f"certificate of {GROUP}:{node_name} for user {request.username}")


def _problem(request: SigningRequest, content: RequestContent, prefix: str, node_name: str) -> str:
    """Which rule a request breaks, the first of them; empty: none."""
    name, expiration_s = f"{GROUP}:{node_name}", request.expiration_s
    others = sorted(set(request.groups) - _GROUPS)
    if prefix not in (NODE_PREFIX, GROUP):
        return f"user {quote(request.username)} is no node: {NODE_PREFIX}:<node> or {GROUP}:<node> is expected"
    if len(node_name) > _NODE_NAME_MAX or not re.fullmatch(_NODE_NAME, node_name, re.ASCII):
        return f"user {quote(request.username)} does not end in a possible name of a node"
    if set(request.usages) != set(USAGES):
        return f"usages {_listed(request.usages)} are not exactly {_listed(USAGES)}"
    if others:
        return f"group {quote(others[0])} of the user is none of {_listed(sorted(_GROUPS))}"
    if content.common_names != (name,):
        return f"common name {_listed(content.common_names)} is not {quote(name)}, that of the user's node"
    if content.organizations != (GROUP,):
        return f"organization {_listed(content.organizations)} is not {quote(GROUP)} alone"
    if content.alternative_names:
        return f"alternative name {_listed(content.alternative_names)}: none is allowed"
    if not content.is_self_signed:
        return "the request is not signed with the key that is in it"
    if expiration_s is None:
        return "expirationSeconds is not set"
    if expiration_s > LONGEST_S:
        return f"expirationSeconds {expiration_s} is more than {LONGEST_S}, 365 days"
    return ""


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(quote, names[:5])) or "(none)"
