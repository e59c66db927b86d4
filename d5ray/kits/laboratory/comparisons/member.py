"""One process of a group that is measured: `python -m d5ray.kits.laboratory.comparisons.member FOLDER RANK`

As `processes` starts it. FOLDER has the group's work in `work.pickle`, an object that is called with the
rank; what it gives goes to RANK.pickle. RANK is `mpi` where mpirun gives the ranks.
"""

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

MPI = "mpi"
WORK = "work.pickle"


def result_of(folder: Path, rank: int) -> Path:
    """The file of a member's result."""
    return folder / f"{rank}.pickle"


def main(folder: Path, word: str) -> None:
    """Do the work of one rank."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"] if word == MPI else word)
    if word != MPI or rank == 0:  # mpirun hands its standard input to the first rank alone
        threading.Thread(target=_end_with_the_starter, daemon=True).start()
    work: Any = pickle.loads((folder / WORK).read_bytes())
    result = pickle.dumps(work(rank))
    unfinished = folder / f"{rank}.part"
    unfinished.write_bytes(result)
    unfinished.rename(result_of(folder, rank))


def _end_with_the_starter() -> None:
    """Leave at once when standard input closes: whoever started this process is gone."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
