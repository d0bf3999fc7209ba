"""The Markdown of experiment summaries as HTML."""

from __future__ import annotations

from markdown_it import MarkdownIt

# Only what summaries contain. Everything else, raw HTML and links included, is shown as escaped text.
_PARSER = MarkdownIt("zero", {"html": False}).enable(["heading", "table"])


def to_html(source: str) -> str:
    """The HTML of headings, paragraphs and tables, with all text escaped."""
    tokens = _PARSER.parse(source)
    for token in tokens:
        if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            token.tag = f"h{min(int(token.tag[1]) + 3, 6)}"  # the page itself uses h1 to h3
        if token.attrs.pop("style", None) == "text-align:right":
            token.attrs["class"] = "num"
    html = _PARSER.renderer.render(tokens, _PARSER.options, {})
    return html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
