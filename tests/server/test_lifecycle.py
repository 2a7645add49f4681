"""What processes do alike."""

import gc

from webhook.server import lifecycle


def test_what_children_share_is_never_looked_through_by_the_collector():
    frozen = gc.get_freeze_count()

    with lifecycle.shared_with_children():
        assert not gc.isenabled()
        modules = [[] for _ in range(10)]
    kept = gc.get_freeze_count() - frozen
    gc.unfreeze()

    assert kept > len(modules)
    assert gc.isenabled()
