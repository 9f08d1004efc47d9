"""What the documentation says of pass keys: docs/results.md, docs/choosing.md, ADR 14 and ADR 15."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import Three, chance, rows_of
from infinipot.eval.estimates import FEW
from infinipot.eval.folder import Row

KNOWN, UNKNOWN = "question", "general"
SLOTS = f"units=slots {UNKNOWN}"  # the default before
LONG = [1024 * k for k in (128, 256, 1024)]


_BEYOND = (("no-cr-rope", KNOWN), ("infinipot", KNOWN), ("infinipot", UNKNOWN))


def claimed(says: Says) -> None:
    _today(partial(says, "docs/results.md"))
    _made_for_a_question(says)
    _differences(partial(says, "docs/results.md"))
    _kept(says)
    _pooled(says)
    _small_model(says)


def _today(says: partial[None]) -> None:
    """What is said below the table of today's code."""
    essays = rows_of("report-half/essays-more")
    window = [essays.right("full", length=1024 * k) for k in (4, 8, 16, 32)]
    inside = sum(right for right, _ in window), sum(count for _, count in window)
    words = "The whole cache finds {} of {} in essays up to the model's window of 32K and {} of {} at 64K"
    says(words, *inside, *essays.right("full", length=65536))
    known, unknown = f"infinipot 4096 {KNOWN}", f"infinipot 4096 {UNKNOWN}"
    words = "With the question unknown InfiniPot is not told apart from the question known up to 64K;"
    says(words, holds=chance(essays.less(unknown, known)))
    long = rows_of("report-half/essays")
    far, one_by_one = (
        [long.right(f"infinipot 4096 {name}", length=one) for one in LONG] for name in (UNKNOWN, SLOTS)
    )
    told = sum(right for right, _ in far), sum(count for _, count in far)
    words = "beyond, it finds {} of {} keys in essays, and slot by slot none: nine keys are too few to tell"
    says(words, *told, holds=told[1] == 9 < FEW and not any(right for right, _ in one_by_one))
    rope, bare = (
        essays.less(f"no-cr-rope 4096 {KNOWN}", known),
        essays.less("ccd 4096", f"infinipot 4096 {SLOTS}"),
    )
    without = [essays.right(f"no-cr-rope 4096 {KNOWN}", length=1024 * k) for k in (4, 8, 16, 32, 64)]
    near, wide = ([sum(pair) for pair in zip(*some, strict=True)] for some in (without[:3], without[3:]))
    place = essays.by_place(f"no-cr-rope 4096 {KNOWN}", known)
    words = "Up to 64K CR-RoPE does not show in essays once places are counted ({:.1f} lower, {:.1f} lower to"
    words += " {:.1f}): of {} keys up to 16K none is lost without it, of {} in 32K and 64K seven, at three"
    words += " places."
    lost = near[0] == near[1] and wide[1] - wide[0] == 7
    told = -place[0], -place[1], place[2], near[1], wide[1]
    says(words, *told, holds=rope[2] < 0 <= place[2] and lost)
    words = "Up to 1M it shows, where each place is one key."
    says(words, holds=long.by_place(f"no-cr-rope 4096 {KNOWN}", known)[2] < 0)
    every = len(essays.cell(known).rows), len({_place(row) for row in essays.cell(known).rows})
    says("so {} keys say about as much as {};", *every)
    words = "redrawn by place the difference of slots chosen one by one is {:.1f} ({:.1f} to {:.1f}),"
    says(words, *essays.by_place(f"infinipot 4096 {SLOTS}", unknown))
    says("CCD is below InfiniPot,", holds=bare[2] < 0)
    found, level = (essays.less("ccd 4096", f"infinipot-paper 4096 {c}") for c in (KNOWN, UNKNOWN))
    words = (
        "it is below with the question known ({:.1f}, {:.1f} to {:.1f}) and not told apart with it unknown."
    )
    says(words, *(-number for number in found), holds=found[2] < 0 and chance(level))
    noise = rows_of("report-half/passkey")
    less = (-number for number in noise.less("ccd 4096", known))
    words = (
        "In noise up to 1M CCD finds {} of {} keys, {:.1f} below the question known ({:.1f} to {:.1f} below)."
    )
    says(words, *noise.right("ccd 4096"), *less)
    novel = [essays.less(f"cap-only 4096 {c}", f"infinipot 4096 {c}") for c in (KNOWN, UNKNOWN)]
    words = "Novelty shows where the question is unknown, and not where it is known, up to 64K."
    says(words, holds=chance(novel[0]) and novel[1][2] < 0)


