"""Tables, as text and as a page to look at."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any


def table(rows: Sequence[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """An HTML table; every cell is escaped."""

    def row(cells: Sequence[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + (row(head, "th") if head else "") + "".join(row(r, "td") for r in rows) + "</table>"


def page(title: str, heading: str, body: str) -> str:
    """A whole document around ``body``, which is HTML."""
    return (
        "<!doctype html><meta charset=utf-8>"
        f"<title>{html.escape(title)}</title>"
        "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:left;vertical-align:top}</style>"
        f"<h1>{html.escape(heading)}</h1>{body}"
    )


def columns(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """Text whose columns stand below one another; the last one is as wide as it is."""
    cells = [list(head), *([str(c) for c in r] for r in rows)]
    widths = [max(len(r[i]) for r in cells) for i in range(len(head) - 1)] + [0]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells)
