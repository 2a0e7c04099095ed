"""Debian's packages, unpacked into a folder: kernels, and an emulator, without installing them.

They come from where apt-get has its packages from, and from that release's backports, of which this
machine's own lists know nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guest import PROGRAMS, GuestError

KERNEL = "linux-image-amd64"


@dataclass(frozen=True)
class Packages:
    """apt-get with lists of its own.

    Attributes:
        folder: for lists, packages and what is unpacked; made when it is needed.
    """

    folder: Path

    def kernel(self, series: str) -> tuple[Path, Path]:
        """Return a kernel of a series, such as ``6.1`` or ``6.12``, and its folder of modules.

        Raises:
            GuestError: apt-get does not have it.
        """
        unpacked = self.folder / f"linux-{series}"
        if not unpacked.is_dir():
            version = self._newest(KERNEL, f"{series}.")
            depends = self._run("apt-cache", "show", f"{KERNEL}={version}")
            image = re.search(r"^Depends:.*?(linux-image-[0-9]\S+)", depends, re.MULTILINE)
            if image is None:
                raise GuestError(f"{KERNEL} {version} depends on no kernel")
            self._unpack([image[1]], unpacked)
        kernel = sorted(unpacked.glob("boot/vmlinuz-*"))[-1]
        release = kernel.name.removeprefix("vmlinuz-")
        (modules,) = (path for path in unpacked.glob("**/modules/*") if path.name == release)
        return kernel, modules

    def program(self, name: str, package: str, *, backport: bool = False) -> Path:
        """Return a folder with a package that holds a program, and what it needs, unpacked.

        Raises:
            GuestError: apt-get does not have it.
        """
        unpacked = self.folder / package
        if not unpacked.is_dir():
            suite = ["--target-release", f"{self._codename()}-backports"] if backport else []
            simulated = self._run(
                "apt-get", "install", "--simulate", "--no-install-recommends", *suite, package
            )
            needed = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", simulated, re.MULTILINE)
            self._unpack([f"{name}={version}" for name, version in needed], unpacked)
        if not any((unpacked / folder / name).is_file() for folder in PROGRAMS):
            raise GuestError(f"{package}, as apt-get has it, holds no program {name}")
        return unpacked

    def _newest(self, package: str, beginning: str) -> str:
        table = self._run("apt-cache", "madison", package)
        versions = [line.split("|")[1].strip() for line in table.splitlines() if "|" in line]
        fitting = [version for version in versions if version.startswith(beginning)]
        if not fitting:
            there = ", ".join(dict.fromkeys(versions)) or "none"
            raise GuestError(f"apt-get has no {package} {beginning}*: it has {there}")
        return fitting[0]  # They come newest first.

    def _unpack(self, packages: list[str], into: Path) -> None:
        """Fetches packages and unpacks them, whole or not at all."""
        downloads = into.with_name(into.name + ".part")
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir(parents=True)
        self._run("apt-get", "download", "-q", *packages, cwd=downloads)
        for package in downloads.glob("*.deb"):
            self._run("dpkg", "-x", str(package), str(downloads / "unpacked"))
        (downloads / "unpacked").rename(into)
        shutil.rmtree(downloads)

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        apt = command[0].startswith("apt-")
        options = self._options() if apt else []
        return _output([command[0], *options, *command[1:]], cwd)

    def _options(self) -> list[str]:
        """apt's, by which it has backports besides; its lists are fetched once."""
        sources = (self.folder / "sources.list").absolute()
        options = {
            "Dir::Etc::SourceList": str(sources),
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": str(sources.with_name("lists")),
            "Dir::Cache": str(sources.with_name("cache")),
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        if not sources.exists():
            (self.folder / "lists/partial").mkdir(parents=True, exist_ok=True)
            (self.folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
            made = sources.with_suffix(".new")
            made.write_text(self._sources())
            words[1] = f"Dir::Etc::SourceList={made}"
            _output(["apt-get", *words, "update", "-q"], None)
            made.rename(sources)
            words[1] = f"Dir::Etc::SourceList={sources}"
        return words

    def _sources(self) -> str:
        """This machine's sources, and the release's backports from where the release is."""
        form = "--format=$(REPO_URI) $(RELEASE) $(COMPONENT)"
        wanted = "Identifier: Packages"
        targets = sorted(set(_output(["apt-get", "indextargets", form, wanted], None).splitlines()))
        backports = f"{self._codename()}-backports"
        lines = [f"deb {target}" for target in targets]
        for target in targets:
            uri, release, component = target.split()
            if release == self._codename():
                lines.append(f"deb {uri} {backports} {component}")
        return "\n".join(lines) + "\n"

    def _codename(self) -> str:
        text = Path("/etc/os-release").read_text()
        codename = re.search(r"^VERSION_CODENAME=\"?(\w+)", text, re.MULTILINE)
        if codename is None:
            raise GuestError("/etc/os-release names no release of Debian: name a --kernel")
        return codename[1]


def _output(command: list[str], cwd: Path | None) -> str:
    """Return what a command prints.

    Raises:
        GuestError: it failed.
    """
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GuestError(f"{command[0]} cannot be run ({error}): name a --kernel") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise GuestError(f"{command[0]} failed: {''.join(last)}")
    return done.stdout
