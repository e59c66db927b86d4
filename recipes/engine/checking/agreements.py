"""The rule on what agents agreed on whenever their group was formed again after a death"""

import json
from collections.abc import Iterator

from d5ray.recipes.engine.checking.folder import Folder

FORMED_AGAIN = ("agreed", "group_formed_again", "agent_restarted")


def agreements(folder: Folder) -> Iterator[str]:
    """Agents that train one model had the same whenever their group was formed again after a death."""
    events = [
        each | {"detail": json.loads(each["detail"] or "{}")}
        for each in folder.tables["events"].to_pylist()
        if each["name"] in FORMED_AGAIN
    ]
    of_driver = {each["detail"]["group"]: each["detail"] for each in events if each["rank"] < 0}
    for each in events:
        group = each["detail"].get("group")  # none where an agent's peers do not wait for it
        if group is not None and group not in of_driver:
            yield f"{each['name']} of rank {each['rank']}: on what group {group} agreed is not recorded"
    for group, detail in of_driver.items():
        if not detail["one_model"]:
            continue
        hashes = {int(rank): text for rank, text in detail["sha256"].items()}
        told = [each for each in events if each["rank"] >= 0 and each["detail"].get("sha256")]
        hashes |= {
            each["rank"]: each["detail"]["sha256"] for each in told if each["detail"]["group"] == group
        }
        if len(set(hashes.values())) > 1 or not all(hashes.values()) or set(hashes) != set(detail["members"]):
            listed = ", ".join(f"rank {rank}: {str(text)[:12]}…" for rank, text in sorted(hashes.items()))
            yield (
                f"group {group}, formed again at step {detail['step']}, has the hashes {listed}: all of "
                f"{detail['members']} must have the same"
            )
