"""Decoding at fixed shapes gives the plain path's tokens and pots; no GPU needed, graphs are only replays."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from families import build
from infinipot.core.attention import LogitSpec, attend, attend_fixed
from infinipot.core.cuda.capturing import apart_from_capture, to_host, unless_capturing
from infinipot.core.cuda.dispatch import _OrPlain, fused
from infinipot.core.cuda.graphs import MOST, Graphs, cycle_obstacle
from infinipot.hf.model import HFModel
from infinipot.reading.plan import CAPTURE_AFTER
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.stage import Stage
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler.warm_up import LONG_TEXT, MOST_LATE, late
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "The quick brown fox jumps over the lazy dog. "


class Endless(ByteTokenizer):
    stop_ids = frozenset()


@cache
def model(family: str) -> HFModel:
    return HFModel(copy.deepcopy(build(family)))


class Counting(Graphs):
    """Captures nothing, and counts the tokens that were decoded at fixed shapes."""

    decoded = 0

    def run(self, key, inputs, compute, often=1):
        self.decoded += isinstance(key, tuple)
        return super().run(key, inputs, compute, often)


def pair(engine, name: str = "infinipot", **options) -> tuple[Reader, Reader]:
    """The same reader twice, the second decoding at fixed shapes."""
    recipe = replace(Recipe.named(name, capacity=64, **options), catalyst="a b")
    plain, static = (recipe.reader(engine, Endless()) for _ in range(2))
    static.session.graphs = Counting(static.pot, capture=False)
    return plain, static


def same_pots(a: Reader, b: Reader) -> None:
    for one, two in zip(a.pot.pot_layers, b.pot.pot_layers, strict=True):
        assert (one.fill, one.tokens, one.anchored) == (two.fill, two.tokens, two.anchored)
        assert one.dropped.item() == two.dropped.item() == one.tokens - one.fill
        for column in ("source", "novelty", "keys", "values"):
            left, right = (getattr(layer, column)[:, :, : layer.fill] for layer in (one, two))
            torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama-2", "llama-3.1", "phi-3", "qwen3", "llama-dynamic"])
def test_families_decode_the_same_at_fixed_shapes(family: str) -> None:
    plain, static = pair(model(family))
    for one in (plain, static):
        one.read(TEXT * 4)
    wanted = Generation(max_new_tokens=90)  # longer than the pot: distilled on the way
    first = [list(one.generate(one.turn("go on"), wanted)) for one in (plain, static)]
    assert first[0] == first[1]
    assert static.session.graphs.decoded
    same_pots(plain, static)
    second = ["".join(one.chat("and then?", Generation(20))) for one in (plain, static)]
    assert second[0] == second[1]
    same_pots(plain, static)


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("name", ["infinipot", "cap-only", "nuc-only", "sirllm", "streaming-llm", "swa"])
def test_recipes_decode_the_same_at_fixed_shapes(name: str, bits: int) -> None:
    plain, static = pair(ToyModel(), name, pot_bits=bits)
    for one in (plain, static):
        one.read(TEXT * 4)
        one.said = ["".join(one.chat("so?", Generation(30))) for _ in range(3)]
    assert plain.said == static.said
    same_pots(plain, static)


def test_asking_leaves_no_trace_and_an_abandoned_answer_is_known() -> None:
    plain, static = pair(ToyModel())
    for one in (plain, static):
        one.read(TEXT * 3)
        one.asked = [one.ask("what?", Generation(9)) for _ in range(2)]
    assert plain.asked == static.asked
    assert static.asked[0] == static.asked[1]
    same_pots(plain, static)
    for one in (plain, static):
        answer = one.chat("tell me", Generation(20))
        for _ in range(5):
            next(answer)
        answer.close()
    same_pots(plain, static)


@pytest.mark.parametrize("then", ["read", "ask", "fork", "clear"])
def test_an_answer_left_suspended_is_known_to_what_follows(then: str) -> None:
    plain, static = pair(ToyModel())
    pots = []
    for one in (plain, static):
        one.read(TEXT * 2)
        answer = one.chat("tell me", Generation(30))
        for _ in range(4):
            next(answer)
        if then == "read":
            one.read("and more")
        elif then == "ask":
            one.ask("what?", Generation(5))
        elif then == "fork":
            one = one.fork()
            one.read("and more")
        else:
            one.clear()
            one.read("a new text")
        pots.append(one)
        answer.close()
    assert pots[0].ask("so?", Generation(12)) == pots[1].ask("so?", Generation(12))
    assert pots[0].pot.tokens == pots[1].pot.tokens
    assert pots[0].pot.fill == pots[1].pot.fill


def test_asking_before_reading_leaves_an_empty_pot() -> None:
    plain, static = pair(ToyModel())
    for one in (plain, static):
        one.ask("hello?", Generation(5))
        assert one.pot.fill == one.pot.tokens == 0
        one.read(TEXT * 2)
    same_pots(plain, static)


def test_graphs_are_few() -> None:
    static = Replays(ToyModel().new_pot(32, 16))
    for key in ((n,) for n in range(40)):
        for one in (key, (0,), key, key):
            static.run(one, [torch.zeros(1)], lambda x: x)
    assert set(static.captured) == {(0,), *((n,) for n in range(41 - MOST, 40))}  # those used last


def test_a_policy_that_watches_every_token_decodes_plainly() -> None:
    _, static = pair(ToyModel(), "h2o")
    static.read(TEXT * 3)
    list(static.chat("so?", Generation(5)))
    assert not static.session.graphs.decoded


def test_what_cannot_be_captured_says_why() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    pot = ToyModel().new_pot(32, 16)
    assert "CUDA" in cycle_obstacle(pot, cpu)
    assert cycle_obstacle(pot, cuda) == ""
    assert "shapes" in cycle_obstacle(Recipe.named("full").reader(ToyModel(), ByteTokenizer()).pot, cuda)
    assert "last token" in cycle_obstacle(Recipe.named("tova").reader(ToyModel(), ByteTokenizer()).pot, cuda)
    assert "local layers" in cycle_obstacle(model("gemma-2").new_pot(32, 16), cuda)


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("slots", [48, 31])
def test_fixed_attention_is_attention_on_the_filled_slots(slots: int, softcap: float | None) -> None:
    query, keys, values = torch.randn(2, 6, 1, 8), torch.randn(2, 2, slots, 8), torch.randn(2, 2, slots, 5)
    for fill in (1, 7, slots - 1):
        found = attend_fixed(query, keys, values, 0.4, torch.tensor([fill]), softcap)
        spec = LogitSpec(0.4, None, softcap)
        wanted = attend(query, keys[:, :, : fill + 1], values[:, :, : fill + 1], spec)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


class Fails(Graphs):
    """Captures nothing: as with a model that asks the host in the middle of its forward."""

    def capture_graph(self, compute):
        for layer in self.pot.pot_layers:  # the host's side of it has happened, the device's has not
            layer.fill, layer.tokens, layer.anchored = layer.fill + 3, layer.tokens + 3, 7
        self.pot.cycles += 1
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


class Replays(Graphs):
    """Stands in for a GPU: a replay computes again from the pot's tensors, as recorded; cycles only."""

    def run(self, key, inputs, compute, often=1):
        return (
            compute(*inputs)
            if isinstance(key, tuple) and key[0] == "decode"
            else super().run(key, inputs, compute, often)
        )

    def capture_graph(self, compute):
        state = [layer.copy() for layer in self.pot.pot_layers]
        out = compute()
        for layer, saved in zip(self.pot.pot_layers, state, strict=True):  # capture computes nothing
            numbers = layer.fill, layer.tokens, layer.anchored
            layer.restore(saved)
            layer.fill, layer.tokens, layer.anchored = numbers
        return Again(self, compute, out, [(x.fill, x.tokens, x.anchored) for x in state]), out


