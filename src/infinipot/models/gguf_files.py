"""What a GGUF file says of itself, read with the library `gguf`; its weights are not looked at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinipot.common.extras import needed_for
from infinipot.errors import ModelError

_WANTED = {
    "architecture": "general.architecture",
    "eos": "tokenizer.ggml.eos_token_id",
    "add_bos": "tokenizer.ggml.add_bos_token",
    "vocabulary": "tokenizer.ggml.model",
    "splitter": "tokenizer.ggml.pre",
}


@dataclass(frozen=True)
class Header:
    """The parts of a GGUF header that loading needs; `sizes` are the element counts of its tensors."""

    architecture: str
    add_bos: bool
    eos: int | None
    sizes: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(self.sizes)

    @property
    def converting_bytes(self) -> int:
        """Peak memory of unpacking to float16: the model, and the largest tensor in float32 three times."""
        return 2 * self.parameters + 12 * max(self.sizes, default=0)


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file; a file that is no GGUF or is cut short is a ModelError."""
    with needed_for("a GGUF file", "models"):
        from gguf import GGUFReader
    try:
        reader = GGUFReader(path)  # maps the file into memory, and finds a tensor that is cut off
        fields = {name: reader.get_field(key) for name, key in _WANTED.items()}
        told: dict[str, Any] = {name: field.contents() for name, field in fields.items() if field}
        # What the file says, else llama.cpp's default for its kind of vocabulary.
        bos = told.get("vocabulary") == "llama" or told.get("splitter") == "llama-bpe"
        sizes = tuple(int(tensor.n_elements) for tensor in reader.tensors)
        return Header(told["architecture"], bool(told.get("add_bos", bos)), told.get("eos"), sizes)
    except Exception as error:  # a damaged file trips the library in many ways
        raise ModelError(
            f"{path} is not a whole GGUF file ({one_line(error)})", remedy="download it again"
        ) from error


def one_line(error: BaseException) -> str:
    """Return the first line of an error, for a message that must stay one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
