"""The exit codes of commands, by the verdict that was reached, or why there is none"""

from typing import Final

PASS: Final = "PASS"
FAIL: Final = "FAIL"
INCONCLUSIVE: Final = "INCONCLUSIVE"
EXIT_CODES: Final = {PASS: 0, FAIL: 1, INCONCLUSIVE: 2}
ERROR_EXIT_CODE: Final = 3
INTERRUPTED: Final = 130  # by Ctrl-C or SIGTERM, as a shell has it
