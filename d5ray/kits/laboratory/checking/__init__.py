"""The rule checker: what contradicts itself, or d5ray, in the folder of a run or series."""
