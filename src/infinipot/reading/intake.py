"""A text of any length into a session's pot, block by block: what is read next, when the pot is distilled."""

import time
from collections.abc import Iterable, Iterator, Sequence

from infinipot.reading.plan import BLOCK
from infinipot.reading.session import PotSession


def take_in(session: PotSession, opening: list[int], stream: Iterable[Sequence[int]]) -> Iterator[None]:
    """Read a prompt's opening and tokens as they come; yield after every forward.

    Only tokens of the stream count as read. What is still waiting at the end, because a policy observes it
    together with the question, becomes the session's pending tokens.
    """
    held = session.policy.last if session.policy and session.mode.distil == "prompt" else 0
    # To know beyond the pot's room before the pot is distilled: are these the text's last tokens?
    ahead = session.config.chunk(len(session.catalyst)) if session.fills_tail else 0
    waiting, prompt_left = list(opening), len(opening)
    for ids in stream:
        waiting.extend(ids)
        while len(waiting) > session.space + held + ahead:
            prompt_left = _take(session, waiting, held, prompt_left)
            yield
    while len(waiting) > held:
        prompt_left = _take(session, waiting, held, prompt_left, ends=True)
        yield
    started = time.perf_counter()
    session.pace.keep(last=True)
    state = session.state
    state.seconds += time.perf_counter() - started
    state.tokens_read += max(0, len(waiting) - prompt_left)
    if waiting:
        state.pending, state.in_dialogue = waiting, False


def _take(session: PotSession, waiting: list[int], held: int, prompt_left: int, ends: bool = False) -> int:
    """Read the next block of waiting tokens; distil if the block fills the pot and more will follow.

    Returns how many of the tokens still waiting are the prompt's, not the text's.
    """
    started, state, space = time.perf_counter(), session.state, session.space
    count = min(len(waiting) - held, space, session.block)
    distil = session.distils and count == space < len(waiting)
    if count > BLOCK // 2 and count + distil * len(session.catalyst) not in session.pot.lengths:
        count, distil = BLOCK // 2, False  # a rare shape is not captured: its memory comes on top
    if state.head_tail is not None:
        state.head_tail.push(waiting[:count])
    elif session.mode.prompt == "whole":
        budget = _budget(session, len(waiting) - count) if distil and ends else session.config.kept
        session.write(waiting[:count], distil=distil, budget=budget)
    del waiting[:count]
    state.in_dialogue = False
    state.tokens_read += max(0, count - prompt_left)
    prompt_left = max(0, prompt_left - count)
    state.pending = waiting[:prompt_left]  # the prompt's, or counted before: not lost if reading ends here
    state.has_undistilled = session.pot.fill > session.config.kept
    session.pace.keep()
    state.seconds += time.perf_counter() - started
    return prompt_left


def _budget(session: PotSession, rest: int) -> int:
    """Slots that a distillation leaves where a text ends with `rest` more tokens: as many as fit beside them.

    Not twice on end, or a text in many short pieces would be distilled with each of them.
    """
    kept = session.config.kept
    if not session.fills_tail or session.state.tail_was_filled:
        return kept
    return max(kept, session.config.capacity - rest - len(session.catalyst))
