"""Settings: precedence, errors that name the setting, and a manual that covers every field."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from thunder_router.config import SchedulingSettings, Settings, load
from thunder_router.errors import ConfigError

MANUAL = Path(__file__).parent.parent / "docs" / "configuration.md"


def fields(model: type[BaseModel], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += fields(kind, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def test_every_setting_is_in_the_manual_and_the_manual_names_no_other() -> None:
    documented = re.findall(r"^\| `([a-z_.]+)` \|", MANUAL.read_text(), flags=re.MULTILINE)
    assert sorted(documented) == sorted(fields(Settings))


def test_flags_win_over_environment_and_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "thunder.toml"
    toml.write_text('port = 1\nhost = "from-file"\nlog_level = "debug"\n[scheduling]\ntick_s = 2\n')
    monkeypatch.setenv("THUNDER_PORT", "2")
    monkeypatch.setenv("THUNDER_HOST", "from-environment")
    monkeypatch.setenv("THUNDER_SCHEDULING__TICK_S", "3")
    settings = load(toml, port=4)
    assert (settings.port, settings.host, settings.log_level) == (4, "from-environment", "debug")
    assert settings.scheduling.tick_s == 3.0
    assert settings.scheduling.margin_max == SchedulingSettings().margin_max


def test_thunder_toml_in_the_working_directory_is_read_without_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load().port == 30000
    (tmp_path / "thunder.toml").write_text("port = 7\n")
    assert load().port == 7


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('tls_cert = "/no/such/file"\n', "tls_cert"),
        (f"tls_key = '{MANUAL}'\n", "tls_key"),
        ("[scheduling]\ntick_s = -1\n", "scheduling.tick_s"),
        ("[scheduling]\ntick_s = nan\n", "scheduling.tick_s"),
        ("[scheduling]\nmargin_max = 1.5\n", "scheduling.margin_max"),
        ('[scheduling]\npolicy = "magic"\n', "scheduling.policy"),
        ("[scheduling]\nno_such_setting = 1\n", "scheduling.no_such_setting"),
        ("port = 70000\n", "port"),
        ("[relay]\nmax_body_bytes = 0\n", "relay.max_body_bytes"),
    ],
)
def test_a_bad_value_is_an_error_that_names_its_setting(
    tmp_path: Path, text: str, named: str
) -> None:
    toml = tmp_path / "thunder.toml"
    toml.write_text(text)
    with pytest.raises(ConfigError, match=rf"^{re.escape(named)}: "):
        load(toml)


def test_a_file_that_is_not_there_or_not_toml_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 1\n")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        load(broken)


def test_keys_are_never_shown() -> None:
    settings = load(api_key="client-secret", admin_key="admin-secret")
    assert "secret" not in repr(settings)
    assert "secret" not in settings.model_dump_json()
