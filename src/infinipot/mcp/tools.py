"""The tools as agents see them: what each is for, what it takes, what comes back. Plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INSTRUCTIONS = (
    "InfiniPot reads text of any length into pots of fixed size, which are kept by name. Read a document "
    "once with read_document, then ask it as often as you like; recall gives passages to quote."
)
_POT = {"type": "string", "description": "Name of the pot: up to 64 of A-Z a-z 0-9 . _ -"}
_QUESTION = {"type": "string", "description": "What to ask, in whole words and names."}
_ANY: dict[str, Any] = {"type": "object", "additionalProperties": True}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": False}


@dataclass(frozen=True)
class Tool:
    """One tool."""

    title: str
    description: str
    takes: Mapping[str, Mapping[str, Any]]
    needs: Sequence[str] = ()
    gives: Sequence[str] = ()
    changes: bool = False  # something that is kept

    @property
    def input_schema(self) -> dict[str, Any]:
        """What the tool takes, as JSON Schema."""
        rest = {"required": list(self.needs), "additionalProperties": False}
        return {"type": "object", "properties": dict(self.takes), **rest}

    @property
    def output_schema(self) -> dict[str, Any]:
        """What comes back, as JSON Schema."""
        return {"type": "object", "required": list(self.gives)}


TOOLS = {
    "read_document": Tool(
        "Read a document",
        "Read a document of any length into a named pot, to be asked later. Give `path` (a file: text, "
        "Markdown, HTML, PDF, DOCX, EPUB; a folder; a pattern such as docs/**/*.md) or `text`. A long "
        "document takes minutes; progress is told.",
        {
            "pot": _POT,
            "path": _text("File, folder or pattern to read."),
            "text": _text("The text itself, in place of a path."),
            "title": _text("What the document is called; its file name otherwise."),
            "append": _flag("Read on where a pot of that name ended."),
            "replace": _flag("Replace a pot of that name."),
        },
        ("pot",),
        ("pot", "title", "tokens_read", "tokens_added"),
        changes=True,
    ),
    "ask": Tool(
        "Ask a pot",
        "Ask a question about everything a pot has read. Returns the answer and the passages it may come "
        "from, each with its place (file, page or chapter).",
        {
            "pot": _POT,
            "question": _QUESTION,
            "max_new_tokens": {
                "type": "integer",
                "minimum": 1,
                "maximum": 4096,
                "default": 256,
                "description": "Longest answer.",
            },
        },
        ("pot", "question"),
        ("answer", "passages"),
    ),
    "recall": Tool(
        "Recall passages",
        "Find the passages of what a pot has read that matter for a question, word for word, with their "
        "places. No answer is written.",
        {
            "pot": _POT,
            "question": _QUESTION,
            "tokens": {
                "type": "integer",
                "minimum": 16,
                "maximum": 65536,
                "description": "Tokens of passages at most; a quarter of the pot's size otherwise.",
            },
        },
        ("pot", "question"),
        ("passages",),
    ),
    "list_pots": Tool(
        "List pots", "List the pots that are kept: name, title, model and tokens read.", {}, (), ("pots",)
    ),
}
