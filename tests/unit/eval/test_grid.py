"""Lists of options to cells: nothing twice, nothing that does not apply."""

from __future__ import annotations

from dataclasses import fields

import pytest

from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError
from infinipot.eval.grid import BY_TASK, Grid, catalyst_names
from infinipot.recipes.options import SIZES
from infinipot.recipes.recipe import Recipe


def names(**options: object) -> list[str]:
    return [cell.name for cell in Grid(**options).cells()]


def test_every_combination_is_there_once_and_options_that_do_not_apply_are_left_out() -> None:
    found = names(
        recipes=("infinipot", "truncate", "full", "cap-only", "nuc-only", "streaming-llm"),
        capacities=(1024, 2048),
        catalysts=("general", "question"),
        options={"keep": (0.5, 0.25), "novelty": ("0", "0.5")},
    )
    assert len(found) == len(set(found))
    assert [name for name in found if name.startswith("infinipot 1024")] == [
        "infinipot 1024 novelty=0 general",
        "infinipot 1024 novelty=0 question",
        "infinipot 1024 general",
        "infinipot 1024 question",
        "infinipot 1024 keep=256 novelty=0 general",
        "infinipot 1024 keep=256 novelty=0 question",
        "infinipot 1024 keep=256 general",
        "infinipot 1024 keep=256 question",
    ]
    assert [name for name in found if name.startswith(("truncate", "full", "streaming"))] == [
        "truncate 1024",
        "truncate 2048",
        "full",
        "streaming-llm 1024",
        "streaming-llm 2048",
    ]
    assert [name for name in found if name.startswith("nuc-only")] == [
        "nuc-only 1024",
        "nuc-only 1024 keep=256",
        "nuc-only 2048",
        "nuc-only 2048 keep=512",
    ]
    assert len([name for name in found if name.startswith("cap-only")]) == 8


def test_a_cell_has_one_name_however_it_was_asked_for() -> None:
    plain = names(capacities=(1024,))
    assert plain == names(
        capacities=(1024,), options={"keep": (512, "0.5"), "novelty": ("0.5", "0.50"), "pool": ("7",)}
    )
    assert plain == names(capacities=(1024,), catalysts=("question", "Q"))
    every = {"novelty": ("1", "0.5"), "pool": ("1", "7")}
    assert names(catalysts=("question",), options=every) == [
        "infinipot 4096 novelty=1",
        "infinipot 4096 pool=1 question",
        "infinipot 4096 question",
    ]
    assert names(recipes=("swa",), options={"step": (64, 8)}) == ["swa 4096", "swa 4096 step=8"]


def test_units_are_those_of_a_known_question_or_of_none_and_named_where_they_are_others() -> None:
    both = {"catalysts": ("question", BY_TASK, "general"), "options": {"units": ("slots", "sentences")}}
    assert names(**both) == [
        "infinipot 4096 question",
        "infinipot 4096 by-task",
        "infinipot 4096 units=slots general",
        "infinipot 4096 units=sentences question",
        "infinipot 4096 units=sentences by-task",
        "infinipot 4096 general",
    ]
    assert names(catalysts=("general",), options={"pool": (1,)}) == [
        "infinipot 4096 pool=1 units=slots general"
    ]
    (plain,) = Grid(catalysts=("general",), options={"novelty": (1.0,), "pool": (1,)}).cells()
    assert (plain.name, plain.for_example(False, None).describe()["units"]) == (
        "infinipot 4096 novelty=1",
        "slots",
    )
    (known,), (unknown,) = (Grid(catalysts=(one,)).cells() for one in (BY_TASK, "general"))
    assert (known.describe()["units"], unknown.describe()["units"]) == ("slots", "sentences")
    for asks in (True, False):  # a cell's rows are all alike, whatever catalyst an example has
        assert known.for_example(asks, None).describe()["units"] == "slots"
        assert unknown.for_example(asks, None).describe()["units"] == "sentences"


def test_a_cell_tells_every_parameter() -> None:
    (cell,) = Grid(capacities=(1024,), options={"keep": (0.25,)}, catalysts=(BY_TASK,)).cells("chat")
    stated = cell.describe()
    assert {k: stated[k] for k in ("name", "capacity", "keep", "novelty", "pool", "catalyst", "format")} == {
        "name": "infinipot",
        "capacity": 1024,
        "keep": 256,
        "novelty": 0.5,
        "pool": 7,
        "catalyst": "by-task",
        "format": "chat",
    }
    assert Grid(("full",)).cells()[0].describe()["capacity"] is None


def test_the_catalyst_of_a_task_follows_whether_it_asks() -> None:
    (cell,) = Grid(catalysts=(BY_TASK,)).cells("chat")
    assert cell.for_example(asks=True, chat=None).catalyst == "question"
    assert cell.for_example(asks=False, chat=None).catalyst == "general"
    assert cell.for_example(asks=False, chat=None).format == "chat"
    assert cell.for_example(asks=False, chat=False).format == "plain"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"recipes": ("infinipto",)}, "did you mean 'infinipot'?"),
        ({"options": {"noveltie": ("0",)}}, "did you mean 'novelty'?"),
        ({"recipes": ("truncate", "full"), "options": {"novelty": ("0",)}}, "novelty"),
        ({"recipes": ("truncate",), "options": {"keep": (0.5,)}}, "takes `keep`"),
        ({"options": {"step": (8,)}}, "takes `step`"),
        ({"catalysts": ("generl",)}, "did you mean 'general'?"),
        ({"options": {"novelty": ("2",)}}, "share between 0 and 1"),
        ({"capacities": (2,)}, "`capacity` is 2"),
    ],
)
def test_what_cannot_work_is_one_line(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        Grid(**options).cells()
    assert says in str(caught.value)


def test_lists_as_people_type_them() -> None:
    assert SIZES["capacity"].parse_list("8k, 128K,1m,8192") == (8192, 131072, 1048576)
    assert SIZES["keep"].parse_list("0.5,2048,0.250") == (0.5, 2048, 0.25)
    assert SIZES["tail"].parse_list("raw, fill") == ("raw", "fill")
    assert catalyst_names(["general,question", "List names, dates and keys"]) == (
        "general",
        "question",
        "List names, dates and keys",
    )


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("capacity", "8q"),
        ("capacity", "0k"),
        ("capacity", "0.3"),
        ("keep", "1.5"),
        ("keep", "1.0"),
        ("tail", "x"),
    ],
)
def test_a_part_that_is_not_of_its_kind_is_named(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{option}` is '{text}': use "):
        SIZES[option].parse_list(f"raw,{text}" if option == "tail" else f"1,{text}")
    with pytest.raises(ConfigError, match=f"`{option}` is empty: name one value"):
        SIZES[option].parse_list(" , ")


def test_every_size_of_a_pot_is_an_option_and_part_of_a_cell() -> None:
    """What a new option needs: a declaration and a field; grid, cell, manifest and card follow."""
    assert {size.name for size in fields(PotConfig)} | {"step"} == set(SIZES)
    others = {"keep": 100, "step": 50, "opening": 3, "tail": "raw", "capacity": 512}
    for name, value in others.items():
        if name in ("capacity", "step"):
            continue
        (cell,) = Grid(catalysts=("general",), options={name: (str(value),)}).cells()
        assert cell.name == f"infinipot 4096 {name}={value} general"
        assert cell.describe()[name] == value
        assert Recipe.described(cell.recipe.describe()).config == cell.recipe.config
