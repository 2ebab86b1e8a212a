"""Tests of the command line and the environment with which dnm calls a converter."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converter.contract import (
    convert_command,
    converter_env,
    list_command,
    return_command,
)
from dnm.model.blackout import secrets_by_name
from dnm.model.errors import ConverterError
from tests.builders import a_config


@pytest.mark.parametrize("name", ["", "-x", "a b", "A001", "a/../b", "a001\n", "a" * 300, "$(x)"])
def test_refuses_invalid_names_in_command_lines(name: str) -> None:
    with pytest.raises(ConverterError, match="RFC 1123"):
        return_command(a_config(), name)
    with pytest.raises(ConverterError, match="RFC 1123"):
        convert_command(a_config(), "a", 1, name)
    if name:  # without one, all nodes are listed
        with pytest.raises(ConverterError, match="RFC 1123"):
            list_command(a_config(), name)


def test_command_and_environment_keep_the_contract(tmp_path: Path) -> None:
    config = a_config(
        tmp_path,
        node_convert_path=Path("/x/node-convert"),
        allow_preempt=True,
        pass_environment=("PASSWORD", "RES_NAME"),
        kubeconfig_path=tmp_path / "kubeconfig",
    )
    assert convert_command(config, "a", 3, "dev") == [
        "/x/node-convert", "--set", "k8s", "--node-type", "a", "--num-nodes", "3",
        "--namespace", "dev", "--allow-preempt",
    ]  # fmt: skip
    assert convert_command(config, "a", 3, "dev", "a[001-004]")[-3:] == [
        "--exclude", "a[001-004]", "--allow-preempt",
    ]  # fmt: skip
    assert return_command(config, "a001") == [
        "/x/node-convert", "--set", "batch", "--node-name", "a001"
    ]  # fmt: skip
    settings = converter_env(
        config, {"PATH": "/bin", "PASSWORD": "secret", "RES_NAME": "k8s-test"}
    ).environment
    assert settings["RES_NAME"] == "k8s-test" and settings["PASSWORD"] == "secret"
    assert settings["KUBECONFIG"] == str(tmp_path / "kubeconfig")


def test_converter_gets_only_needed_and_listed_variables(
    tmp_path: Path,
) -> None:
    needed = {
        "PATH": "/bin", "HOME": "/root", "LANG": "C.UTF-8", "LC_TIME": "de", "TZ": "UTC",
        "USER": "root", "LOGNAME": "root", "TMPDIR": "/tmp", "SLURM_CONF": "/s",
        "KUBECONFIG": "/k", "https_proxy": "http://me:hunter2@proxy:1",
    }  # fmt: skip
    other = {"LD_PRELOAD": "evil", "AWS_SECRET_ACCESS_KEY": "a-w-s", "SITE": "anvil", "pin": "1"}
    config = a_config(tmp_path, pass_environment=("SITE", "PATH", "ABSENT"))
    environment = converter_env(config, {**needed, **other})
    own = {"DNM_CONFIG": str(config.path), "DNM_INSTANCE": config.instance_id}
    assert environment.environment == {**needed, **own, "SITE": "anvil"}
    # Passed values are hidden, and so are variables with a secret's name.
    shown = environment.secrets.hide("anvil a-w-s http://me:hunter2@proxy:1 /bin pin=1")
    assert shown == "*** *** http://me:***@proxy:1 /bin pin=1"


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
def test_secrets_are_recognised_by_variable_names(name: str, is_secret: bool) -> None:
    assert (secrets_by_name({name: "hunter2"}) == ["hunter2"]) is is_secret
