"""What a long read will take, told once it can be known: after the first forward passes."""

from dataclasses import dataclass, field

from infinipot.reading.progress import Progress

LONG = 30.0  # seconds that nobody needs to be warned of
SURE, LATEST = 1.0, 5.0  # seconds to measure beyond the first pass, and in all at most


@dataclass
class Estimate:
    """The time a text will take, from its characters and its first passes; says so once, if that is long."""

    total: int | None  # characters of the text, where that is known
    before: Progress  # where reading stood
    _first: Progress | None = None
    _told: bool = field(default=False)

    def after(self, step: Progress, characters: int) -> str:
        """Return the line that tells how long the rest will take, if it is time to say so, else nothing.

        `characters` are those of the tokens that were read.
        """
        if self._told or not self.total or not characters:
            return ""
        first = self._first or self.before
        self._first = self._first or step  # the first pass is slower: memory is made, graphs are captured
        spent, tokens = step.seconds - first.seconds, step.tokens_read - first.tokens_read
        early = first is self.before and spent < LATEST
        if early or spent < SURE or tokens <= 0:
            return ""
        self._told = True
        read = step.tokens_read - self.before.tokens_read
        every = read * max(1.0, self.total / characters)
        left = (every - read) * spent / tokens
        return f"reading some {rounded(every):,} tokens will take about {span(left)}" if left > LONG else ""


def rounded(count: float) -> int:
    """Return a number rounded to its first two digits."""
    size = 10 ** max(0, len(str(int(count))) - 2)
    return int(round(count / size) * size)


def span(seconds: float) -> str:
    """Write a time as people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
