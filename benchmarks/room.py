"""Where the time goes when questions come to full pots of a server on a card: making room for each.

    python benchmarks/room.py --random llama-3-8b > room.txt

Eight pots share a stage, as in a server. Every turn's milliseconds are printed pot by pot, then what the last
turn's calls took by Python's profiler. Random weights will do.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time

import torch

from infinipot.reading.decode import DecodeBatch
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.sequence import Sequence
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler.warm_up import set_stage
from serving.start import random_engine

POTS, TURNS, SHOWN = 8, 3, 35


def asked(reader: Reader, question: str) -> tuple[Sequence, float]:
    """Make room for a question and an answer; return the answer's sequence and the seconds."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    reader.set_question(question, "question", framed=False)
    sequence = reader.sequence(reader.turn(question), Generation(128), later=True)
    torch.cuda.synchronize()
    return sequence, time.perf_counter() - started


def main() -> None:
    """Fill the pots, then ask them all, turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--random", default="llama-3-8b", metavar="SHAPE", help="of random weights")
    engine = random_engine(parser.parse_args().random, "cuda", True)
    recipe = Recipe.named(capacity=4096, recall=0, format=engine.dialogue_format)
    readers = [engine.reader(recipe) for _ in range(POTS)]
    set_stage(readers, lambda: engine.reader(recipe))
    drawn = torch.Generator().manual_seed(0)
    for reader in readers:
        reader.set_question("What is this about, in short?", "question", framed=False)
        for _ in reader.reading_tokens([torch.randint(1, 100_000, (9000,), generator=drawn).tolist()]):
            pass
    for turn in range(TURNS):
        profile, sequences, took = cProfile.Profile(), [], []
        for reader in readers:
            if turn == TURNS - 1:
                profile.enable()
            sequence, seconds = asked(reader, f"And then, {turn}?")
            profile.disable()
            sequences.append(sequence)
            took.append(round(1000 * seconds, 1))
        print("turn", turn, "ms:", took, "fills", [reader.pot.fill for reader in readers][:4], flush=True)
        batch = DecodeBatch(sequences)
        while batch.sequences:
            batch.step()
        batch.close()
    pstats.Stats(profile).sort_stats("cumtime").print_stats(SHOWN)


if __name__ == "__main__":
    main()
