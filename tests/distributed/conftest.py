"""What tests of distributed training share."""

from tests.distributed.forming import groups as groups
from tests.distributed.leftovers import leaves_nothing as leaves_nothing
from tests.distributed.regrouped import regrouped as regrouped
