"""The exit codes of commands that reached no verdict"""

from typing import Final

ERROR_EXIT_CODE: Final = 3
INTERRUPTED: Final = 130  # by Ctrl-C or SIGTERM, as a shell has it
