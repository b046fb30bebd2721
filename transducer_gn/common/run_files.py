"""Names of files in the folder of a run that one part of this program writes and another reads."""

# Numbers of training and validation, one JSON object per line.
METRICS = "metrics.jsonl"

# Where a run branched off, as the path of that checkpoint relative to the folder.
BRANCH = "branch.json"
