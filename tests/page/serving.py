"""A running ``uncia serve``, and functions for it."""

import io
import json
import signal
import subprocess
import urllib.request
import zipfile
from typing import Any, Final

from uncia.platforms import boto

HOSTILE: Final = "<img src=x onerror=\"document.title='owned'\">\u2028</script>"
SOURCES: Final = {
    "works": "def handler(event, context):\n    return event\n",
    "fails": f"def handler(event, context):\n    raise ValueError({HOSTILE!r})\n",
}


class Serving:
    """A running ``uncia serve``."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        self.address: str = json.loads(line)["address"]
        self.client = boto.client(self.address)

    def create(self, name: str, source: str, memory_mb: int = 256) -> None:
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("app.py", source)
        self.client.create_function(
            FunctionName=name,
            Runtime="python3.11",
            Handler="app.handler",
            Role="arn:aws:iam::000000000000:role/any",
            MemorySize=memory_mb,
            Code={"ZipFile": package.getvalue()},
        )
        self.client.get_waiter("function_active_v2").wait(FunctionName=name)

    def invoke(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.client.invoke(FunctionName=name, Payload=b"{}")

    def get(self, path: str, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(f"http://{self.address}{path}", headers=headers or {})
        return urllib.request.urlopen(request, timeout=60)

    def stop(self) -> None:
        """Stop it, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, errors
