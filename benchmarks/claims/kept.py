"""What the documentation says of kept pots, recordings, documents and a server under load."""

from __future__ import annotations

from functools import partial
from statistics import median

from claims.checks import Says
from claims.raw import document


def claimed(says: Says) -> None:
    _pots(says)
    _recording(says)
    _server(partial(says, "docs/results.md"))
    rows = document("pdf-engines.json")["rows"]
    adr = partial(says, "docs/adr/0019-documents-in-a-process-of-their-own.md")
    words = "{} pages made by matplotlib took it {:.1f} s and pypdf {:.1f} s,"
    adr(words, document("pdf-engines.json")["pages"], rows["pdfium"]["seconds"], rows["pypdf"]["seconds"])
    beside = rows["pdfium in a process of its own"]["seconds"] - rows["pdfium"]["seconds"]
    adr("a process adds {:.1f} s.", beside)
    words = rows["pypdf"]["words"] - rows["pdfium"]["words"] == document("pdf-engines.json")["pages"]
    adr("the same words but for one a page", holds=words)


def _pots(says: Says) -> None:
    found = document("pots.json")
    rows, load = found["rows"], found["load_s_median"]
    size = [median(row[kind]["bytes"] for row in rows) / 1e6 for kind in ("exact", "int8")]
    same = [100 * row["int8"]["same_next_token"] for row in rows]
    off = [row["int8"]["logits_mean_difference"] for row in rows]
    exact = all(row["exact"]["same_logits"] for row in rows)
    words = (
        "{:.0f} MB in the file, loaded, checked and put into a reader in {:.2f} s (median), with the "
        "same logits"
    )
    says("docs/results.md", words, size[0], load["exact"], holds=exact)
    says("docs/results.md", "In int8 {:.0f} MB, {:.2f} s.", size[1], load["int8"])
    page = partial(says, "docs/pots.md")
    page("| size of the file | {:.0f} MB | {:.0f} MB |", *size)
    page("| load, check and put into a reader (median) | {:.2f} s | {:.2f} s |", load["exact"], load["int8"])
    page(
        "| same likeliest next token as before it was kept | all | {:.1f}% to {:.0f}% |", min(same), max(same)
    )
    page("| the same, bit by bit | differ by {:.2f} to {:.2f} in the mean |", min(off), max(off), holds=exact)
    adr = partial(says, "docs/adr/0011-pots-as-files.md")
    saves = [one for row in rows for one in row["exact"]["save_s"]]
    loads = [one for row in rows for one in row["exact"]["load_s"]]
    middle = rows[1]
    adr("holding {:,} entries of {:,} tokens,", middle["fill"], middle["tokens_read"])
    adr("Exact: {:.0f} MB, saved in {:.1f} s ({:.1f} s at most),", size[0], median(saves), max(saves))
    reads = [row["read_s"] for row in rows]
    words = "put into a reader in {:.2f} s ({:.2f} s at most), where reading took {:.0f} s;"
    adr(words, load["exact"], max(loads), median(reads))
    asked = {row["exact"]["question_tokens"] for row in rows} | {
        row["exact"]["tokens_processed"] for row in rows
    }
    adr("the question's {} tokens are all that is written.", max(asked), holds=len(asked) == 1)
    words = (
        "int8: {:.0f} MB ({:.0f}%), loaded in {:.2f} s; logits differ by {:.3f} in the mean and "
        "{:.1f} at most,"
    )
    most = max(row["int8"]["logits_largest_difference"] for row in rows)
    adr(words, size[1], 100 * size[1] / size[0], load["int8"], median(off), most)
    nats = median(row["int8"]["mean_divergence_nats"] for row in rows)
    adr("{:.4f} nats, the likeliest next token is the same for {:.1f}% of tokens,", nats, median(same))


def _recording(says: Says) -> None:
    found = document("recording.json")
    on, off = found["on"], found["off"]["speed_against_without"]
    speed, size = on["speed_against_without"]["median"], on["recording_bytes_per_token"]
    least, most = (on["speed_against_without"][end] for end in ("least", "most"))
    words = (
        "| {:.3f} x ({:.3f} to {:.3f}, not told apart); on: {:.3f} x ({:.3f} to {:.3f} in twelve rounds, not "
        "told apart), {:.0f} bytes a token |"
    )
    numbers = *(off[end] for end in ("median", "least", "most")), speed, least, most, size
    level = least < 1 < most and off["least"] < 1 < off["most"] and len(found["rounds"]) == 12
    says("docs/results.md", words, *numbers, holds=level)
    page = partial(says, "docs/inspect.md")
    words = (
        "was at {:.3f} times the speed of a checkout from before there was a recording (median; "
        "{:.2f} to {:.2f})."
    )
    page(words, off["median"], off["least"], off["most"], holds=len(found["rounds"]) == 12)
    words = (
        "On, it was at {:.3f} times ({:.3f} to {:.3f}: not told apart), and the recording took {:.0f} bytes "
        "a token read: {:.1f} MB after {:,} tokens"
    )
    page(words, speed, least, most, size, on["recording_bytes"] / 1e6, found["tokens"])


def _server(says: partial[None]) -> None:
    found = document("load.json")
    load, soak = found["load"], found["soak"]
    words = "{} requests of five to 1,500 words, {} at a time, {} of whose senders left early: no failure,"
    says(words, load["requests"], load["users"], load["left_early"], holds=not load["failures"])
    words = (
        "{} answers of 429 whose senders came back when told to, {:.2f} GB resident at most of "
        "{:.2f} GB printed"
    )
    resident = load["peak_resident_bytes"] / 1e9, load["bound_bytes"] / 1e9
    says(words, load["answered_429"], *resident)
    says("every slot free afterwards.", holds=load["slots_busy_afterwards"] == 0)
    tenths = soak["resident_by_tenth"]
    flat = len(set(tenths[1:])) == 1 and not soak["failures"]
    says("{:,} small requests after that: no failure, resident memory the same", soak["requests"], holds=flat)
    rows = document("kvpress-agreement.json")["rows"]
    agreed = all(row["heads"] == row["heads_with_the_same_slots"] for row in rows)
    says("keep the same slots as kvpress in every head that was compared", holds=agreed)
