"""Three small tasks of lm-evaluation-harness on a file of four lines: no downloads."""

from __future__ import annotations

import json
from pathlib import Path

TEXT = "The pot holds what was read; when it is full it is distilled. "
TASKS = {
    "letters_say": "output_type: generate_until\ndoc_to_target: '{{answer}}'\n"
    "generation_kwargs: {until: ['.'], max_gen_toks: 6, do_sample: false}\n"
    "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
    "letters_pick": "output_type: multiple_choice\ndoc_to_choice: [' yes', ' no', ' perhaps']\n"
    "doc_to_target: '{{pick}}'\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "letters_roll": "output_type: loglikelihood_rolling\ndoc_to_target: '{{text}}'\n"
    "metric_list: [{metric: bits_per_byte}]\n",
}


def write_tasks(folder: Path) -> Path:
    """Write the tasks and their data, and return the folder."""
    data = folder / "letters.jsonl"
    rows = [{"text": TEXT * count, "answer": "x", "pick": count % 3} for count in (1, 2, 6, 9)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, rest in TASKS.items():
        prompt = "''" if name.endswith("roll") else "'{{text}}'"
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ntest_split: test\ndoc_to_text: {prompt}\n"
            f"dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {folder / 'cache'}}}\n{rest}"
            "metadata: {version: 1}\n"
        )
    return folder
