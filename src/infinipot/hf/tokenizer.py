"""A transformers tokenizer behind the project's own interface.

Text from a user never becomes a control token, whatever it spells; the chat format is read off the
tokenizer's own template. This module does not load tokenizers and knows no model family: what a loader has
found out (BOS wanted, ids that end an answer, ids of control type) comes in as arguments.

Known limits. A tokenizer that puts a space before every text (Llama 2) puts one before each
question too. Characters that a vocabulary cannot spell are lost, as they are with the tokenizer
alone: SmolLM2 has no token for the bytes 04, 06, 13, 14, 16, 1D, F1 and F2.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from infinipot.errors import ConfigError, InputError, ModelError
from infinipot.text.tokenizer import CHAT_ASK_BEFORE, PLAIN, Format, Frame, Tools, around
from infinipot.text.windows import WINDOW, Encoded, encode_windows

_USER, _ANSWER, _AGAIN = "QzUserTextQz", "QzAnswerTextQz", "QzSecondTextQz"
_TURNS = ("user", "assistant", "user")
_SEPARATORS = ("\ue000", "\x1f", "\n", "|", "0")  # seldom one token with a neighbour, first to last
_ROUNDS = 8
_SHORT = 3  # messages of a conversation whose layout is remembered
_BARE = dict.fromkeys(("add_special_tokens", "return_attention_mask", "return_token_type_ids"), False)
_BARE["verbose"] = False  # whatever the length
_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKETED = re.compile(r"<(?!0x[0-9A-F]{2}>)[^<>\s]+>")  # but not the byte tokens of SentencePiece
_PLAIN_TEXT = re.compile("[!-~]+")  # spelt alike in every vocabulary
# Control tokens by their names, for vocabularies that do not mark them (GGUF under transformers 5.17).
_CONTROL_NAME = re.compile(r"<\|[^<>\s]+\|>|<(?:start|end)_of_\w+>")


def _unusable(problem: str) -> ConfigError:
    return ConfigError(problem, field="format", remedy="use `format` plain")


class HFTokenizer:
    """`infinipot.text.tokenizer.Tokenizer` over a fast transformers tokenizer.

    add_bos: whether a plain text begins with BOS; None asks the tokenizer.
    eos_ids: ids that end an answer, or the one id that does, as the generation config has them.
    control_ids: further ids no text may yield, such as the control type of a GGUF vocabulary.
    window: characters tokenised at once by `encode_stream`.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        add_bos: bool | None = None,
        eos_ids: Iterable[int] | int | None = (),
        control_ids: Iterable[int] = (),
        window: int = WINDOW,
    ) -> None:
        if not tokenizer.is_fast:
            raise ModelError("this model has no fast tokenizer (tokenizer.json): convert it first")
        self.inner = self._hf = tokenizer  # transformers' own, for libraries that know no other
        self._window = window
        self._dialogues: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        self._spaced = self._hf.convert_ids_to_tokens(self._call("x")[0])[0][0] in "▁Ġ"
        self._bos = self._find_bos(add_bos)
        self.control_ids: frozenset[int] = self._find_control(control_ids)  # which no text yields
        self.stop_ids: frozenset[int] = self._find_stops(eos_ids)
        self.byte_fallback_ids: frozenset[int] = self._find_byte_fallback()

    def spellings(self) -> str:
        """Return the tokenizer's own file, in which added tokens that are text are text as any other.

        A reader of that file may take every added token for a control token: `<tool_call>` of Qwen's is none.
        """
        told = json.loads(self._hf.backend_tokenizer.to_str())
        vocabulary = told["model"].get("vocab")
        if isinstance(vocabulary, dict):
            plain = [one for one in told["added_tokens"] if _PLAIN_TEXT.fullmatch(one["content"])]
            text = [one for one in plain if not (one["special"] or one["id"] in self.control_ids)]
            # All of them, since those that stay would get other ids: the next ones after the vocabulary.
            vocabulary.update({one["content"]: one["id"] for one in told["added_tokens"]})
            told["added_tokens"] = [one for one in told["added_tokens"] if one not in text]
        return json.dumps(told)

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: nothing added, and no control token whatever it spells."""
        return self._guarded(text)[0]

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        """Yield the ids of `encode("".join(pieces))` part by part, in bounded memory."""
        unigram = type(self._hf.backend_tokenizer.model).__name__ == "Unigram"
        return encode_windows(self._guarded, pieces, self._window, at_words=unigram)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; control tokens show as they are written."""
        return str(self._hf.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def frame(self, format: Format) -> Frame:
        """Return what goes around document, questions and answers in the named format."""
        return self._chat if format == "chat" else self._plain

    def dialogue(self, roles: Sequence[str], format: Format, tools: Tools = ()) -> list[tuple[int, ...]]:
        """Return what goes before each message of a conversation, and between the last and its answer.

        A template that refuses these roles gets the questions and answers alone, a system's message
        before the question it precedes. `tools` are told by the template, or refused.
        """
        if tools:
            self._require_tools(roles, format, tools)
            return self._dialogue(roles, format, tools)
        known = self._dialogues.get((format, *roles)) or self._dialogue(roles, format, tools)
        if len(roles) <= _SHORT and "strftime_now" not in str(self._hf.chat_template):  # today's date
            self._dialogues[format, *roles] = known
        return list(known)

    def _dialogue(self, roles: Sequence[str], format: Format, tools: Tools) -> list[tuple[int, ...]]:
        if format == "chat":
            with nullcontext() if tools else suppress(ConfigError):
                texts = self._render([f"QzText{index}Qz" for index in range(len(roles))], roles, tools)
                parts = [self._part(text, first=not k, before_text=True) for k, text in enumerate(texts[:-1])]
                return [*parts, self._part(texts[-1])]
        return around(roles, self.frame(format))

    def parts(self) -> list[Any]:
        """Return what decides how texts are split, and the chat template, for a fingerprint."""
        backend = json.loads(self._hf.backend_tokenizer.to_str())
        # Both are set by the last caller. The chat frame itself may hold today's date, its template does not.
        for passing in ("truncation", "padding"):
            backend.pop(passing, None)
        return [backend, self._hf.chat_template]

    @cached_property
    def _plain(self) -> Frame:
        return self._framed(self._bos, PLAIN)

    @cached_property
    def _chat(self) -> Frame:
        opening, ask_after = self._render((_USER,))
        _, _, turn_before, turn_after = self._render((_USER, _ANSWER, _AGAIN))
        begin = self._part(opening, first=True, before_text=True)
        frame = self._framed(begin, (CHAT_ASK_BEFORE, ask_after, turn_before, turn_after))
        # Without a token that ends an answer, the words that open the next turn must do.
        words = "" if self._end_of_turn(frame.turn_before) else turn_before.strip()
        return replace(frame, stop_strings=(words,)) if words else frame

    def _framed(self, opening: tuple[int, ...], texts: Sequence[str]) -> Frame:
        """Return the frame of texts before and after the first question, before and after a further one."""
        before, after, again, then = (self._part(text, before_text=not k % 2) for k, text in enumerate(texts))
        return Frame(opening, before, after, again, then)

    def _require_tools(self, roles: Sequence[str], format: Format, tools: Tools) -> None:
        """Refuse tools that the model would never see, or that would speak as its control tokens do."""
        names = [f"QzText{index}Qz" for index in range(len(roles))]
        if format != "chat" or self._render(names, roles, tools) == self._render(names, roles):
            raise InputError("this model's chat template takes no tools: leave them out")
        spelt, _ = self._call(json.dumps(tools, ensure_ascii=False), control=True)
        if not self.control_ids.isdisjoint(spelt):
            raise InputError("a tool spells one of the model's control tokens: describe the tool otherwise")

    def _render(self, contents: Sequence[str], roles: Sequence[str] = _TURNS, tools: Tools = ()) -> list[str]:
        """Return the template's text around messages."""
        if not self._hf.chat_template:
            raise _unusable("this model has no chat template")
        messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
        try:
            text = self._hf.apply_chat_template(
                messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is a program of the model's author: anything can fail
            raise _unusable(f"this model's chat template fails ({error})") from error
        parts = re.split("|".join(contents), text)
        if re.findall("|".join(contents), text) != list(contents):
            raise _unusable("this model's chat template changes the messages")
        return parts

    def _part(self, text: str, *, first: bool = False, before_text: bool = False) -> tuple[int, ...]:
        """Ids of a part of the format itself, its control tokens recognised."""
        if not self._spaced:
            return tuple(self._call(text, control=True)[0])
        if before_text:
            text = text.removesuffix(" ")  # the text that follows brings this space itself
        if first:
            return tuple(self._call(text, control=True)[0])
        # After an "x" the tokenizer puts no space of its own: only the first word gets one.
        ids, spans = self._call("x" + text, control=True)
        return tuple(token for token, (start, _) in zip(ids, spans, strict=True) if start)

    def _call(self, text: str, *, control: bool = False) -> Encoded:
        try:
            encoded = self._hf(text, split_special_tokens=not control, return_offsets_mapping=True, **_BARE)
        except TypeError as error:
            if _SURROGATE.search(text):
                raise InputError("the text holds half a surrogate pair, which is not a character") from error
            raise
        return encoded["input_ids"], encoded["offset_mapping"]

    def _guarded(self, text: str) -> Encoded:
        """Encode; as long as control tokens come out, again with their texts cut in two.

        `split_special_tokens` alone is not enough: it leaves out added tokens that are not marked
        special, and control tokens that are ordinary entries of a SentencePiece vocabulary.
        """
        cuts: set[int] = set()
        for _ in range(_ROUNDS):
            ids, spans = self._cut(text, sorted(cuts))
            if self.control_ids.isdisjoint(ids):
                return ids, spans
            control = [k for k, token in enumerate(ids) if token in self.control_ids]
            spelt = [spans[k] for k in control if not self._unknown(ids[k], text[slice(*spans[k])])]
            if not spelt:
                return self._without_unknown(ids, spans)
            cuts.update((start + end + 1) // 2 for start, end in spelt)
        raise ModelError("this model's tokenizer makes control tokens of plain text: use another model")

    def _unknown(self, token: int, text: str) -> bool:
        """Whether the token stands for something the vocabulary lacks, not for its own name."""
        return bool(token == self._hf.unk_token_id and text != self._hf.unk_token)

    def _without_unknown(self, ids: list[int], spans: list[tuple[int, int]]) -> Encoded:
        # A true <unk> does no harm. But SmolLM2, under transformers 5.17, gets end-of-text for it.
        if "unk" in self._hf.unk_token.lower():
            return ids, spans
        kept = [k for k, token in enumerate(ids) if token != self._hf.unk_token_id]
        return [ids[k] for k in kept], [spans[k] for k in kept]

    def _cut(self, text: str, cuts: Sequence[int]) -> Encoded:
        """Encode with a separator at each cut, and leave the separators' tokens out."""
        if not cuts:
            return self._call(text)
        pieces = [text[a:b] for a, b in pairwise((0, *cuts, len(text)))]
        marks = [cut + k for k, cut in enumerate(cuts)]  # where the separators will be
        for separator in _SEPARATORS:
            ids, spans = self._call(separator.join(pieces))
            held = [(bisect_left(marks, start), bisect_left(marks, end)) for start, end in spans]
            if any(a != b and end - start > 1 for (a, b), (start, end) in zip(held, spans, strict=True)):
                continue  # a separator and a neighbour became one token
            kept = [k for k, (a, b) in enumerate(held) if a == b]
            shifted = [(spans[k][0] - held[k][0], spans[k][1] - held[k][0]) for k in kept]
            return [ids[k] for k in kept], shifted
        raise ModelError("this model's tokenizer cannot cut control tokens in two: use another model")

    def _find_bos(self, add_bos: bool | None) -> tuple[int, ...]:
        if add_bos is None:
            bare, dressed = self._call("x")[0], self._hf("x")["input_ids"]
            start = next(k for k in range(len(dressed)) if dressed[k : k + len(bare)] == bare)
            return tuple(dressed[:start])
        if add_bos and self._hf.bos_token_id is None:
            raise ConfigError("this model's tokenizer has no BOS token to begin with")
        return (self._hf.bos_token_id,) if add_bos else ()

    def _find_control(self, control_ids: Iterable[int]) -> frozenset[int]:
        added = self._hf.added_tokens_decoder
        found = {*control_ids, *self._hf.all_special_ids, *(i for i, t in added.items() if t.special)}
        found.update(i for name, i in self._hf.get_vocab().items() if _CONTROL_NAME.fullmatch(name))
        with suppress(ConfigError):
            chat = self._chat
            parts = (chat.opening, chat.ask_after, chat.turn_before, chat.turn_after)
            found.update(i for part in parts for i in part if self._looks_control(i))
        return frozenset(found)

    def _looks_control(self, token: int) -> bool:
        """Whether a token of the template marks structure; Gemma's newline, added too, does not."""
        text = self._hf.convert_ids_to_tokens(token)
        added = token in self._hf.added_tokens_decoder
        return bool(added and text.strip()) or bool(_BRACKETED.fullmatch(text))

    def _end_of_turn(self, turn_before: Iterable[int]) -> frozenset[int]:
        """The control token that follows an answer, if one does."""
        first = next((token for token in turn_before if self.decode([token]).strip()), None)
        return frozenset() if first is None or not self._looks_control(first) else frozenset({first})

    def _find_stops(self, eos_ids: Iterable[int] | int | None) -> frozenset[int]:
        ends = eos_ids if isinstance(eos_ids, Iterable) else [eos_ids]
        stops = {*ends, self._hf.eos_token_id} - {None}
        with suppress(ConfigError):
            stops |= self._end_of_turn(self._chat.turn_before)
        return frozenset(stops)

    def _find_byte_fallback(self) -> frozenset[int]:
        """The SentencePiece tokens of single bytes, if this tokenizer decodes them as such."""
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        pairs = zip(self._hf.convert_tokens_to_ids(names), names, strict=True)
        found = [i for i, name in pairs if i is not None and self._hf.convert_ids_to_tokens(i) == name]
        return frozenset(found) if found and "\ufffd" in self.decode(found[-1:]) else frozenset()
