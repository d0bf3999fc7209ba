"""Imports only point down, as docs/architecture.md draws it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "bootdqn"
# From the bottom; modules of one layer may use each other.
LAYERS = [
    {"errors", "memory", "kernels"},
    {"tabular"},
    {"types"},
    {"envs", "replay", "networks", "pictures", "losses", "masks", "policies", "stats", "heads"},
    {"agent", "updates", "regression"},
    {"runs"},
    {"loops"},
    {"figures", "score_figures", "progress", "xray", "cards", "cluster"},
    {"xray_figure"},
    {"training", "bench", "bench_atari", "actors"},
    {"gym_run", "doctor"},
    {"model"},
    {"experiments"},
    {"report", "watch"},
    {"cli"},
]
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def test_imports_only_point_down():
    wrong, checked = [], 0
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer in ("__init__", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bootdqn."):
                used = (node.module or "").split(".")[1]
                checked += 1
                if RANKS[used] > RANKS[layer]:
                    wrong.append(f"{path.name} imports {node.module}")
    assert not wrong
    assert checked > 100
