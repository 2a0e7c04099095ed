"""What is removed at the end of a run when a platform refuses."""

from typing import Any, cast

import pytest

from uncia.errors import UnciaError
from uncia.experiment.deployed import Deployed
from uncia.platforms import Deployment, Platform, Target


class Stubborn:
    """A platform that does not remove one of its functions."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove(self, deployment: Deployment) -> None:
        if deployment.name == "f-1":
            raise UnciaError("f-1 stays")
        self.removed.append(deployment.name)


def test_replicas_after_one_that_fails_are_removed() -> None:
    unused = cast(Any, None)
    deployed = Deployed(unused, unused, unused)
    deployed.functions["f"] = [(Deployment(f"f-{n}"), Target("")) for n in range(4)]
    platform = Stubborn()
    with pytest.raises(UnciaError, match="f-1 stays"):
        deployed.remove(cast(Platform, platform), "f")
    assert platform.removed == ["f-0", "f-2", "f-3"]
    # It is tried again at the end of the run.
    assert [deployment.name for deployment, _ in deployed.functions["f"]] == ["f-1"]
