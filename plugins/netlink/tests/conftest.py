"""The plugin importable without an installation, its tests' own modules, and the sides on which plugins behind a network are tested."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services import ServiceSide

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [each for each in (os.path.dirname(_HERE), _HERE) if each not in sys.path]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[ServiceSide]:
    """Ours; the test is on its node."""
    from services import ServiceSide

    with ServiceSide(False, str(tmp_path)) as side, side.node.entered():
        yield side


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[ServiceSide, ServiceSide]]:
    """That of the binary and ours."""
    from services import ServiceSide

    with ServiceSide(True, str(tmp_path / "theirs")) as theirs, ServiceSide(False, str(tmp_path / "ours")) as ours:
        yield theirs, ours
