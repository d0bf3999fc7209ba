"""What `import bootdqn` loads: it must stay light for those who only train."""

import subprocess
import sys

HEAVY = {"matplotlib", "tyro", "sklearn", "ray", "rich", "scipy.special", "PIL", "markdown_it", "ale_py"}


def test_training_and_colours_come_without_what_draws_and_what_parses_commands():
    script = "import sys, bootdqn, bootdqn.plots.style\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"bootdqn.api", "bootdqn.plots.style"} <= loaded
    assert not loaded & HEAVY
