"""As much Markdown as summaries of experiments have: headings, paragraphs and tables."""

from __future__ import annotations

import re
from html import escape


def to_html(source: str) -> str:
    """HTML of `source`; all of its text escaped."""
    blocks = re.split(r"\n\s*\n", source.replace("\r\n", "\n"))
    return "\n".join(_block(block.strip()) for block in blocks if block.strip())


def _block(block: str) -> str:
    lines = block.splitlines()
    heading = re.fullmatch(r"(#{1,6})\s+(.*)", lines[0])
    if heading:
        level = min(len(heading[1]) + 3, 6)  # the page itself goes down to h3
        rest = "\n".join(lines[1:])
        return f"<h{level}>{escape(heading[2])}</h{level}>" + (_block(rest) if rest.strip() else "")
    if len(lines) > 1 and re.fullmatch(r"[\s|:-]*-[\s|:-]*", lines[1]) and "|" in lines[0]:
        return _table(lines)
    return f"<p>{escape(' '.join(lines))}</p>"


def _table(lines: list[str]) -> str:
    header, marks, *rows = (_cells(line) for line in lines)
    classes = [' class="num"' if mark.endswith(":") else "" for mark in marks]

    def row(cells: list[str], tag: str) -> str:
        padded = [*cells, *[""] * (len(classes) - len(cells))]
        return "".join(f"<{tag}{name}>{escape(cell)}</{tag}>" for cell, name in zip(padded, classes, strict=False))

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{row(header, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]
