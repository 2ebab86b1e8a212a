"""What is not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converter.node_list import list_batch_nodes
from dnm.converter.start import ConverterCall
from dnm.model.errors import ConverterError
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.converter.programs import script


def test_a_missing_or_unexecutable_converter_is_a_sentence(tmp_path: Path) -> None:
    path = script(tmp_path, "true")
    path.chmod(0o644)
    for missing in (path, tmp_path / "nothing"):
        with pytest.raises(ConverterError, match="node_convert_path"):
            ConverterCall("k", [str(missing)], {}, tmp_path / "output")
        assert isinstance(list_batch_nodes(a_config(node_convert_path=missing), {}), Unreadable)
