"""Sequences behind AWS Step Functions' API, wherever it is served."""

from __future__ import annotations

import json
from typing import Any, Final

from uncia.platforms import Deployment, SequenceSpec, Target
from uncia.platforms.journal import Journal, Resource
from uncia.platforms.lambda_api import translated

DATA_LIMIT: Final = 262_144
"""Bytes that the API hands from one function to the next, unless the platform has another limit."""

_MACHINE: Final = "machine"


class StatesApi:
    """Create, reach and delete state machines through a boto3 client for Step Functions.

    Machines are of the type ``EXPRESS``, whose executions a client can wait for.
    """

    def __init__(
        self, client: Any, endpoint: str, *, platform: str, role: str, journal: Journal
    ) -> None:
        """
        Args:
            client: a boto3 client for ``stepfunctions``.
            endpoint: where executions are begun and waited for.
            platform: the kind of platform, for the journal and for messages.
            role: the execution role's ARN that CreateStateMachine wants.
            journal: takes every machine before it is created.
        """
        self._client = client
        self._endpoint: Final = endpoint
        self._platform: Final = platform
        self._role: Final = role
        self._journal: Final = journal

    @staticmethod
    def has(deployment: Deployment) -> bool:
        """Whether it is one of these machines."""
        return _MACHINE in deployment.detail

    def deploy(self, sequence: SequenceSpec) -> Deployment:
        """Create the state machine.

        Raises:
            RunFailedError: the platform refused, or cannot be reached.
        """
        self._journal.created(Resource(self._platform, "sequence", sequence.name))
        with translated(self._platform, f"cannot create the state machine {sequence.name}"):
            created = self._client.create_state_machine(
                name=sequence.name,
                definition=json.dumps(sequence.definition),
                roleArn=self._role,
                type="EXPRESS",
            )
        return Deployment(sequence.name, {_MACHINE: created["stateMachineArn"]})

    def endpoint(self, deployment: Deployment) -> Target:
        """Return where its executions are begun, and waited for."""
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": "AWSStepFunctions.StartSyncExecution",
        }
        return Target(self._endpoint, headers=headers, machine=deployment.detail[_MACHINE])

    def remove(self, deployment: Deployment) -> None:
        """Delete the machine and mark it removed; one that is gone already is no error.

        Raises:
            RunFailedError: the platform refused, or cannot be reached.
        """
        with translated(self._platform, f"cannot delete the state machine {deployment.name}"):
            self._client.delete_state_machine(stateMachineArn=deployment.detail[_MACHINE])
        self._journal.removed(Resource(self._platform, "sequence", deployment.name))
