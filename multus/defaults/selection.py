"""Which networks, and what they are: the networks annotation, and net-attach-defs."""

from __future__ import annotations

from multus.errors import DecodingError, InvalidConfigError
from multus.protocol import conflists
from multus.protocol.annotations import parse_selections
from multus.protocol.documents import load_object
from multus.types.delegate import Delegate
from multus.types.pod import NETWORKS_ANNOTATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.ports import ConfDir, Kube
    from multus.types.config import ConfList, MultusConfig
    from multus.types.delegate import NetAttachDef
    from multus.types.pod import Pod
    from multus.types.selection import NetworkSelectionElement


class AnnotationSelection:
    """Selects what the pod's networks annotation names.  Spec: multi-network CRD standard v1.3 §4.1."""

    def multus_select_networks(self, pod: Pod, config: MultusConfig) -> tuple[NetworkSelectionElement, ...]:
        return parse_selections(pod.annotations.get(NETWORKS_ANNOTATION, ""), NETWORKS_ANNOTATION, pod.namespace)


class NetAttachDefResolution:
    """Resolves a selection by its net-attach-def.  Spec: multi-network CRD standard v1.3 §3.4."""

    def __init__(self, kube: Kube | None, conf_dir: ConfDir) -> None:
        self._kube = kube
        self._conf_dir = conf_dir

    def multus_resolve_delegate(self, selection: NetworkSelectionElement, pod: Pod | None, config: MultusConfig) -> Delegate | None:
        if self._kube is None:
            return None
        net_attach_def = self._kube.net_attach_def(selection.namespace, selection.name)
        conf = self._configuration(net_attach_def, config.conf_dir)
        return Delegate(selection.qualified_name, conf, resource_name=net_attach_def.resource_name)

    def _configuration(self, net_attach_def: NetAttachDef, folder: str) -> ConfList:
        where = f"net-attach-def {net_attach_def.namespace}/{net_attach_def.name}"
        if net_attach_def.config:
            try:
                document = load_object(net_attach_def.config, f"{where}: key \"spec.config\"")
            except DecodingError as exc:
                raise InvalidConfigError(exc.msg) from exc
            return conflists.parse(document, where=where, default_name=net_attach_def.name)
        found = self._conf_dir.by_name(net_attach_def.name)
        if found is None:
            raise InvalidConfigError(
                f"{where} has no key \"spec.config\", and no file in {folder} holds a configuration named {net_attach_def.name!r}"
            )
        return found