def _place(row: Row) -> tuple[int, float]:
    return row["facts"]["length"], row["facts"]["depth"]


def _made_for_a_question(says: Says) -> None:
    """Keys beyond 64K, and what else tells the question known from it unknown."""
    long, (known, unknown) = rows_of("report-half/essays"), (f"infinipot 4096 {c}" for c in (KNOWN, UNKNOWN))
    near = {row["example"] for row in long.cell(unknown).rows if row["facts"]["length"] not in LONG}
    (every, count), (some, _) = (long.right(cell, near) for cell in (known, unknown))
    words = "found {} of {} keys in essays beyond 64K tokens, where the other found {}: too few to tell apart"
    says("docs/how-it-works.md", words, every, count, some, holds=count < FEW)
    level = rows_of("report-half/essays-more").less(unknown, known), *_asked()
    words = (
        "Up to 64K the two are not told apart. On LongBench's {} rows (`qwen2.5-coder-1.5b`), slots chosen"
    )
    words += (
        " one by one both times, they are not told apart either (without the question {:.1f} lower, {:.1f}"
    )
    words += " lower to {:.1f}"
    words += (
        " higher); without tasks of under ten rows, {} rows, knowing no question is barely lower ({:.1f},"
    )
    words += " {:.1f} to just under 0)."
    grid = rows_of("report-half/longbench")
    rows, few = len(grid.cell("infinipot 4096 by-task").rows), len(grid.of_few("infinipot 4096 by-task"))
    told = rows, -level[1][0], -level[1][1], level[1][2], rows - few, -level[2][0], -level[2][1]
    holds = chance(level[0]) and chance(level[1]) and -0.1 < level[2][2] < 0
    says("docs/how-it-works.md", words, *told, holds=holds)
    words = "({} of {} found; {} of {} with it known: too few to tell apart);"
    words += " up to 64K the two are not told apart"
    says("docs/footguns.md", words, some, count, every, count, holds=chance(level[0]))
    small = rows_of("defaults-smollm2/longbench")
    distilled = small.less("infinipot 4096 tail=distil by-task", "infinipot 4096 by-task")
    says("docs/footguns.md", "on LongBench `smollm2` is not told apart with it", holds=chance(distilled))
    grid, ours = rows_of("report-half/longbench"), "infinipot 4096 by-task"
    few, asked, plain = grid.of_few(ours), grid.but("qmsum"), grid.but("gov_report", "multi_news")
    whole, every = grid.less("full", ours, few), grid.cell(ours).rows
    large = [row for row in every if row["example"] not in few]
    fit = sum(row["cycles"] == 0 for row in large)
    words = (
        "On {} rows of LongBench (`qwen2.5-coder-1.5b`, questions known, tasks of ten rows or more) the whole"
    )
    words += (
        " cache is not told apart from a pot of 4,096 ({:.1f} higher, {:.1f} lower to {:.1f} higher), but {}"
    )
    words += (
        " of these texts fit the pot; on one task, qmsum, the whole cache is above ({:.1f}, {:.1f} to {:.1f};"
    )
    less = grid.less("full", ours, asked)
    told = len(large), whole[0], -whole[1], whole[2], fit, *less
    says("docs/index.md", words, *told, holds=chance(whole) and less[1] > 0)
    words = "On LongBench's qmsum ({} rows, half `report`, without recall) the pot is {:.1f} points below the"
    words += (
        " whole cache ({:.1f} to {:.1f}); on the {} rows of its other summaries, {} of which fit the pot,"
    )
    words += " the two are not told apart."
    rows = [row for row in every if row["example"] not in plain]
    fit, rest = sum(row["cycles"] == 0 for row in rows), grid.less("full", ours, plain)
    told = len(every) - len(asked), *less, len(rows), fit
    says("docs/recall.md", words, *told, holds=less[1] > 0 and chance(rest))


