"""Multus: a CNI meta-plugin that gives Kubernetes pods several network interfaces.

Layers, lowest first: ``errors``, ``files``, ``types``, ``protocol``, ``hooks``, ``core``, then ``defaults`` and
``adapters``, then ``commands``.  Public to plugin authors: ``multus.hooks.spec``, ``multus.hooks.delegates``,
``multus.types``, ``multus.errors`` and ``multus.testing``.
"""
