"""What reaches the converter's command line and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converter.contract import (
    convert_command,
    converter_environment,
    list_command,
    return_command,
    secrets_of,
)
from dnm.model.errors import ConverterError
from dnm.model.printable import without_secrets
from tests.builders import a_config


@pytest.mark.parametrize("name", ["", "-x", "a b", "A001", "a/../b", "a001\n", "a" * 300, "$(x)"])
def test_no_other_name_reaches_a_command_line(name: str) -> None:
    with pytest.raises(ConverterError, match="RFC 1123"):
        return_command(a_config(), name)
    with pytest.raises(ConverterError, match="RFC 1123"):
        convert_command(a_config(), "a", 1, name)
    if name:  # without one, all nodes are listed
        with pytest.raises(ConverterError, match="RFC 1123"):
            list_command(a_config(), name)


def test_the_command_and_its_environment_keep_the_contract(tmp_path: Path) -> None:
    config = a_config(
        tmp_path,
        node_convert_path=Path("/x/node-convert"),
        allow_preempt=True,
        slurm_reservation_name="k8s-test",
        kubeconfig_path=tmp_path / "kubeconfig",
    )
    assert convert_command(config, "a", 3, "dev") == [
        "/x/node-convert", "--set", "k8s", "--node-type", "a", "--num-nodes", "3",
        "--namespace", "dev", "--allow-preempt",
    ]  # fmt: skip
    assert return_command(config, "a001") == [
        "/x/node-convert", "--set", "batch", "--node-name", "a001"
    ]  # fmt: skip
    environment = converter_environment(config, {"PATH": "/bin", "PASSWORD": "secret"})
    assert environment["RES_NAME"] == "k8s-test" and environment["PASSWORD"] == "secret"
    assert environment["KUBECONFIG"] == str(tmp_path / "kubeconfig")


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("RACADM_PASS", True),
        ("API_KEY", True),
        ("api_keys", True),
        ("BMC_PASS_FILE", True),
        ("DBPASSWORD", True),
        ("KEYBOARD", False),
        ("PASSENGERS", False),
        ("PATH", False),
    ],
)
def test_secrets_are_known_by_the_names_of_their_variables(name: str, is_secret: bool) -> None:
    assert (secrets_of({name: "hunter2"}) == ["hunter2"]) is is_secret


def test_a_secret_of_several_lines_is_blacked_out_line_by_line() -> None:
    secrets = secrets_of({"SITE_KEY": "-----BEGIN-----\nMIIEvQ\n-----END-----\n"})
    for line in ("-----BEGIN-----", "+ echo MIIEvQ", "-----END-----"):
        assert without_secrets(line, secrets) in ("***", "+ echo ***")
