"""The exit codes of commands that reached no verdict"""

from typing import Final

ERROR_EXIT_CODE: Final = 3
INTERRUPTED: Final = 130  # by Ctrl-C or SIGTERM, as a shell has it
AGAIN: Final = 75  # of a supervised process that another may take the place of, as sysexits.h has it
