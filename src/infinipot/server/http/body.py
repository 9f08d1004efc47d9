"""Parts of any request: texts that can be read, and fields that are refused by their name."""

import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

# Fields that say something about the request, not about the answer.
HARMLESS = frozenset(("user", "metadata", "store", "service_tier", "parallel_tool_calls", "name", "refusal"))
HARMLESS |= {"prompt_cache_key", "prompt_cache_retention", "truncation", "safety_identifier", "annotations"}
HARMLESS |= {"include_obfuscation"}
# Values of fields we do not serve that ask for nothing.
NOTHING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "tool_calls", "include"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0, 0.0)),
    **dict.fromkeys(("logprobs", "echo", "background"), (False, [])),
    "top_logprobs": (0,),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}


def _characters(value: Any) -> Any:
    """Refuse half of a character anywhere in a value: JSON can carry it, and no tokenizer can read it."""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a character (a lone surrogate)") from None
    return value


Characters = AfterValidator(_characters)
Text = Annotated[str, Characters]
Stop = Annotated[str, Field(min_length=1, max_length=256), Characters]
Name = Annotated[str, Field(max_length=512), Characters]
Catalyst = Annotated[str, Field(min_length=1, max_length=4096), Characters]
Whole = Annotated[int, Field(ge=1, strict=True)]


class Body(BaseModel):
    """A part of a request; a field that would change the answer and is not served is refused by its name."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    @model_validator(mode="after")
    def _nothing_unserved(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            plain = NOTHING.get(name, ())
            asks_nothing = value is None or any(value == p and type(value) is type(p) for p in plain)
            if name not in HARMLESS and not asks_nothing:
                raise ValueError(f"'{name[:64]}' is not served here: leave it out")
            _characters(value)
        return self
