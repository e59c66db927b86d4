"""What tests of distributed training share."""

from tests.distributed.regrouped import regrouped as regrouped
