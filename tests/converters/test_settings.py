"""Tests of node-convert's settings: defaults < ini < environment < options, and every wrong
value."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from dnm.config.keys import NODE_CONVERT_KEYS
from dnm.config.lab import CONVERTER_KEYS
from dnm.converters.settings import PREDECESSOR_VARIABLES, Settings, load_settings
from dnm.model.errors import ConfigError, ExitCode
from packages.reference import default_of


def ini(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "dnm.ini"
    path.write_text(text)
    return {"DNM_CONFIG": str(path)}


def test_defaults_apply_without_configuration() -> None:
    settings = load_settings({}, {})
    assert settings == Settings()
    assert settings.res_name == "k8s" and settings.min_idle_seconds == timedelta(seconds=600)


def test_options_override_environment_and_ini(tmp_path: Path) -> None:
    environ = ini(
        tmp_path,
        "[settings]\ninstance_id = ini\n"
        "[node_convert]\nmin_idle_seconds = 1\n[lab]\nVerify_Seconds=2\n",
    )
    assert load_settings({}, environ).min_idle_seconds == timedelta(seconds=1)
    environ |= {"MIN_IDLE_SECONDS": "2", "DNM_INSTANCE": ""}
    settings = load_settings({"force": True, "allow_preempt": None}, environ)
    assert settings.min_idle_seconds == timedelta(seconds=2)
    assert settings.instance == "ini"  # exported but empty counts as not given
    assert settings.force and not settings.allow_preempt
    other = tmp_path / "other.ini"
    other.write_text("[settings]\ninstance_id = other\n")
    assert load_settings({}, environ, other).instance == "other"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("RES_NAME", "lent", "res_name", "lent"),
        ("MIN_IDLE_SECONDS", "0", "min_idle_seconds", timedelta(0)),
        ("RES_LOOKAHEAD_SECONDS", "60", "res_lookahead_seconds", timedelta(seconds=60)),
        ("PROTECT_LARGEST_PENDING", "1", "protect_largest_pending", True),
        ("NODE_SEARCH_DOMAIN", "x.example.org", "node_search_domain", "x.example.org"),
        ("MARK_REASON", "for k8s", "mark_reason", "for k8s"),
        ("PREEMPT_ENABLED", "1", "allow_preempt", True),
        ("PREEMPT_USER", "x-ob", "preempt_user", "x-ob"),
        ("PREEMPT_ACCOUNT", "pur230002", "preempt_account", "pur230002"),
        ("PREEMPT_MODE", "cancel", "preempt_mode", "cancel"),
        ("PREEMPT_GRACE_SECONDS", "0", "preempt_grace_seconds", timedelta(0)),
        ("PREEMPT_MAX_RUNTIME_SECONDS", "9", "preempt_max_runtime_seconds", timedelta(seconds=9)),
        ("SLURMRESTD_URL", "unix:/run/s.sock", "slurmrestd_url", "unix:/run/s.sock"),
        ("DNM_INSTANCE", "other", "instance", "other"),
    ],
)
def test_reads_variables_of_the_predecessor(
    name: str, text: str, field: str, value: object
) -> None:
    assert getattr(load_settings({}, {name: text}), field) == value


def test_shared_settings_are_read_from_dnms_sections(tmp_path: Path) -> None:
    environ = ini(
        tmp_path,
        "[settings]\ninstance_id = lab\nstate_dir = state\nallow_preempt = first.last/p2\n"
        "kubeconfig_path = kube\nmonitored_namespaces = dev\n"
        "[node_type:g]\nname_prefix = gpu-\nlabels = pool={namespace}, gpu=yes\n"
        "taints = {namespace}=true:NoSchedule\n",
    )
    settings = load_settings({}, environ)
    assert (settings.instance, settings.preempt_user) == ("lab", "first.last")
    assert settings.preempt_account == "p2" and not settings.allow_preempt
    assert settings.state_dir == tmp_path / "state" / "node-convert"
    assert settings.kubeconfig_path == tmp_path / "kube"
    assert load_settings({}, environ | {"KUBECONFIG": "/x"}).kubeconfig_path is None
    assert settings.is_of_type("gpu-1", "g") and settings.is_of_type("a1", "a")
    assert settings.type_of("gpu-07") == "g" and settings.type_of("a001") == ""
    assert Settings().type_of("a001") == "a"
    assert settings.labels("g", "dev") == {"dev": "true", "pool": "dev", "gpu": "yes"}
    (taint,) = settings.taints("g", "dev")
    assert (taint.key, taint.value, taint.effect) == ("dev", "true", "NoSchedule")
    assert settings.labels("a", "") == {} and settings.taints("a", "dev") == ()


@pytest.mark.parametrize(("seconds", "minutes"), [(60, (15, 10, 30)), (7200, (60, 40, 120))])
def test_stage_timeouts_grow_with_convert_timeout(
    seconds: int, minutes: tuple[int, ...], tmp_path: Path
) -> None:
    environ = ini(tmp_path, f"[settings]\nconvert_timeout_seconds = {seconds}\n")
    made = load_settings({}, environ)
    result = (made.stage_timeout_seconds, made.drain_timeout_seconds, made.boot_timeout_seconds)
    assert result == tuple(timedelta(minutes=minute) for minute in minutes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[node_convert]\nmin_idle = 3", "unknown key, did you mean 'min_idle_seconds'?"),
        ("[node_convert]\nmin_idle_seconds = soon", "min_idle_seconds = soon: is not a duration"),
        ("[node_convert]\npreempt_mode = kill", "preempt_mode: unknown key"),
        ("[settings]\nallow_preempt = a;b/c", "not a name in Slurm; write letters, digits"),
        ("[settings]\nallow_preempt = a/", "write false or USER/ACCOUNT"),
        ("[node_convert]\nmin_idle_seconds = -1", "is not a duration"),
        ("[settings]\ninstance_id = a b", "[settings] instance_id = a b"),
        ("[node_type:a]\ntaints = x", "is not a taint"),
        ("[node_convert]\nhooks_dir = $NOSUCH/x", "no variable NOSUCH"),
        ("min_idle_seconds = 1", "before the first section"),
        ("[node_convert]\nslurmrestd_url = h:6820", "not the address of slurmrestd"),
        ("[node_convert]\nslurmrestd_url = unix:run/s", "not the address of slurmrestd"),
        ("[node_convert]\nslurmrestd_url = http://a:b@h", "not the address of slurmrestd"),
        ("[node_convert]\nslurmrestd_url = http://h:6820", "would send the token unencrypted"),
        ("[node_convert]\nslurmrestd_url = http://127.0.0.1.h", "would send the token unencrypted"),
        (
            "[node_convert]\nslurmrestd_url = https://h:1",
            "slurmrestd_token_file is missing; write a file with what 'scontrol token'",
        ),
    ],
)
def test_each_wrong_setting_is_reported(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_settings({}, ini(tmp_path, text))
    assert said in str(wrong.value)
    assert wrong.value.exit_code is ExitCode.NEEDS_PERSON


def test_slurmrestd_is_set_by_socket_or_by_url_and_token(tmp_path: Path) -> None:
    text = "[node_convert]\nslurmrestd_url = "
    settings = load_settings({}, ini(tmp_path, f"{text}unix:/run/s.sock"))
    assert settings.slurmrestd_url == "unix:/run/s.sock"
    environ = ini(tmp_path, f"{text}https://h:1\nslurmrestd_token_file = secret/token")
    assert load_settings({}, environ).slurmrestd_token_file == tmp_path / "secret" / "token"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    environ = ini(tmp_path, "[node_convert]\nmin_idle_seconds = x\nmin_idle_second = 1\n")
    with pytest.raises(ConfigError) as wrong:
        load_settings({}, environ | {"PREEMPT_MODE": "kill"})
    for message in (
        "min_idle_seconds = x",
        "did you mean 'min_idle_seconds'?",
        "PREEMPT_MODE=kill",
    ):
        assert message in str(wrong.value)


def test_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is missing"):
        load_settings({}, {"DNM_CONFIG": str(tmp_path / "nosuch.ini")})


def test_keys_and_defaults_match_the_page(tmp_path: Path) -> None:
    document = {key: default_of("[node_convert]", key) for key in NODE_CONVERT_KEYS}
    own = {"config_path", "instance", "kubeconfig_path", "node_types", "allow_preempt", "force",
           "account", "leave_drained", "request", "wake", "machines", "res_name",
           "pass_environment", "state_dir", "parallel", *CONVERTER_KEYS,
           *(field for field, _ in PREDECESSOR_VARIABLES.values())}  # fmt: skip
    assert document.keys() - {"preempt_jobs_of"} == set(Settings.__struct_fields__) - own
    lines = [f"{key} = {text}" for key, text in document.items() if text != "none"]
    settings = load_settings({}, ini(tmp_path, "\n".join(["[node_convert]", *lines])))
    for key in document.keys() - {"preempt_jobs_of"}:
        assert getattr(settings, key) == getattr(Settings(), key), key