def _asked() -> tuple[Three, Three]:
    """LongBench without the question less with it, slot by slot: all rows, and those of larger tasks."""
    grid, known = rows_of("report-half/longbench"), "infinipot 4096 by-task"
    all_rows = grid.less(f"infinipot 4096 {SLOTS}", known)
    return all_rows, grid.less(f"infinipot 4096 {SLOTS}", known, grid.of_few(known))


def _differences(says: partial[None]) -> None:
    """Ablations beyond 64K; in noise there, and without pooling, of earlier code."""
    three, essays = "{:.1f} ({:.1f} to {:.1f})", rows_of("report-half/essays")
    rope, known, unknown = (f"{name} 4096 {c}" for name, c in _BEYOND)
    lost = [essays.right(rope, length=length)[0] for length in LONG[1:]]
    says(f"Without CR-RoPE {three}: none found from 256K on.", *essays.less(rope, known), holds=not any(lost))
    every = essays.right(f"cap-only 4096 {KNOWN}")
    says("Without novelty all {} keys are found too.", every[1], holds=every[0] == every[1])
    slots = f"infinipot 4096 {SLOTS}"
    told = *essays.right("ccd 4096"), essays.right(slots)[0], essays.right(unknown)[0]
    words = "Without catalyst and novelty {} of {}, where InfiniPot that knows no question finds {} slot by"
    words += " slot, not told apart, and {} by whole sentences."
    says(words, *told, holds=chance(essays.less("ccd 4096", slots)))
    noise = rows_of("report-half/passkey")
    less = [-number for number in noise.less(rope, known)]
    words = (
        "InfiniPot without CR-RoPE finds {:.1f} less, not told apart ({:.1f} less to {:.1f} more): at 1M none"
    )
    lost = noise.right(rope, length=LONG[-1]) == (0, 3)
    says(words, less[0], less[1], -less[2], holds=less[2] < 0 < less[1] and lost)


def _kept(says: Says) -> None:
    """|C|/|M| in essays, in docs/choosing.md."""
    essays, cell = rows_of("grids/essays-more"), "infinipot 4096{} tail=distil {}"
    (more, count), (blind, _) = (essays.right(cell.format(" keep=3072", one)) for one in (KNOWN, SLOTS))
    alike = [more, blind] == [essays.right(cell.format("", one))[0] for one in (KNOWN, SLOTS)]
    words = "found {} of {} keys in essays as well, question known, and {} as well without"
    says("docs/choosing.md", words, more, count, blind, holds=alike)


