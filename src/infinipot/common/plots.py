"""What all plots share: matplotlib, imported late, one look for light and dark pages, colours, and PNG files.

Knows nothing of what is drawn: a drawing is a function from matplotlib's `pyplot` to a figure.
"""

import base64
import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infinipot.common.extras import needed_for

INK = {"light": "#1f2328", "dark": "#d7dce2"}
# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999")
MARKERS = "osD^vPX*"
GREY = "#888888"
DPI = 130
Draw = Callable[[Any], Any]  # from pyplot to a figure


@dataclass(frozen=True)
class Picture:
    """One drawing as PNG for each kind of page."""

    name: str  # of the file
    caption: str
    light: bytes
    dark: bytes

    def html(self) -> str:
        """Return a figure with both pictures in it; the browser shows the one that suits its page."""
        light, dark = (base64.b64encode(data).decode() for data in (self.light, self.dark))
        kind, caption = "data:image/png;base64,", html.escape(self.caption)
        return (
            f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{kind}{dark}">'
            f'<img loading="lazy" alt="{caption}" src="{kind}{light}"></picture>'
            f"<figcaption>{caption}</figcaption></figure>"
        )


def pyplot(extra: str) -> Any:
    """Return matplotlib's pyplot, drawing without a screen; `extra` is the extra of ours that installs it."""
    with needed_for("a picture", extra):
        import matplotlib as mpl
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def picture(plots: Any, name: str, caption: str, draw: Draw) -> Picture:
    """Draw for both kinds of page."""
    return Picture(name, caption, png(plots, draw, "light"), png(plots, draw, "dark"))


def png(plots: Any, draw: Draw, page: str, ground: str | None = None) -> bytes:
    """Draw for a light or dark page, on a ground of its own or on the page's."""
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    hidden = ("axes.spines.top", "axes.spines.right", "legend.frameon")
    sizes = {"axes.titlesize": 10, "font.size": 9}
    look = dict.fromkeys(inked, INK[page]) | dict.fromkeys(hidden, False) | sizes
    behind = {"transparent": True} if ground is None else {"facecolor": ground}
    with plots.rc_context(look):
        figure, stream = draw(plots), io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI, metadata={"Software": None}, **behind)
        plots.close(figure)
    return stream.getvalue()
