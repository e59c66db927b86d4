"""What tests of frameworks share."""

from tests.distributed.forming import groups as groups
