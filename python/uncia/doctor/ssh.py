"""Other machines, by the system's OpenSSH client: how they are named, and what is run on them.

Everything else (keys, host keys, jumps) is for the user's ssh configuration to say; nothing is ever
asked, since a measurement has nobody to answer.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from uncia.errors import UnciaError

CONNECT_TIMEOUT_S: Final = 10
UPLOAD_TIMEOUT_S: Final = 300
"""For how long the engine may be copied."""
_ALIVE_S: Final = 5
"""So often a silent connection is tried, three times before it counts as lost."""
_WAIT_S: Final = UPLOAD_TIMEOUT_S + 100
"""For how long the other side waits for the engine. A connection that is lost without a word, sshd
by itself takes for hours for one on which nothing is said."""

_WORD: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]*")

_OPTIONS: Final = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"),
    *("-o", f"ServerAliveInterval={_ALIVE_S}"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ClearAllForwardings=yes"),
    # A connection that others share would keep our pipes open.
    *("-o", "ControlMaster=no"),
)

BY: Final = "`engine` (--host-engine)"
"""How a person names an engine, in a file and on the command line."""

MARK: Final = "uncia-monitor"
"""Begins the lines that `copy_script` and `named_script` print; profiles of shells print, too."""

TOO_DIFFERENT: Final = 11
"""The exit code of a machine that is none for the engine, `MARK` line by then printed."""
NO_FOLDER: Final = 12
"""The exit code if no temporary folder can be made."""
DAMAGED: Final = 13
"""The exit code if the engine did not arrive as it left."""
NO_ENGINE: Final = 14
"""The exit code if the named engine is not there."""


@dataclass(frozen=True)
class Address:
    """A machine that ssh connects to.

    Attributes:
        host: its name or address, or what the user's ssh configuration calls it.
        user: there; None: as ssh's configuration says.
        port: None: as ssh's configuration says.
    """

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``ssh://user@host:port``; user and port may be missing.

        Raises:
            ValueError: it is none.
        """
        form = "a machine is named ssh://user@host:port, where user and port may be missing"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{url!r}: {error}; {form}") from error
        if parts.password is not None:
            raise ValueError(
                "an address holds no password: give ssh a key, in its agent or configuration"
            )
        host, user = parts.hostname, parts.username
        if host is not None:
            # As it is written: names in ssh's configuration differ by case.
            start = parts.netloc.lower().rfind(host.lower())
            host = parts.netloc[start : start + len(host)]
            # In a URL (RFC 6874) the sign before an address's zone is written %25; ssh takes it
            # plain, and so may a person write it.
            host = re.sub(r"%25(?=.)", "%", host, count=1)
        is_plain = not (parts.path.strip("/") or parts.query or parts.fragment)
        is_host = host is not None and _ADDRESS.fullmatch(host) is not None
        is_user = user is None or _WORD.fullmatch(user) is not None
        if parts.scheme != "ssh" or not (is_plain and is_host and is_user):
            raise ValueError(f"{url!r} names no machine: {form}")
        assert host is not None, "it was checked"
        return cls(host, user, port)

    @property
    def url(self) -> str:
        """As a person writes it."""
        user = "" if self.user is None else f"{self.user}@"
        return f"ssh://{user}{self.name}"

    @property
    def name(self) -> str:
        """What rows call the machine: without the user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def arguments(self, command: str, *options: str) -> list[str]:
        """The call of ssh that runs a command there.

        Raises:
            UnciaError: there is no ssh.
        """
        program = shutil.which("ssh")
        if program is None:
            raise UnciaError(
                "monitors on other machines need ssh, and there is none on PATH",
                hint="Install OpenSSH's client (Debian: apt-get install openssh-client).",
            )
        user = [] if self.user is None else ["-l", self.user]
        port = [] if self.port is None else ["-p", str(self.port)]
        return [program, *_OPTIONS, *options, *user, *port, self.host, command]


def _run(script: str, **words: str) -> str:
    """The command that has a POSIX shell run a script, whichever shell the user there has.

    Args:
        script: on lines that become one.
        words: the values of its variables, which are kept as they are.
    """
    values = [f"{name}={shlex.quote(value)};" for name, value in words.items()]
    return f"sh -c {shlex.quote(' '.join([*values, *script.split()]))}"


def copy_script(digest: str) -> str:
    """The command that waits for a copy of the engine, runs it, and leaves nothing behind.

    It prints system and architecture, then a folder; once `upload` has put the engine there, a line
    of standard input starts it. The end of standard input at any time is the end of everything; so
    is a line that does not come.
    """
    engine = '"$folder/uncia-engine"'
    return _run(f"""
        umask 077; folder=;
        leave() {{ test -z "$folder" || rm -rf "$folder"; }}; trap leave EXIT;
        stop() {{ exit 1; }}; trap stop HUP INT TERM PIPE;
        echo "{MARK} $(uname -s) $(uname -m)";
        test "$(uname -s) $(uname -m)" = "Linux {platform.machine()}" || exit {TOO_DIFFERENT};
        folder=$(mktemp -d "${{TMPDIR:-/tmp}}/uncia-monitor.XXXXXXXX") || exit {NO_FOLDER};
        echo "{MARK} $folder";
        timeout {_WAIT_S} sh -c "read -r line" || exit 1;
        sum=$(sha256sum < {engine}); test "${{sum%% *}}" = {digest} || exit {DAMAGED};
        chmod 700 {engine} || exit {NO_FOLDER};
        {engine} monitor --remote --remove-itself
    """)


def upload(folder: str) -> str:
    """The command that puts what it reads into the folder, as the engine."""
    return f"timeout {_WAIT_S} cat > {shlex.quote(folder + '/uncia-engine')}"


def named_script(engine: str) -> str:
    """The command that runs an engine which is there already."""
    script = f"""
        echo "{MARK} $(uname -s) $(uname -m)";
        command -v "$engine" > /dev/null || exit {NO_ENGINE};
        exec "$engine" monitor --remote
    """
    return _run(script, engine=engine)


def refusal(code: int, system: str, lines: list[str], path: Path | str) -> str:
    """Why nothing runs there, as a sentence.

    Args:
        code: the exit code of ssh.
        system: its system and architecture, or nothing if it has not told them.
        lines: what was printed on standard error.
        path: of the engine.
    """
    errors = [line for line in lines if line.startswith("error")]
    last = [*(errors or lines[-1:]), f"exit code {code}"][0]
    missing = next((line for line in lines if "GLIBC" in line or "GLIBCXX" in line), None)
    own = f"install an engine that was built for it there, and name it with {BY}"
    if code == TOO_DIFFERENT and system:
        return f"it is {system}, and this engine is for Linux {platform.machine()}: {own}"
    if code == NO_FOLDER:
        return f"no temporary folder can be made there: {last}"
    if code == DAMAGED:
        return "the copy of the engine did not arrive whole: is the temporary folder's disk full?"
    if code == NO_ENGINE:
        return f"there is no program {path} there: name one, or leave {BY} out to copy this one"
    if missing is not None:
        return f"its C library is older than the engine needs ({missing}): {own}"
    if code == 127 and system:
        return f"the engine cannot be loaded there, since its C library is another one: {own}"
    if code == 126 and system:
        return (
            f"the engine may not be run there ({last}): is its temporary folder mounted noexec?"
            " Another one is named by TMPDIR there"
        )
    if code == 255 and not system:
        hint = ""
        if any("Host key verification failed" in line for line in lines):
            hint = "; connect once by hand to see its key and accept it"
        elif any("Permission denied" in line for line in lines):
            hint = "; nothing is asked here, so ssh needs a key of yours that the host accepts"
        return f"ssh does not connect: {last}{hint}"
    if path and not errors:
        # It ran, and did as another program does.
        return f"{path} there is no engine that monitors ({last}): name one with {BY}"
    return f"no monitors run there: {last}"
