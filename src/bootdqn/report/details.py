"""Everything that the page shows about one run: curve, X-ray, report card, videos, and how to reproduce it."""

from __future__ import annotations

import json
from html import escape

from bootdqn.analysis.xray import read_xray
from bootdqn.plots.style import figure_bytes
from bootdqn.plots.xray import xray_figure
from bootdqn.report.charts import heat, heat_map
from bootdqn.report.pieces import (
    MAX_SVG_BYTES,
    count,
    data_uri,
    facts_html,
    figure,
    fold,
    image,
    notes_html,
    num,
    number_text,
    scroll,
    sentence,
    versions_html,
)
from bootdqn.report.records import PolicyScore, ReportCard, RunRecord, text

MAX_VIDEO_BYTES = 20_000_000
"""Larger videos are not embedded in the page."""
_ABOUT_WARNING = (
    "<p>This is expected once the optimal policy has been found. Before that, it means that the heads no longer "
    "explore.</p>"
)
_POLICIES = {"vote": "majority of the heads", "mean": "mean of the heads"}


def run_html(run: RunRecord) -> str:
    """The HTML of the section about a run."""
    notes = list(run.notes)
    parts = {
        "Learning curve": figure(run.path, "learning_curve", notes)
        or "<p>The figure is drawn when the run ends; the curve so far is among the learning curves.</p>",
        "Exploration X-ray": _xray(run, notes),
        "Head report card": _cards(run),
        "Videos": _videos(run, notes),
        "Protocol": facts_html(run.protocol),
    }
    error = text(run.record.get("error"))
    configuration = f"<pre>{escape(json.dumps(run.config, indent=2, ensure_ascii=False))}</pre>"
    return "".join(
        [
            f'<p class="warning">The run ended with an error: {escape(error)}</p>' if error else "",
            notes_html(notes),
            *(f"<h4>{title}</h4>{html}" for title, html in parts.items() if html),
            "<h4>To reproduce</h4>",
            facts_html({"command": run.record.get("command"), "git revision": run.record.get("git_revision")}),
            fold("Configuration", configuration, run.name),
            fold("Versions", versions_html(run.record), run.name),
        ]
    )


def _xray(run: RunRecord, notes: list[str]) -> str:
    """HTML of the exploration X-ray, empty if the run has no data for it."""
    try:
        xray = read_xray(run.path)
        if xray is None:
            return ""
        drawing, suffix = xray_figure(xray), ".svg"
        drawn = figure_bytes(drawing, suffix)
        if len(drawn) > MAX_SVG_BYTES:
            suffix = ".png"
            drawn = figure_bytes(drawing, suffix)
    except Exception as error:  # whatever is wrong with the tables, the run must appear on the page
        notes.append(f"the exploration X-ray could not be drawn: {error}")
        return ""
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in xray.findings)
    return f"<ul>{findings}</ul>{image(data_uri(drawn, suffix), 'exploration X-ray')}"


def _cards(run: RunRecord) -> str:
    first, *others = [_card(card) for card in run.cards] or [""]
    more = f"Report cards of {count(len(others), 'more seed')}"
    return first + (fold(more, "".join(others), run.name) if others else "")


def _card(card: ReportCard) -> str:
    means = [0.0, *(policy.mean for policy in card.policies if policy.mean is not None)]
    rows = "".join(_policy_row(policy, min(means), max(means)) for policy in card.policies)
    titles = ("Who acts", "Mean return", "", "Least", "Largest", "Episodes", "Share of the data")
    head = "".join(f"<th{num(i > 0)}>{title}</th>" for i, title in enumerate(titles))
    table = scroll(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>", "head report card")
    matrix = ""
    if card.correlation:
        colours = "".join(f'<i style="background:{heat(i / 10)}"></i>' for i in range(11))
        matrix = (
            '<figure class="map"><figcaption>How alike every two heads are '
            f"(correlation of their preferences on {escape(card.observations)})</figcaption>"
            f'{heat_map(card.correlation)}<p class="scale">unlike (0 or less) {colours} the same (1)</p></figure>'
        )
    facts = []
    if card.effective_heads is not None:
        worth = f"{card.effective_heads:.3g} unrelated ones"
        facts.append(f"<strong>The {len(card.correlation)} heads are worth {worth}.</strong>")
    if card.agreement is not None:
        facts.append(f"Two heads have the same favourite action in {card.agreement:.0%} of observations.")
    return (
        f"<h5>{escape(card.title)}</h5>"
        + (f'<p class="warning">{escape(sentence(card.warning))}</p>{_ABOUT_WARNING}' if card.warning else "")
        + (f"<p>{' '.join(facts)}</p>" if facts else "")
        + f'<div class="card">{table}{matrix}</div>'
    )


def _policy_row(policy: PolicyScore, low: float, high: float) -> str:
    bar = ""
    if policy.mean is not None and high > low:
        left, width = (min(policy.mean, 0) - low) / (high - low), abs(policy.mean) / (high - low)
        bar = f'<div class="bar" style="margin-left:{left:.1%};width:{width:.1%}"></div>'
    share = "" if policy.share is None else f"{policy.share:.0%}"
    shown = [number_text(value) for value in (policy.least, policy.largest, policy.episodes)]
    cells = "".join(f'<td class="num">{cell}</td>' for cell in (*shown, share))
    return (
        f'<tr><th scope="row">{escape(_POLICIES.get(policy.name, policy.name))}</th>'
        f'<td class="num">{number_text(policy.mean)}</td><td class="bars">{bar}</td>{cells}</tr>'
    )


def _videos(run: RunRecord, notes: list[str]) -> str:
    parts = []
    for path in sorted(path for path in run.path.iterdir() if path.suffix in (".mp4", ".gif")):
        name = escape(path.name)
        try:
            size = path.stat().st_size
            if size > MAX_VIDEO_BYTES:
                where = escape(f"{run.name}/{path.name}")
                parts.append(f"<p>{where} is not shown here: {size / 1e6:.0f} MB are too much for a page.</p>")
                continue
            uri = data_uri(path.read_bytes(), path.suffix)
        except OSError as error:
            notes.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        tag = "img" if path.suffix == ".gif" else "video controls muted playsinline loop"
        moving = f'<{tag} src="{uri}" aria-label="{name}">' + ("</video>" if path.suffix == ".mp4" else "")
        parts.append(f"<figure>{moving}<figcaption>{name}</figcaption></figure>")
    return f'<div class="videos">{"".join(parts)}</div>' if parts else ""