class Again:
    def __init__(self, static, compute, out, before) -> None:
        self.static, self.compute, self.out, self.before = static, compute, out, before

    def replay(self) -> None:
        layers, pot = self.static.pot.pot_layers, self.static.pot
        now = [(layer.fill, layer.tokens, layer.anchored, layer.catalyst) for layer in layers], pot.cycles
        for layer, (fill, _, anchored) in zip(layers, self.before, strict=True):
            layer.fill, layer.anchored = fill, anchored
        for kept, new in zip(self.out or (), self.compute() or (), strict=True):
            kept.copy_(new)
        for layer, numbers in zip(layers, now[0], strict=True):  # a replay tells the host nothing
            layer.fill, layer.tokens, layer.anchored, layer.catalyst = numbers
        pot.cycles = now[1]


@pytest.mark.parametrize("options", [{}, {"pot_bits": 8}, {"tail": "fill"}, {"novelty": 1.0}], ids=str)
def test_replayed_cycles_leave_the_pot_of_plain_ones(options: dict) -> None:
    plain, static = pair(ToyModel(), **options)
    static.session.capture_after = 1
    static.session.graphs = Replays(static.pot)
    for one in (plain, static):
        one.read(TEXT * 12)
        one.said = ["".join(one.chat("so?", Generation(70))) for _ in range(2)]
        one.read(TEXT * 6)
    assert len(static.session.graphs.captured) >= 1
    assert plain.said == static.said
    assert plain.progress().cycles == static.progress().cycles
    same_pots(plain, static)


