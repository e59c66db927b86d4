"""Tokens of Ray: whether a cluster asks for one, and whether this process has the right one"""

import os
from pathlib import Path
from typing import Any, Final

from d5ray.errors import PlacementError

MODE: Final = "RAY_AUTH_MODE"
VARIABLE, FILE_VARIABLE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
FILE: Final = "~/.ray/auth_token"
LONGEST_TOKEN: Final = 4096  # characters
ASKED: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # of Ray's head: any of its methods would do
SECONDS: Final = 5.0


def check_token(channel: Any, address: str) -> None:
    """Raise `PlacementError` where the Ray at the end of this gRPC channel refuses this process's token.

    Ray itself would try for most of a minute, and then say that it found no cluster.
    """
    import grpc  # noqa: PLC0415 - only where a cluster is joined

    wanted = os.environ.get(MODE, "").lower() == "token"
    token, place = found() if wanted else ("", "")
    sent = (("authorization", f"Bearer {token}"),) if token else None
    try:
        channel.unary_unary(ASKED)(b"", timeout=SECONDS, metadata=sent)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            return  # whatever it is, Ray will say it
    else:
        return
    if not wanted:
        raise PlacementError(
            f"the Ray at {address} asks for a token, and {MODE} is not 'token' here: `export {MODE}=token`, "
            f"with the cluster's token in {FILE} or {VARIABLE}"
        )
    if not token:
        raise PlacementError(
            f"the Ray at {address} asks for a token, and there is none here: copy the one that `ray "
            f"get-auth-token` prints on its head to {FILE}, or set {VARIABLE}"
        )
    raise PlacementError(
        f"the Ray at {address} refuses the token of {place}: it must be the one that `ray get-auth-token` "
        "prints on its head"
    )


def found() -> tuple[str, str]:
    """The token that Ray sends, and where it stands; empty where there is none."""
    if token := os.environ.get(VARIABLE, "").strip():
        return token, VARIABLE
    path = Path(os.environ.get(FILE_VARIABLE) or FILE).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(LONGEST_TOKEN).strip(), str(path)
    except (OSError, ValueError):
        return "", ""
