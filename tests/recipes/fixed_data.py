"""Short forms of recipes whose data are FIXED: the same recipe with other data"""

from typing import Any


def with_data(known: dict[str, Any], given: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """FIXED with the data that are given (`dataset`, `dataset.samples`), and what else was given."""
    data = {key: value for key, value in (given or {}).items() if key.partition(".")[0] == "dataset"}
    options = dict(known.get("dataset_kwargs", {}))
    options |= {key.partition(".")[2]: value for key, value in data.items() if "." in key}
    fixed = known | {"dataset": data.get("dataset", known["dataset"]), "dataset_kwargs": options}
    return fixed, {key: value for key, value in (given or {}).items() if key not in data}
