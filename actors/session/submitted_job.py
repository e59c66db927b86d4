"""A job that came through `ray job submit`: says in its metadata which recipe runs in it."""

import asyncio
import json
import os

VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray's job manager for the program it starts


def submitted() -> bool:
    """True if this process is the program of a submitted job."""
    return VARIABLE in os.environ


def annotate(metadata: dict[str, str]) -> None:
    """Add metadata to this submitted job, so that the dashboard shows them; needs a connected Ray.

    Ray takes a submitted job's metadata from the submission alone and shows nothing that the driver sets;
    the store of it is semi-public, and so this is left out where it has changed.
    """
    try:
        from ray.dashboard.modules.job.common import JobInfoStorageClient  # noqa: PLC0415

        submission = json.loads(os.environ[VARIABLE])["metadata"]["job_submission_id"]
        from d5ray.actors.session import ray_private  # noqa: PLC0415

        client = JobInfoStorageClient(ray_private.head_client())
        asyncio.run(_add(client, submission, metadata))
    except (ImportError, AttributeError, KeyError, TypeError, RuntimeError, ValueError):
        return


async def _add(client: object, submission: str, metadata: dict[str, str]) -> None:
    info = await client.get_info(submission)  # type: ignore[attr-defined]
    named = dict(info.metadata or {})
    if named.get("job_name") == submission:  # Ray's own choice; whoever submitted it made none
        del named["job_name"]
    info.metadata = {**metadata, **named}
    await client.put_info(submission, info)  # type: ignore[attr-defined]
