"""An answer's text as events: pieces with the scores of their tokens, and calls of functions."""

from collections.abc import Callable, Iterable

from infinipot.reading.sequence import TokenScore
from infinipot.server.scheduler.requests import Event, Piece, Scored
from infinipot.server.scheduler.tool_calls import Call, CallParser, as_text
from infinipot.text.tokenizer import Tokenizer, Tools


class AnswerEvents:
    """Puts one answer's events; with tools, calls among them."""

    def __init__(
        self, put: Callable[[Event], None], tokenizer: Tokenizer, tools: Tools, one_call: bool
    ) -> None:
        self._put, self._tokenizer, self._one = put, tokenizer, one_call
        names = {tool["function"]["name"] for tool in tools}
        self._parser = CallParser(names) if tools else None
        self._text, self._calls = "", list[Call]()
        self._scored: list[Scored] = []  # of tokens whose text has not been given out

    @property
    def calls(self) -> int:
        """Calls so far."""
        return self._parser.calls if self._parser else 0

    @property
    def done(self) -> bool:
        """Say whether the one call that is wanted has come."""
        return self._one and self.calls > 0

    def answer(self, text: str) -> str:
        """Return an answer as its caller will send it back: calls in the one way they are written there."""
        return as_text(self._text, self._calls) if self._calls else text

    def tell(self, text: str, score: TokenScore | None) -> None:
        """Give out the text of a token."""
        if score is not None:
            spell = self._tokenizer.decode
            likeliest = tuple((spell([token]), value) for token, value in score.likeliest)
            self._scored.append(Scored(spell([score.token]), score.logprob, likeliest))
        self._give([text] if self._parser is None else self._parser.push(text))

    def end(self, text: str) -> None:
        """Give out what was held back."""
        if self._parser is None:
            self._give([text])
        elif not self.done:
            self._give([*self._parser.push(text), *self._parser.flush()])
        if self._scored:
            self._put(Piece("", self._taken()))

    def _give(self, parts: Iterable[str | Call]) -> None:
        for part in parts:
            if isinstance(part, Call):
                if not self._one or self.calls == 1:
                    self._calls.append(part)
                    self._put(part)
            elif part:
                self._text += part
                self._put(Piece(part, self._taken()))

    def _taken(self) -> tuple[Scored, ...]:
        taken, self._scored = tuple(self._scored), []
        return taken
