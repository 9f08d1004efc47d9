"""A loaded model made fast on its device: weights joined, compiled or laid out anew. Results stay.

Only for models we have loaded ourselves: a model of the user's is left as it is.
"""

import torch
from torch import nn

from infinipot.errors import ConfigError
from infinipot.hf.cuda.layers import CardLayers
from infinipot.hf.cuda.modules import unrounded_inputs
from infinipot.hf.model import PLAIN, PROBED, PROBES, HFModel, relative_error
from infinipot.hf.packed.integers import has_int8
from infinipot.hf.packed.modules import PackedHead, mix_attention, round_many
from infinipot.hf.rope import frequencies
from infinipot.hf.speed.joint import join
from infinipot.hf.speed.products import has_bfloat16, has_onednn, pack
from infinipot.models.memory import trim

MIXED = "mixed"  # float32 with products in bfloat16, on a CPU; of packed weights in 8 bits


def resolve(dtype: str, device: torch.device) -> tuple[str, bool]:
    """Return the dtype to load weights in, and whether products may then be rounded."""
    if dtype == MIXED and device.type != "cpu":
        raise ConfigError("mixed is for CPUs", field="dtype", remedy=f"use `dtype` bfloat16 on {device.type}")
    if dtype == MIXED and not has_bfloat16():
        lacks = "processor has no bfloat16 instructions" if has_onednn() else "process cannot use oneDNN"
        raise ConfigError(f"mixed is slow here: this {lacks}", field="dtype", remedy="use `dtype` float32")
    if device.type == "cpu" and dtype in ("auto", MIXED):
        return "float32", dtype == MIXED or has_bfloat16() or has_int8()
    return dtype, False


def fuse(decoder: nn.Module) -> int:
    """Join products and compile every decoder layer, for CUDA; return how many were compiled.

    The many element-wise steps cost more than their arithmetic. Modules are compiled in place through
    torch's own `Module.compile`; layers of one shape share one compilation. Our attention stays outside.
    """
    join(decoder)
    allow_recompiling()
    found = [module for module in decoder.modules() if type(module).__name__.endswith("DecoderLayer")]
    for module in found:
        module.compile()  # not dynamic=False: a layer's index would be static too, and every layer compiled
    return len(found)


def allow_recompiling() -> None:
    """Let compiled layers meet a few shapes each; torch keeps this by thread, so each thread says it."""
    # private: torch.compiler has no public word for these two
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    torch._dynamo.config.allow_unspec_int_on_nn_module = True  # else every layer index compiles anew


def own_layers(model: HFModel) -> CardLayers | None:
    """Return the decoder's layers by our own kernels, where they come to what the decoder comes to."""
    layers = CardLayers.of(model.decoder)
    ropes = frequencies(model.decoder, model.config, PROBED)
    if layers is None or any(model.windows()) or any(one is not ropes[0] for one in ropes):
        return None
    if 2 * len(ropes[0]) != layers.size:  # some of a head does not turn
        return None
    from infinipot.core.cuda.units import attempt  # needs Triton, as layers do

    try:
        return layers if attempt("layers", model.device, lambda: _same_layers(model, layers)) else None
    finally:
        model.layers = None


def _same_layers(model: HFModel, layers: CardLayers) -> bool:
    """Compare the keys of all layers and what comes out, for some tokens and for one more.

    Inputs are not rounded for it. A model in 16 bits may make last bits large on one text: one must do.
    """
    texts = torch.linspace(1, model.vocabulary - 1, PROBES * PROBED, dtype=torch.float32).long()
    for text in texts.view(PROBED, PROBES).T.to(model.device)[:, None]:
        found = []
        for model.layers in (None, layers):
            pot = model.new_pot(PROBED, PROBED)
            with unrounded_inputs(model.model):
                out = [model.forward(part, pot) for part in torch.split(text, [PROBED - 1, 1], dim=1)]
            found.append([*out, *(layer.keys for layer in pot.pot_layers)])
        if all(relative_error(*pair) < PLAIN for pair in zip(found[1], found[0], strict=True)):
            return True
    return False


def _round(model: HFModel) -> bool:
    """Let many tokens be multiplied in fewer bits, as far as this processor and the model's weights go.

    8 bits cost a model of narrow weights more; bfloat16 costs little.
    """
    ways = [kind for kind, there in ((torch.int8, has_int8), (torch.bfloat16, has_bfloat16)) if there()]
    kind = next((kind for kind in ways if round_many(model.decoder, kind)), None)
    if isinstance(model.head, PackedHead):
        model.head.rounds = kind
    if kind and torch.bfloat16 in ways:
        mix_attention(model.decoder)
    return kind is not None


def prepare(model: HFModel, mixed: bool = False, fused: bool = False, packed: bool = False) -> str:
    """Make the model fast; return the name of what it computes in."""
    name = str(model.model.dtype).removeprefix("torch.")
    if model.obstacle or (packed and model.device.type != "cuda"):
        return MIXED if mixed and not model.obstacle and _round(model) else name
    if model.device.type == "cuda":  # products in few bits are joint already, and are left alone by `join`
        join(model.decoder)
        model.layers = own_layers(model)
        model.compiled = fused
        if fused:
            fuse(model.decoder)
    elif model.device.type == "cpu" and name == "float32" and has_onednn():
        mixed = mixed and has_bfloat16()
        pack(model.model, model.decoder, torch.bfloat16 if mixed else torch.float32)
        model.head = model.model.get_output_embeddings()
        trim()  # glibc would keep half a gigabyte of plain weights
        return MIXED if mixed else name
    return name
