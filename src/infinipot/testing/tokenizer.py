"""Public test doubles that need no downloads: a tokenizer whose ids are bytes.

For tests of code that uses a tokenizer, here and in other projects. Deliberately knows nothing of
transformers, nor of any real vocabulary.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from infinipot.text.tokenizer import CHAT_ASK_BEFORE, PLAIN, Format, Frame, Spellings, Tools, around

BEGIN, END, USER, ASSISTANT = 256, 257, 258, 259


class ByteTokenizer:
    """`infinipot.text.tokenizer.Tokenizer` with one id per UTF-8 byte, then four control ids.

    A chat reads BEGIN USER document question END ASSISTANT answer END USER question END ASSISTANT.
    """

    vocab_size = 260
    stop_ids = frozenset({END})
    control_ids = frozenset({BEGIN, END, USER, ASSISTANT})

    def spellings(self) -> Spellings:
        """Return what every id stands for."""
        names = (b"<begin>", b"<end>", b"<user>", b"<assistant>")
        return Spellings((*(bytes([byte]) for byte in range(256)), *names), tuple(sorted(self.control_ids)))

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: its bytes, so never a control id."""
        return list(text.encode())

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        """Yield the ids of each piece; bytes need no context."""
        return (self.encode(piece) for piece in pieces if piece)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; control ids have none."""
        return bytes(i for i in ids if i < BEGIN).decode(errors="replace")

    def dialogue(self, roles: Sequence[str], format: Format, tools: Tools = ()) -> list[tuple[int, ...]]:
        """Return what goes before each message, and after the last; tools are told as JSON, first of all."""
        found = around(roles, self.frame(format))
        told = self.encode(json.dumps(list(tools))) if tools else ()
        return [(*found[0], *told), *found[1:]]

    def frame(self, format: Format) -> Frame:
        """Return what goes around document, questions and answers in the named format."""
        if format == "chat":
            middle = tuple(self.encode(CHAT_ASK_BEFORE))
            return Frame((BEGIN, USER), middle, (END, ASSISTANT), (END, USER), (END, ASSISTANT))
        before, after, again, then = (tuple(self.encode(text)) for text in PLAIN)
        return Frame((BEGIN,), before, after, again, then)