def test_what_cannot_be_captured_runs_plainly_and_says_so() -> None:
    plain, static = pair(ToyModel())
    static.session.capture_after = 1
    static.session.graphs = Fails(static.pot)
    with pytest.warns(UserWarning, match="not captured, so slower: operation not permitted when"):
        static.read(TEXT * 9)
    plain.read(TEXT * 9)
    assert static.session.graphs.reason == "operation not permitted when stream is capturing"
    assert plain.ask("so?", Generation(20)) == static.ask("so?", Generation(20))


def test_what_cannot_be_compiled_runs_unfused() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def broken(x: torch.Tensor) -> torch.Tensor:
        raise torch._dynamo.exc.TorchDynamoException("no C compiler")

    either = _OrPlain(double, broken)
    with pytest.warns(UserWarning, match="double runs unfused"):
        assert either(torch.ones(1)) == 2
    assert either(torch.ones(1)) == 2  # quietly from now on
    assert fused(double, torch.device("cpu")) is double


def test_many_pots_cycles_are_captured_once_on_a_stage() -> None:
    """Two texts read in turns, both through one stage, leave the pots that each leaves alone."""
    engine = ToyModel()
    (plain, first), (twin, second) = pair(engine), pair(engine)
    shown = pair(engine)[1].session
    shown.graphs, shown.capture_after = Replays(shown.pot), 1
    for one in (first, second):
        one.session.stage = Stage(shown)
    texts = [TEXT * 12, "Pack my box with five dozen liquor jugs. " * 11]
    plain.read(texts[0])
    twin.read(texts[1])
    turns = [first.reading(texts[0]), second.reading(texts[1])]
    while turns:
        turns = [turn for turn in turns if next(turn, None) is not None]
    same_pots(plain, first)
    same_pots(twin, second)
    assert shown.graphs.captured
    assert not first.session.graphs.captured
    assert not second.session.graphs.captured
    assert list(first.generate([65], Generation(9))) == list(plain.generate([65], Generation(9)))


def serving_stage(engine: ToyModel, warm: str) -> tuple[Graphs, Callable[[], Reader]]:
    """The graphs of a stage that is warmed up by reading a text, and how a reader of its own comes to it."""
    shown = pair(engine)[1].session
    shown.graphs, shown.capture_after = Replays(shown.pot, most=32), 1

    def another() -> Reader:
        reader = pair(engine)[1]
        reader.session.stage = Stage(shown)
        return reader

    another().read(warm)
    late(Stage(shown))
    return shown.graphs, another


