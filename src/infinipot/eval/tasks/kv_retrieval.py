"""Key-value retrieval of "Lost in the Middle" (Liu et al., 2023): one value out of a long JSON object.

Prompt and comparison are the official ones (nelson-liu/lost-in-the-middle, MIT).
"""

from dataclasses import dataclass

from infinipot.eval.tasks.jsonl import DATA, FileTask, Row, RowError, string
from infinipot.eval.tasks.task import Example, Several, TaskType
from infinipot.recipes.option import Option

OPENING = "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n"
NEW_TOKENS = 100
GOLD = Option("gold", int, None, "Place, from 0, the wanted pair is moved to.", least=0, shown="where it is")
Pair = tuple[str, str]


@dataclass(frozen=True)
class KVRetrieval(FileTask):
    """The rows of one file, such as `kv_75_keys`."""

    how = "get kv_retrieval_data of https://github.com/nelson-liu/lost-in-the-middle and name its folder"
    gold: int | None = None  # the place, from 0, that the wanted pair is moved to; None leaves it

    def __post_init__(self) -> None:
        GOLD.check(self.gold)
        super().__post_init__()

    def score(self, prediction: str, example: Example) -> float:
        """1 if the value is contained, whatever its case, else 0."""
        return float(example.answers[0].lower() in prediction.lower())

    def example(self, row: Row) -> Example:
        """Make an example of a row; RowError if the row does not allow it."""
        pairs = [_pair(item) for item in row.items("ordered_kv_records")]
        wanted = (row.text("key", blank=False), row.text("value", blank=False))
        place = self._move(pairs, wanted)
        asked = f'Key: "{wanted[0]}"'
        text = OPENING + "{" + ",\n ".join(f'"{key}": "{value}"' for key, value in pairs) + "}"
        question = f"\n\n{asked}\nCorresponding value:"
        facts = {"keys": len(pairs), "gold": place, "depth": round(place / max(1, len(pairs) - 1), 4)}
        name, answers = f"{self.name}-{row.line}", (wanted[1],)
        return Example(name, text, question, answers, NEW_TOKENS, asked, bare=True, facts=facts)

    def _move(self, pairs: list[Pair], wanted: Pair) -> int:
        """Put the wanted pair where it should stand; return that place."""
        if len({key for key, _ in pairs}) < len(pairs):
            raise RowError("'ordered_kv_records' has a key twice")
        if wanted not in pairs:
            raise RowError("'ordered_kv_records' does not hold the key and its value")
        if self.gold is None:
            return pairs.index(wanted)
        if self.gold >= len(pairs):
            raise RowError(f"there are {len(pairs)} pairs, so none can be at place {self.gold}")
        pairs.remove(wanted)
        pairs.insert(self.gold, wanted)
        return self.gold


def _pair(item: object) -> Pair:
    if not isinstance(item, list) or len(item) != 2:
        raise RowError("'ordered_kv_records' should hold pairs of a key and a value")
    return string("ordered_kv_records", item[0]), string("ordered_kv_records", item[1])


TASK = TaskType(
    "kv-retrieval",
    "One value out of a long JSON object.",
    (DATA, Option("tasks", str, ("kv_75_keys",), "Names of files.", many=True), GOLD),
    lambda of: Several("kv-retrieval", [KVRetrieval(name, of["data"], of["gold"]) for name in of["tasks"]]),
    tables=("task",),
)
