"""The tools as agents see them: what each is for, what it takes, what comes back."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.types import Tool, ToolAnnotations

INSTRUCTIONS = (
    "InfiniPot reads text of any length into pots of fixed size, which are kept by name. Read a document "
    "once with read_document, then ask it as often as you like; recall gives passages to quote."
)
_POT = {"type": "string", "description": "Name of the pot: up to 64 of A-Z a-z 0-9 . _ -"}
_QUESTION = {"type": "string", "description": "What to ask, in whole words and names."}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": False}


def _tool(
    name: str,
    title: str,
    description: str,
    takes: Mapping[str, Mapping[str, Any]],
    needs: Sequence[str],
    gives: Sequence[str],
    changes: bool = False,  # something that is kept
) -> Tool:
    rest = {"required": list(needs), "additionalProperties": False}
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema={"type": "object", "properties": dict(takes), **rest},
        output_schema={"type": "object", "required": list(gives)},
        annotations=ToolAnnotations(read_only_hint=not changes, open_world_hint=False),
    )


_TOOLS = (
    _tool(
        "read_document",
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
    _tool(
        "ask",
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
    _tool(
        "recall",
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
    _tool(
        "list_pots",
        "List pots",
        "List the pots that are kept: name, title, model and tokens read.",
        {},
        (),
        ("pots",),
    ),
)
TOOLS = {one.name: one for one in _TOOLS}
