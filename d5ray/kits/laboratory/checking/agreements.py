"""The rule on what agents agreed on whenever their group was formed again after a death"""

import json
from collections.abc import Iterator

from d5ray.kits.laboratory.checking.folder import Folder

FORMED_AGAIN = ("agreed", "group_formed_again", "agent_restarted")


def agreements(folder: Folder) -> Iterator[str]:
    """Agents that train one model had the same whenever their group was formed again after a death."""
    events = [
        each | {"detail": json.loads(each["detail"] or "{}")}
        for each in folder.tables["events"].to_pylist()
        if each["name"] in FORMED_AGAIN
    ]
    of_driver = [each["detail"] for each in events if each["rank"] < 0]
    alike: dict[int, list[list[int]]] = {}  # of each group those that train the same: of a mesh a share each
    for detail in of_driver:
        alike.setdefault(detail["group"], []).append(detail["members"])
    for each in events:
        group = each["detail"].get("group")  # none where an agent's peers do not wait for it
        if group is None or group in alike:
            continue
        void = group < max(alike, default=0)  # another one died in it, before all had agreed
        if each["name"] != "agreed" or not void:
            yield f"{each['name']} of rank {each['rank']}: on what group {group} agreed is not recorded"
    for detail in of_driver:
        if not detail["one_model"]:
            continue
        group = detail["group"]
        others = {rank for members in alike[group] for rank in members} - set(detail["members"])
        hashes = {int(rank): text for rank, text in detail["sha256"].items()}
        told = [each for each in events if each["rank"] >= 0 and each["detail"].get("sha256")]
        hashes |= {
            each["rank"]: each["detail"]["sha256"]
            for each in told
            if each["detail"]["group"] == group and each["rank"] not in others
        }
        if len(set(hashes.values())) > 1 or not all(hashes.values()) or set(hashes) != set(detail["members"]):
            listed = ", ".join(f"rank {rank}: {str(text)[:12]}…" for rank, text in sorted(hashes.items()))
            yield (
                f"group {group}, formed again at step {detail['step']}, has the hashes {listed}: all of "
                f"{detail['members']} must have the same"
            )
