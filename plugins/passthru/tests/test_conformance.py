"""The object and the binary against the CNI specification, at the head of a plugin list and behind another plugin."""

from __future__ import annotations

import os
import shutil
import sys

from hypothesis import strategies as st
from multus_passthru.delegate import Passthru

from multus.testing import conformance, strategies

SINCE_LISTS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Before plugin lists a result had to have an address, and passthru has none of its own."""
CONFIGS = st.just({}) | strategies.results("1.0.0").map(lambda result: {"prevResult": result.document})
BINARY = shutil.which("passthru-cni", path=os.path.dirname(sys.executable)) or shutil.which("passthru-cni")

TestObject = conformance.suite(conformance.InProcess("passthru", Passthru()), CONFIGS, cni_versions=SINCE_LISTS, examples=3)
if BINARY is not None:
    TestBinary = conformance.suite(conformance.Binary(BINARY), CONFIGS, cni_versions=SINCE_LISTS, examples=1)
