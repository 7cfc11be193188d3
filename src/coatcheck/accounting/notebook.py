"""Tables for notebooks: what plans, outcomes, guarantees and ledgers show as HTML."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, note: str = ""
) -> str:
    """Return a table without style of its own; the note is folded beneath it."""
    top = f"<tr>{_cells('th', head)}</tr>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    more = (
        f"<details><summary>in words</summary><pre>{escape(note)}</pre></details>" if note else ""
    )
    return f"<table><caption>{escape(caption)}</caption>{top}{body}</table>{more}"


def _cells(kind: str, texts: Iterable[str]) -> str:
    return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)
