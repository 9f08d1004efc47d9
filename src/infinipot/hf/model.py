"""A transformers model behind the reader's `Model` protocol.

Works with any decoder whose attention goes through the attention interface and whose keys carry RoPE;
`_probe` checks on the model itself that its keys turn the way the pot turns them and that its head is what we
take it for, so an unsupported family is refused rather than read wrongly.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from math import isnan
from typing import Any

import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec, attend
from infinipot.core.config import DEFAULT_MODE, ReadingMode
from infinipot.core.pot import LayerSpec, Pot
from infinipot.core.rope import Rotation
from infinipot.core.rows import Rows
from infinipot.core.scores import softcapped
from infinipot.errors import ConfigError, ModelError, foreign
from infinipot.hf import attention
from infinipot.hf.cache import PotCache
from infinipot.hf.cuda.fp8 import rough_logits
from infinipot.hf.cuda.layers import CardLayers
from infinipot.hf.cuda.modules import FEW as FEW_ON_CARD
from infinipot.hf.cuda.modules import GroupedHead, unrounded_inputs
from infinipot.hf.cuda.steps import CardSteps
from infinipot.hf.light import compiles
from infinipot.hf.meaning import SentenceModel, sentence_model
from infinipot.hf.packed.blocks import TURN
from infinipot.hf.packed.modules import FEW, PackedHead, packed_bytes
from infinipot.hf.packed.steps import Steps
from infinipot.hf.packed.whole import tried
from infinipot.hf.rope import frequencies, key_factors, still

PROBE_STEPS, PROBED, PROBES = 7, 8, 3  # positions between two probed keys; tokens of a probed text; texts
FIRST, COMMON = 4, 60  # tokens that `key_offsets` leaves out, and takes
HEAD_PART, CARD_PART = 4_000_000, 32_000_000  # weights of a head at a time: bounds the logits that exist
SAME, PLAIN = 0.02, 0.1  # relative error that is none, and of a whole text's hidden states
STEPPED = 0.05  # relative error of keys that steps may have: inputs of products are rounded to 8 bits
GROUP = 16  # query heads that share a KV head, at most, where a kernel attends


class HFModel:
    """Runs a transformers causal language model on pots."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        # A multimodal model keeps its language model one level deeper.
        self.decoder = getattr(model.base_model, "language_model", model.base_model)
        self.config = model.config.get_text_config()
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.vocabulary: int = self.config.vocab_size
        self.head = model.get_output_embeddings()
        self.softcap: float | None = getattr(self.config, "final_logit_softcapping", None)
        self.obstacle = _obstacle(model)
        self.steps: Steps | CardSteps | None = None  # single tokens on packed weights
        self.layers: CardLayers | None = None  # any tokens on a card, once compared with the decoder
        self.compiled = False  # the decoder's layers
        self._turn: AbstractContextManager[Any] = TURN if packed_bytes(model) else nullcontext()
        # whatever an architecture trips over
        with foreign("this model is not supported"), unrounded_inputs(model), self._turn:
            self._probe()

    @cached_property
    def meaning(self) -> SentenceModel | None:
        """A model of sentences beside this one; None where that was not pulled."""
        return sentence_model(self.device)

    @property
    def note(self) -> str:
        """What a person should hear about how tokens of an answer are computed."""
        whole = self.steps.whole if isinstance(self.steps, Steps) else None
        return whole.attention if whole and isinstance(whole.attention, str) else ""

    def windows(self) -> list[int | None]:
        """The attention window of every layer; None for one that sees everything."""
        width = getattr(self.config, "sliding_window", None)
        local = "sliding_attention"
        kinds = getattr(self.config, "layer_types", None) or [local] * self.config.num_hidden_layers
        return [width if kind == local else None for kind in kinds]

    def new_pot(self, capacity: int, keep: int, mode: ReadingMode = DEFAULT_MODE, bits: int = 16) -> Pot:
        """Return an empty pot with this model's layers, whose entries have so many bits."""
        windows = self.windows()
        if not mode.grows and all(width is not None and width < capacity for width in windows):
            widest = max(filter(None, windows))
            problem = f"every layer of this model sees only {widest} tokens back"
            problem += f", so a pot of {capacity} would never be distilled"
            raise ConfigError(problem, field="capacity", remedy=f"use `capacity` {widest} or less")
        # Positions that run on may reach the end of what the model was trained for, and pass it.
        runs_on = mode.grows or mode.positions == "kept"
        reach = max(capacity, self.config.max_position_embeddings) if runs_on else capacity
        offsets = self.key_offsets if bits == 8 else [None] * len(windows)
        specs = zip(frequencies(self.decoder, self.config, reach), windows, offsets, strict=True)
        pot = Pot([LayerSpec(*spec) for spec in specs], capacity, keep, mode, bits)
        queries, soft = getattr(self.config, "num_attention_heads", 1), "attn_logit_softcapping"
        keys = getattr(self.config, "num_key_value_heads", None) or queries
        # Kernels can attend for any pots by their addresses where logits have no soft limit.
        pot.by_address = getattr(self.config, soft, None) is None and queries // keys <= GROUP
        pot.max_position = reach
        return pot

    @cached_property
    @torch.no_grad()
    def key_offsets(self) -> list[Tensor]:
        """What the keys [Hkv, D] of each layer have in common at position 0, over all the vocabulary.

        The first tokens do not count: everything attends to them, and their keys are like no others.
        """
        spread = torch.linspace(1, self.vocabulary - 1, FIRST + COMMON, dtype=torch.float32)
        some = spread.long()[None].to(self.device)
        recorder = _Recorder()
        with self._turn, still(self.decoder, self.config, FIRST + COMMON):
            self.decoder(input_ids=some, past_key_values=recorder, use_cache=True)
        found = []
        for index, of in enumerate(frequencies(self.decoder, self.config, FIRST + COMMON)):
            keys = recorder.keys[index][:, :, FIRST:].float()
            steps = torch.arange(FIRST, FIRST + COMMON, device=keys.device).expand(keys.shape[:-1])
            turned = Rotation(of.to(keys.device), FIRST + COMMON).back(keys, steps)
            found.append(turned.mean((0, 2)))
        return found

    @torch.no_grad()
    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [B, n] into the pot and return their hidden states [B, n, H]."""
        (many, count), places = tokens.shape, pot.places(tokens.shape[1], tokens.device)
        single = self.steps if self.steps and count == 1 and many <= self.steps.most else None
        alone = many * count == 1 and self.compiled  # faster through the decoder's own layers
        if steps := single or (self.layers if self.layers and not alone and self.layers.stands() else None):
            with self._turn:
                return steps.run(tokens, places, pot, pot.layers[0].rotation.frequencies)
        # A rare shape is not worth compiling for: what is there serves. Captured rows are powers of two.
        rare = compiles() and (count not in pot.lengths or many & (many - 1) > 0)
        stance: Any = partial(torch.compiler.set_stance, "eager_on_recompile") if rare else nullcontext
        with self._turn, still(self.decoder, self.config, pot.max_position), stance():
            out = self.decoder(
                input_ids=tokens, position_ids=places, past_key_values=PotCache(pot), use_cache=True, pot=pot
            )
        return out.last_hidden_state  # type: ignore[no-any-return]  # transformers is untyped

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of hidden states [..., H]."""
        with self._turn:
            logits: Tensor = self.head(hidden)
        return softcapped(logits, self.softcap)

    @torch.no_grad()
    def rough_logits(self, hidden: Tensor) -> Tensor:
        """The same of [n, H] in fewer bits, where the head is held so too."""
        rough = rough_logits(self.head, hidden)
        return self.logits(hidden) if rough is None else softcapped(rough, self.softcap)

    def head_parts(self, hidden: Tensor) -> Iterable[tuple[int, Tensor]] | None:
        """Return logits [T, n] of hidden states [B, T, H] for some rows of the vocabulary at a time.

        With the first row of each; where the head is packed and so many tokens want it, else None.
        """
        flat = hidden.reshape(-1, hidden.shape[-1])
        if isinstance(self.head, GroupedHead) and len(flat) > FEW_ON_CARD and self.head.bias is None:
            return ((start, flat @ rows.T) for start, rows in self.head.parts(CARD_PART))
        if len(flat) <= FEW or not isinstance(self.head, PackedHead) or self.head.linear.bias is not None:
            return None
        return self._parts(self.head, flat)

    @torch.no_grad()
    def _parts(self, head: PackedHead, flat: Tensor) -> Iterator[tuple[int, Tensor]]:
        with self._turn:  # until the last part was used
            yield from head.parts(flat, HEAD_PART)

    def named_weights(self) -> Iterable[tuple[str, Tensor]]:
        """Return the weights by name, for a fingerprint."""
        return self.model.state_dict().items()  # type: ignore[no-any-return]  # transformers is untyped

    def key_factors(self) -> dict[str, float]:
        """Return what keys are multiplied by beside their rotation, for a fingerprint."""
        return key_factors(self.decoder)

    @torch.no_grad()
    def _probe(self) -> None:
        """Switch to our attention; refuse a model that is not what the pot assumes.

        Its hidden states must be those of its own attention. And with a single token every hidden state is
        the same at any position, so keys at positions 0 and 7 may differ in nothing but their rotation.
        """
        wanted = frequencies(self.decoder, self.config, PROBE_STEPS + 1)
        self._probe_attention()
        token = torch.ones(1, 1, dtype=torch.long, device=self.device)
        here, far = _Recorder(), _Recorder()
        out = self.decoder(input_ids=token, past_key_values=here, use_cache=True)
        at = torch.full_like(token, PROBE_STEPS)
        self.decoder(input_ids=token, position_ids=at, past_key_values=far, use_cache=True)
        for index, found in enumerate(wanted):
            keys = far.keys[index]
            steps = torch.full(keys.shape[:-1], PROBE_STEPS, device=keys.device)
            turned = Rotation(found.to(keys.device), PROBE_STEPS).back(keys, steps)
            _same(turned, here.keys[index], f"the keys of layer {index} do not follow plain RoPE")
        self.steps = self._same_steps(token, at, far.keys, wanted)
        logits = self.model(input_ids=token, use_cache=False).logits
        _same(self.logits(out.last_hidden_state), logits, "its output head is not a known one")

    def _probe_attention(self) -> None:
        """Switch to our attention; refuse a model whose hidden states are then others in every text tried."""
        ends, errors = (self.vocabulary // 8, self.vocabulary * 7 // 8), []
        some = torch.linspace(*ends, PROBED * PROBES, dtype=torch.float32).long().view(PROBED, PROBES).T
        attention.register()
        # A model in 16 bits may make last bits large on one text (its own ways of computing differ as much).
        for text in some.to(self.device)[:, None]:
            found = []
            for name in ("eager", attention.NAME):
                self.model.set_attn_implementation(name)
                found.append(self.decoder(input_ids=text, use_cache=False).last_hidden_state)
            errors.append(relative_error(found[1], found[0]))
            if errors[-1] < PLAIN:
                return
        least = min(errors, key=lambda error: (isnan(error), error))
        raise _unsupported("its attention is not plain causal attention", least)

    def _same_steps(
        self, token: Tensor, at: Tensor, keys: dict[int, Tensor], ropes: list[Tensor]
    ) -> Steps | CardSteps | None:
        """Return the steps of the decoder, where they come to the same keys in every layer."""
        steps = Steps.of(self.decoder) or CardSteps.of(self.decoder)
        if steps is None or any(self.windows()) or any(one is not ropes[0] for one in ropes):
            return None
        if 2 * len(ropes[0]) != steps.size:  # some of a head does not turn
            return None
        seen = _Recorder()
        steps.run(token, at, seen, ropes[0])
        if not all(relative_error(seen.keys[index], one) < STEPPED for index, one in keys.items()):
            return None
        if isinstance(steps, Steps):
            found = tried(steps, self.new_pot(PROBED, PROBED), keys, token, at, ropes[0])
            _, plain = next(found)
            steps.whole = next((one for one, out in found if relative_error(out, plain) < STEPPED), None)
        return steps


class _Recorder:
    """Stands in for a cache, or a pot, during the probe and remembers the keys it was shown."""

    is_sliding = (False,)
    is_compileable = False

    def __init__(self) -> None:
        self.keys: dict[int, Tensor] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys[layer_idx] = key_states
        return key_states, value_states

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = keys.clone()
        return keys, values

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:  # noqa: ARG002
        return attend(queries, keys, values, spec)

    def get_seq_length(self, *_: Any) -> int:
        return 0

    get_query_offset = get_seq_length

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        return query_length, 0


def _obstacle(model: Any) -> str:
    """Why this model's forward cannot be captured; empty where it can."""
    if any(hasattr(module, "_hf_hook") for module in model.modules()):
        return "weights are moved while the model runs"
    if len({weight.device for weight in model.parameters()}) > 1:
        return "the model is spread over several devices"
    return ""


def _same(found: Tensor, wanted: Tensor, otherwise: str) -> None:
    error = relative_error(found, wanted)
    if not error < SAME:  # bf16 rounding is 0.3%; a wrong rotation is off by 100%; NaN is refused too
        raise _unsupported(otherwise, error)


def _unsupported(why: str, error: float) -> ModelError:
    return ModelError(f"this model is not supported: {why} (relative error {error:.2f})")


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """Return the relative error."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm().clamp(min=1e-12))
