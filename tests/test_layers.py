"""Imports only point down, as docs/architecture.md draws it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "bootdqn"
# From the bottom; modules of one layer may use each other. A module belongs where its longest name is found.
LAYERS = [
    {"errors"},
    {"tabular"},
    {"types"},
    {"replay", "core", "analysis.stats", "analysis.agreement"},
    {"envs", "regression"},
    {"runs.directory", "runs.records", "runs.arrays", "runs.model_file", "runs.checkpoint", "runs.progress"},
    {"loops"},
    {"analysis", "plots"},
    {"runs"},
    {"api", "doctor"},
    {"experiments"},
    {"report", "watch", "bench"},
    {"cli"},
]
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def rank(module: str) -> int:
    """Of a module's name without the package's."""
    while module not in RANKS:
        module = module.rpartition(".")[0]
    return RANKS[module]


def imported(path: Path) -> list[str]:
    """The modules of ours that a file imports, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bootdqn."):
            module = (node.module or "").removeprefix("bootdqn.")
            inner = [f"{module}.{alias.name}" for alias in node.names]
            found += [name for name in inner if (PACKAGE / f"{name.replace('.', '/')}.py").exists()] or [module]
    return found


def test_imports_only_point_down():
    wrong, checked = [], 0
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if module in ("__init__", "__main__"):
            continue
        for used in imported(path):
            checked += 1
            if rank(used) > rank(module):
                wrong.append(f"{module} imports {used}")
    assert not wrong
    assert checked > 100


def test_only_the_command_line_imports_benchmarks():
    importers = {path.parent.name for path in PACKAGE.rglob("*.py") for used in imported(path) if "bench" in used}
    assert importers == {"bench", "cli"}
