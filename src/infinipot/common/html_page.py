"""An HTML page that is one file: styles, pictures and scripts are in the page; nothing is fetched."""

import html
import re
from collections.abc import Iterable, Mapping


def page(title: str, style: str, parts: Iterable[str]) -> str:
    """Return a whole page; the parts are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def slug(title: str) -> str:
    """Return a title as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def facts(told: Mapping[str, str]) -> str:
    """Return a list of names and what is to be known of each."""
    rows = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>\n" for name, text in told.items())
    return f"<dl>{''.join(rows)}</dl>"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], kinds: Iterable[str]) -> str:
    """Return a table that scrolls where the page is narrow; `kinds` are the columns' classes."""
    classes = [f" class={kind}" if kind else "" for kind in kinds]

    def line(tag: str, cells: Iterable[str]) -> str:
        told = zip(classes, cells, strict=False)
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in told)

    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{line('th', columns)}</tr></thead>"
    return f"<div class=wide><table>{head}\n<tbody>{body}</tbody></table></div>\n"