def _pooled(says: Says) -> None:
    """Pooling in docs/choosing.md, ADR 14 and ADR 15."""
    essays, adr = rows_of("grids/essays-more"), "docs/adr/0014-pooled-scores.md"
    rows = {
        "pooled over 7": "infinipot 4096 tail=distil {}",
        "not pooled": "infinipot 4096 tail=distil pool=1 {}",
        "not pooled, novelty 0": "cap-only 4096 tail=distil pool=1 {}",
        "not pooled, 3,072 of 4,096 kept": "infinipot 4096 keep=3072 tail=distil pool=1 {}",
        "pooled over 7, 3,072 kept": "infinipot 4096 keep=3072 tail=distil {}",
        "pooled over 7, novelty 0": "infinipot 4096 tail=distil novelty=0 {}",
    }
    for label, cell in rows.items():
        found = [essays.right(cell.format(catalyst))[0] for catalyst in (KNOWN, SLOTS)]
        says(adr, f"| {label} | {{}} | {{}} |", *found)
    base = "infinipot 4096 tail=distil{} {}"
    less = [essays.less(base.format(" pool=1", one), base.format("", one)) for one in (KNOWN, SLOTS)]
    later = rows_of("report-half/essays-more")
    names = [f"infinipot-paper 4096 {c}" for c in (KNOWN, UNKNOWN)]
    names += [f"infinipot 4096 {c}" for c in (KNOWN, SLOTS, UNKNOWN)]
    keys = [later.right(name)[0] for name in names]
    words = (
        "its last chunk left as it is, finds {} and {} of {}, ours {} and, slot by slot, {}; whole sentences,"
    )
    says(adr, f"{words} which became the default then, {{}} ([results]", *keys[:2], 60, *keys[2:])
    words = (
        "by earlier code more keys in essays are found with it: {:.1f} points more with the question known"
    )
    words += " ({:.1f} to {:.1f}), {:.1f} with it unknown and slots chosen one by one ({:.1f} to {:.1f};"
    more = [sorted((-low, -high)) for _, low, high in less]
    numbers = [x for (mean, _, _), ends in zip(less, more, strict=True) for x in (-mean, *ends)]
    says("docs/choosing.md", words, *numbers, holds=all(one[2] < 0 for one in less))
    words = (
        "Pooled above not pooled: {:.1f} points ({:.1f} to {:.1f}) with the question known, {:.1f} ({:.1f} to"
    )
    says(adr, f"{words} {{:.1f}}) with it unknown.", *numbers)
    far = rows_of("grids/essays")
    says(
        adr,
        "({} of {}, one trial a cell). In noise both find all.",
        *far.right("infinipot 4096 tail=distil question"),
    )
    both = [far, rows_of("grids/essays-more")]
    at_64k = [one.right(f"infinipot 4096 tail=distil {SLOTS}", length=65536) for one in both]
    beyond = [far.right(f"infinipot 4096 tail=distil {SLOTS}", length=length) for length in LONG]
    told = sum(right for right, _ in at_64k), sum(count for _, count in at_64k)
    none = not any(right for right, _ in beyond)
    words = "{} of {} found at 64K, none of {} at 128K, 256K and 1M;"
    says(adr, words, *told, sum(count for _, count in beyond), holds=none)
    later = [rows_of("report-half/essays").right(f"infinipot 4096 {SLOTS}", length=one) for one in LONG]
    now = [rows_of("report-half/essays").right(f"infinipot 4096 {UNKNOWN}", length=one)[0] for one in LONG]
    words = "later code finds none of those {} either, slot by slot; whole sentences find {}."
    says(adr, words, sum(count for _, count in later), sum(now), holds=not any(right for right, _ in later))
    fitted = [
        essays.right(f"infinipot 4096{tail} {c}") for c in (KNOWN, SLOTS) for tail in ("", " tail=distil")
    ]
    words = "{} of {} fitted or not with the question known, {} and {} of {} with it unknown"
    numbers = *fitted[0], fitted[2][0], *fitted[3]
    says("docs/adr/0015-what-fits-where-a-text-ends.md", words, *numbers, holds=fitted[0] == fitted[1])


def _small_model(says: Says) -> None:
    small = rows_of("passkey-smollm2-fit").right("infinipot 2048 question")
    says("docs/results.md", "two trials a cell, {} of {} found", *small)
    says("docs/choosing.md", "in noise `smollm2` found {} of {} keys with the filled end", *small)
    says("docs/choosing.md", "in a pot of 2,048 with `smollm2`, {} of {} found;", *small)
    noise = rows_of("report-half/passkey-more").right("infinipot 4096 question")
    says("docs/choosing.md", "`qwen2.5-coder-1.5b`, {} of {} ([results]", *noise)
    says("docs/adr/0015-what-fits-where-a-text-ends.md", "two CPU cores: {} of {} fitted", *small)
