"""What the README shows is executed."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bootdqn.cli.main import main
from bootdqn.loops.protocol import METRICS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    """The fenced blocks of one language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return [text for name, text in fences if name == language]


def commands(prefix: str, page: str = README) -> list[str]:
    """Commands of the shell blocks that start with `prefix`, without comments."""
    lines = [line.partition("#")[0].strip() for block in blocks("", page) for line in block.splitlines()]
    found = [line for line in lines if line.startswith(prefix)]
    assert found, f"no command {prefix}"
    return found


PAGES = [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))]


def test_the_readme_shows_python():
    assert len(blocks("python")) >= 2


@pytest.mark.integration
@pytest.mark.parametrize("snippet", [block for page in PAGES for block in blocks("python", page)])
def test_python_snippets_run(snippet, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet.replace("0_000", "00"), "README.md", "exec"), {})  # as shown, but short
    if "print" in snippet:
        assert re.match(r"\{0: \d+, 1: \d+\} \[", capsys.readouterr().out)  # both seeds learned


COMMAND_PAGES = ["README.md", "docs/gymnasium.md", "docs/atari.md", "docs/seeing.md"]
SHORT_ATARI = "--steps 60 --heads 2 --hidden 8 --batch-size 4 --replay-capacity 200 --learning-start-steps 20"


@pytest.mark.integration
@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_commands_run(page, tmp_path, monkeypatch):
    """All commands of a page, one after the other in one place, as a reader gives them."""
    monkeypatch.chdir(tmp_path)
    for command in commands("bootdqn", (ROOT / page).read_text()):
        arguments = shlex.split(command)[1:]
        if "--help" in arguments:
            with pytest.raises(SystemExit) as stop:
                main(arguments)
            assert stop.value.code == 0
            continue
        # As shown, but short: the last flag counts.
        short = ["--steps", "60"] if "CartPole-v1" in arguments else ["--episodes", "2"]
        if "atari:breakout" in arguments:
            short = [*SHORT_ATARI.split(), "--evaluate-every-steps", "0"]
        flags = {"train": short, "reproduce": ["--preset", "smoke"], "evaluate": ["--episodes", "2"]}
        flags["sweep"] = ["--set", "episodes=2", "--seeds", "1"]
        assert main(arguments + flags.get(arguments[0], [])) == 0, command
        if "--out" in arguments:
            files = {"train": "metrics.csv", "reproduce": "results.csv", "sweep": "results.csv"}
            assert (tmp_path / arguments[arguments.index("--out") + 1] / files.get(arguments[0], "")).exists()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_from_a_laptop_to_a_cluster(cluster, tmp_path, monkeypatch, capsys):
    """All commands of the page, one after the other in one place, as a reader gives them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)  # where `--address auto` looks first
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert [command.split()[:2] for command in commands("ray", page)] == [["ray", "start"]] * 2  # done by now
    for command in commands("bootdqn", page):
        # An experiment of seconds in place of one of weeks, and no place of ours at the root of all files.
        text = command.replace("atari-49", "planning-trees").replace("/shared", str(tmp_path / "shared"))
        arguments = shlex.split(text.replace("steps=20000", "steps=60"))[1:]
        short = {"reproduce": ["--preset", "smoke"], "sweep": ["--seeds", "1"]}.get(arguments[0], [])
        if "chain:20" in arguments:
            short += ["--set", "episodes=2"]
        if arguments[0] == "train":
            short += ["--steps", "400", "--evaluate-every-steps", "0"]
        assert main(arguments + short) == 0, command
    said = capsys.readouterr().out
    assert said.count("the sweep has ended") == 2
    assert "in rounds of 25 steps" in said
    assert "(6 runs, 2 experiments," in said
    assert "(0 runs, 1 experiment," in said
    assert "planning-trees/planning-trees.png" in said


def test_make_targets_exist_and_demo_is_the_verb():
    shown = commands("make")
    assert shown == ["make demo", "make test"]
    for command in [
        *shown,
        *(f"make {t}" for t in ["setup", "test-all", "test-peers", "browser", "lint", "types", "bench", "clean"]),
    ]:
        # A dry run: this test runs under one of these targets.
        subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)
    recipe = subprocess.run(["make", "--dry-run", "demo"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "bootdqn demo" in recipe.stdout


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_metrics_column_is_documented():
    reference = (ROOT / "docs" / "reference.md").read_text()
    for column in METRICS:
        assert f"`{column}`" in reference
