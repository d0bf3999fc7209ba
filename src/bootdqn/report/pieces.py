"""Building blocks of the page's HTML; all text in them is escaped."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from bootdqn.report.records import text

MAX_SVG_BYTES = 1_000_000
"""Larger figures are embedded as PNG."""
_MIMES = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4"}


def number_text(value: float | None) -> str:
    """A number with four digits, or a whole number from 1000 on; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def count(number: int, what: str) -> str:
    """A number with its noun, such as `1 run` or `2 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def sentence(words: str) -> str:
    """The words with a capital letter at the start and a full stop at the end."""
    return words[:1].upper() + words[1:].removesuffix(".") + "."


def num(is_number: bool) -> str:
    """The class attribute of a table cell, for right-aligned numbers."""
    return ' class="num"' if is_number else ""


def scroll(table: str, label: str) -> str:
    """A box in which a wide table can be scrolled, also by keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'


def fold(title: str, html: str, owner: str) -> str:
    """A section that is collapsed at first; `owner` makes its key unique on the page."""
    key = escape(f"{owner}/{title}")
    return f'<details data-key="{key}"><summary>{escape(title)}</summary>{html}</details>'


def notes_html(notes: Iterable[str]) -> str:
    """Paragraphs about all that could not be read."""
    return "".join(f'<p class="note">Incomplete: {escape(note)}.</p>' for note in notes)


def facts_html(facts: dict[str, Any]) -> str:
    """A list of names and values."""
    rows = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd><code>{escape(_plain(value))}</code></dd>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    return f"<dl>{rows}</dl>" if rows else ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def versions_html(record: dict[str, Any]) -> str:
    """A list of the versions of packages, Python and the system that a run was made with."""
    versions = record.get("versions")
    packages = versions if isinstance(versions, dict) else {}
    return facts_html({**packages, "python": record.get("python"), "platform": record.get("platform")})


def status_html(record: dict[str, Any]) -> str:
    """The status of a run, in words and colour."""
    status = text(record.get("status")) or "unknown"
    known = status if status in ("running", "finished", "interrupted", "failed") else "unknown"
    return f'<span class="status {known}">{escape(status)}</span>'


def data_uri(data: bytes, suffix: str) -> str:
    """The contents of a file as a data URI."""
    return f"data:{_MIMES[suffix]};base64,{base64.b64encode(data).decode()}"


def image(uri: str, label: str) -> str:
    """An image on a white background."""
    return f'<div class="scroll"><img class="paper" decoding="async" src="{uri}" alt="{escape(label)}"></div>'


def figure(folder: Path, stem: str, notes: list[str]) -> str:
    """The figure of this name in a folder, as SVG or PNG; empty if there is none."""
    try:
        sizes = {path.suffix: path.stat().st_size for path in folder.iterdir() if path.stem == stem}
        suffix = ".png" if ".png" in sizes and sizes.get(".svg", MAX_SVG_BYTES + 1) > MAX_SVG_BYTES else ".svg"
        if suffix not in sizes:
            return ""
        return image(data_uri((folder / f"{stem}{suffix}").read_bytes(), suffix), stem.replace("_", " "))
    except OSError as error:
        notes.append(f"the figure {stem} cannot be read: {error.strerror}")
        return ""