def test_many_short_texts_cause_no_capture_while_serving() -> None:
    """Neither prompts of the same length, which come all day, nor short texts with a question known."""
    graphs, another = serving_stage(ToyModel(), TEXT * 12)
    warm, reader = list(graphs.captured), another()
    assert warm
    for _ in range(3 * LONG_TEXT):
        reader.clear()
        reader.set_question(catalyst="over a dog?")
        reader.read(TEXT * 5)
        assert 0 < reader.pot.cycles < LONG_TEXT
    assert list(graphs.captured) == warm
    assert graphs.left == MOST_LATE


def test_a_long_text_with_a_question_known_is_captured_while_serving() -> None:
    engine = ToyModel()
    graphs, another = serving_stage(engine, TEXT * 12)
    warm, reader, plain = len(graphs.captured), another(), pair(engine)[0]
    for one in (reader, plain):
        one.set_question(catalyst="over a dog?")
        one.read(TEXT * 60)
    assert reader.pot.cycles > LONG_TEXT + CAPTURE_AFTER
    assert len(graphs.captured) > warm
    same_pots(plain, reader)


def test_captures_while_serving_are_few_in_all() -> None:
    """Where each makes room for the next, too; what is captured is replayed all the same."""
    graphs = Replays(pair(ToyModel())[1].pot, most=2)
    graphs.left = 3
    for count in range(5):
        for _ in range(2):
            assert graphs.run(count, [torch.ones(1)], lambda given, count=count: [given * count]) == [count]
    assert list(graphs.captured) == [1, 2]


def test_a_cycle_that_fails_on_the_stage_leaves_the_pot_as_it_was() -> None:
    engine = ToyModel()
    plain, staged = pair(engine)
    staged.session.stage = Stage(pair(engine)[1].session)
    for one in (plain, staged):
        one.read(TEXT * 6)
    forward = engine.forward

    def full(tokens: torch.Tensor, pot: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    engine.forward = full
    with pytest.raises(torch.cuda.OutOfMemoryError):
        staged.session.write([65] * (staged.session.space), distil=True)
    engine.forward = forward
    same_pots(plain, staged)


class NoMemory(Graphs):
    """Captures as soon as there is memory for it."""

    def capture_graph(self, compute):
        try:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        finally:
            raise RuntimeError("capture was invalidated")


def test_no_memory_for_a_capture_is_no_reason_never_to_capture() -> None:
    plain, static = pair(ToyModel())
    static.session.capture_after = 1
    static.session.graphs = NoMemory(static.pot)
    for one in (plain, static):
        one.read(TEXT * 9)
    assert static.session.graphs.capture
    assert static.session.graphs.reason == ""
    same_pots(plain, static)


def test_graphs_have_room_for_as_many_as_is_said() -> None:
    reader = pair(ToyModel())[1]
    graphs = Replays(reader.pot, most=2)
    for count in range(5):
        for _ in range(2):
            graphs.run(count, [torch.ones(1)], lambda given, count=count: given * count)
    assert list(graphs.captured) == [3, 4]


def test_other_threads_wait_for_a_capture_or_do_without() -> None:
    seen: list[bool | str] = []
    looked = threading.Event()

    def another(name: str) -> None:
        with unless_capturing() as free:
            seen.append(free)
        looked.set()
        with apart_from_capture():
            seen.append(name)

    with apart_from_capture():
        thread = threading.Thread(target=another, args=("after",))
        thread.start()
        assert looked.wait(60)
        thread.join(0.05)
        assert thread.is_alive()
        seen.append("captured")
        with unless_capturing() as free:  # the thread that captures may look
            assert free
    thread.join(60)
    assert seen == [False, "captured", "after"]
    tensors = {"a": torch.ones(2)}
    assert to_host(tensors)["a"] is tensors["a"]
