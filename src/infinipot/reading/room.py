"""Room in the pot for a question and its answer: what is distilled before them, what is too long."""

from infinipot.errors import InputError
from infinipot.reading.plan import RECENT
from infinipot.reading.session import PotSession
from infinipot.reading.state import HeadAndTail

TURNS = 8  # the part of a pot that is left free for the next turns of a talk


def before_question(session: PotSession, count: int, most: int, final: bool = False) -> None:
    """Before a question of `count` tokens and an answer of `most`, distil what was read last.

    With `tail` fill, only where question and answer would have no room, or what is needed to go on; a text
    that is there as a whole stays so before a `final` question. A talk that goes on gets room for its next
    turns too, so that not every one of them distils. With `tail` distil, what was not distilled yet of a text
    that is not there as a whole.
    """
    config, pot = session.config, session.pot
    if session.fills_tail:
        spare = 1 + len(session.catalyst)
        if count + most + (0 if final and not pot.cycles else spare) > pot.room:
            require(session, count, spare)
            turns = config.capacity // TURNS if session.state.in_dialogue and not final else 0
            budget = max(config.kept, config.capacity - count - most - spare - turns)
            if budget < pot.fill:
                session.write([], distil=True, recent=RECENT, budget=budget)
    elif session.distils and config.tail == "distil" and session.state.has_undistilled and pot.cycles:
        session.write([], distil=True, recent=RECENT)


def make_room(session: PotSession, count: int, after: int) -> None:
    """Distil, harder than usual if need be, when `count` tokens and `after` more would not fit."""
    if count + after > session.pot.room:
        require(session, count, after)
        budget = min(session.config.kept, session.config.capacity - count - after)
        session.write([], distil=True, budget=budget)


def make_room_for_catalyst(session: PotSession) -> None:
    """Distil where a longer catalyst has no room any more, with as much of the catalyst's end as fits."""
    pot = session.pot
    if pot.room >= len(session.catalyst):
        return
    if session.state.exhausts_pot or not session.distils or not pot.room:
        remedy = "use ask(), or fork() before answer()"
        raise InputError("this reader's pot was filled by its answer", remedy=remedy)
    kept, catalyst = session.config.kept, session.catalyst
    budget = max(kept, session.config.capacity - len(catalyst)) if session.fills_tail else kept
    session.catalyst = catalyst[-pot.room :]
    try:
        session.write([], distil=True, recent=RECENT, budget=budget)
    finally:
        session.catalyst = catalyst


def require(session: PotSession, count: int, after: int) -> None:
    """Refuse tokens that would not fit beside even the smallest pot."""
    config = session.config
    if not session.mode.grows and count + after + max(1, config.opening) > config.capacity:
        problem = f"a question of {count} tokens is too long for a pot of {config.capacity}"
        remedy = f"shorten it or use `capacity` {config.kept + count + after}"
        raise InputError(problem, field="capacity", remedy=remedy)


def require_cut(session: PotSession, count: int, most: int) -> None:
    """Refuse a prompt that would be cut itself, where a recipe reads both ends of a text only."""
    limit, ends = session.config.capacity - most, session.state.head_tail
    cut = ends is not None and ends.total + count > limit
    if count > limit or (cut and count > limit // 2):
        wanted = f"a question of {count} tokens and an answer of up to {most} are too long"
        problem, least = f"{wanted} for a pot of {session.config.capacity}", 2 * count + most
        raise InputError(problem, field="capacity", remedy=f"shorten them or use `capacity` {least}")


def cut(session: PotSession, prompt: list[int], most: int) -> tuple[HeadAndTail, list[int]]:
    """Empty the pot; return both ends of all that was said with the prompt, and the tokens to be written."""
    require_cut(session, len(prompt), most)
    assert session.state.head_tail is not None
    ends = session.state.head_tail.copy()
    ends.push(prompt)
    session.pot.clear()
    session.held_words.clear()
    session.state.last_hidden = None
    return ends, ends.cut(session.config.capacity - most)
