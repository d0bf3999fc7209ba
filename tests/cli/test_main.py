"""What all verbs have in common: they explain themselves."""

import pytest

import bootdqn
from bootdqn.cli.main import VERBS, main
from bootdqn.envs.registry import ENVS, make_env


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"bootdqn {verb}" in text
    assert "example" in text


def test_usage_version_and_unknown_verb(capsys):
    assert main([]) == 0
    usage = capsys.readouterr().out
    assert all(verb in usage for verb in VERBS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bootdqn {bootdqn.__version__}\n"
    assert main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err


def test_list_names_what_there_is(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in ("chain:50", "scrambled", "thermometer, one_hot", "dqn", "ensemble", "thompson", "boot+"):
        assert name in text
    for entry in ENVS.values():
        spec = f"{entry.example},{entry.example_options}"
        assert f"options follow: {spec}\n" in text
        make_env(spec)
