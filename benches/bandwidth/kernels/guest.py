"""Runs a command of this machine under another kernel, in an emulated machine.

    .venv/bin/python benches/bandwidth/kernels/guest.py --kernel VMLINUZ --modules DIR \\
        [--cgroups 1|2] [--cpus 1] [--icount N] [--out DIR] -- COMMAND...

The guest sees this machine's files by 9p, read-only, under an overlay in its memory: what is
installed here runs there, and nothing that it writes stays but for what it puts into /out, which is
``--out``. It has no network but its own loopback, and ends with the command.

``--icount N``: the guest's clock goes on by 2^N ns with each instruction (``-icount
shift=N,sleep=off``), and not with the host's time: whatever else the host does, the guest cannot
see it. An idle guest jumps to its next timer. Without it the guest's clock is the host's.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import lzma
import mmap
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

QEMU = "qemu-system-x86_64"
# Before that version a guest with several CPUs ends in an oops of its kernel.
QEMU_OF_SEVERAL_CPUS = 10
# Where packages have programs and libraries, below a folder that they are unpacked into.
PROGRAMS = ("usr/bin", "bin")
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
DATA = ("usr/share/qemu", "usr/share/seabios")
# The last, so that the kernel says who connects: it loads no module by itself here.
MODULES = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay"),
    # A disk; its file system asks for crc32c by name.
    *("virtio_blk", "crc32c_generic", "ext4", "tcp_diag"),
)
STATUS = "status"
DISK = "disk"
MIB = 1024 * 1024

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /host /top /root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 host /host
mount -t tmpfs -o size=80% tmpfs /top
mkdir /top/new /top/work
mount -t overlay -o lowerdir=/host,upperdir=/top/new,workdir=/top/work overlay /root
mkdir -p /root/out
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
ln -s /proc/self/fd /root/dev/fd
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs run /root/run
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 out /root/out
ip link set lo up
DISK
CGROUPS
# The root of the namespace, not of a process: who enters a mount namespace gets that one.
cd /root
mount --move . /
chroot . /bin/sh -c '/bin/sh /out/COMMAND; echo $? > /out/STATUS; sync'
poweroff -f
"""

UNIFIED = "mount -t cgroup2 cgroup2 /root/sys/fs/cgroup"
CLASSIC = """mount -t tmpfs cgroup /root/sys/fs/cgroup
for one in cpu,cpuacct memory pids freezer; do
  mkdir /root/sys/fs/cgroup/$one
  mount -t cgroup -o $one $one /root/sys/fs/cgroup/$one
done
ln -s cpu,cpuacct /root/sys/fs/cgroup/cpu
ln -s cpu,cpuacct /root/sys/fs/cgroup/cpuacct"""


class GuestError(Exception):
    """The guest cannot run: what is missing, and what to do."""


@dataclass(frozen=True)
class Guest:
    """An emulated machine.

    Attributes:
        kernel: bzImage, as in a distribution's ``/boot``.
        modules: its folder of modules, ``lib/modules/RELEASE``.
        cgroups: version of control groups, which alone is mounted.
        cpus: CPUs; with ``icount`` one.
        icount: ns of an instruction, as a power of two; None: the host's clock.
        memory: MiB.
        disk: bytes of a disk of its own at /scratch, empty at first; 0: none. What is on it is in a
            file beside the guest's memory on this machine, as long as the guest runs.
        tools: folders that packages with QEMU or busybox are unpacked into, if they are not
            installed.
    """

    kernel: Path
    modules: Path
    cgroups: int = 2
    cpus: int = 1
    icount: int | None = None
    memory: int = 3072
    disk: int = 0
    tools: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raises :class:`GuestError` for what is missing or does not go together."""
        for program, package in ((QEMU, "qemu-system-x86"), ("busybox", "busybox-static")):
            if self.program(program) is None:
                raise GuestError(f"{program} is missing: apt-get install {package}")
        if self.cpus > 1 and self.emulator_version() < QEMU_OF_SEVERAL_CPUS:
            raise GuestError(
                f"with several CPUs {QEMU} must be {QEMU_OF_SEVERAL_CPUS} or newer, and is "
                f"{self.emulator_version()}: install that of the release's backports, or give"
                " --cpus 1"
            )
        if not self.kernel.is_file():
            raise GuestError(f"there is no kernel {self.kernel}: give the path of a vmlinuz")
        if not (self.modules / "kernel").is_dir():
            raise GuestError(
                f"{self.modules} is no folder of modules: give lib/modules/RELEASE of the kernel"
            )
        if self.icount is not None and self.cpus != 1:
            raise GuestError("with --icount the guest has one CPU: leave out --cpus")

    def program(self, name: str) -> str | None:
        """The path of a program, of the tools or else installed; None if there is none."""
        folders = [str(tools / folder) for tools in self.tools for folder in PROGRAMS]
        return shutil.which(name, path=os.pathsep.join(folders)) or shutil.which(name)

    def emulator_version(self) -> int:
        """QEMU's major version; 0 if there is none, or it does not run."""
        try:
            output = subprocess.run(
                [self.program(QEMU) or QEMU, "--version"],
                env=self.environment(),
                capture_output=True,
                text=True,
                check=False,
            ).stdout
        except OSError:
            return 0
        match = re.search(r"version (\d+)", output)
        return int(match[1]) if match else 0

    def environment(self) -> dict[str, str]:
        """QEMU's, with libraries and modules that are unpacked like itself."""
        environment = dict(os.environ)
        libraries = [str(tools / folder) for tools in self.tools for folder in LIBRARIES]
        if libraries:
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
            environment["QEMU_MODULE_DIR"] = str(self.tools[0] / LIBRARIES[0] / "qemu")
        return environment

    def run(
        self,
        command: list[str],
        out: Path,
        timeout: float | None = None,
        console: IO[str] | None = None,
    ) -> int:
        """Runs a command in the guest and gives its exit status.

        What it prints goes to ``console``, or is printed here.

        Raises:
            GuestError: something is missing, or the guest ended before the command did.
        """
        self.check()
        out.mkdir(parents=True, exist_ok=True)
        (out / STATUS).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="uncia-guest-") as folder:
            if self.disk:
                make_disk(Path(folder) / DISK, self.disk)
            initrd = Path(folder) / "initrd"
            initrd.write_bytes(self.initrd())
            (out / "command").write_text(shlex.join(command) + "\n")
            try:
                subprocess.run(
                    self.qemu(initrd, out),
                    env=self.environment(),
                    stdin=subprocess.DEVNULL if console else None,
                    stdout=console,
                    timeout=timeout,
                    check=True,
                )
            except subprocess.TimeoutExpired as error:
                raise GuestError(f"the guest took longer than {timeout} s") from error
            except subprocess.CalledProcessError as error:
                raise GuestError(f"{QEMU} failed with status {error.returncode}") from error
            finally:
                (out / "command").unlink()
        if not (out / STATUS).exists():
            raise GuestError("the guest ended before its command: see what it printed")
        status = int((out / STATUS).read_text())
        (out / STATUS).unlink()
        return status

    def qemu(self, initrd: Path, out: Path) -> list[str]:
        """The emulator's command line."""
        words = ["console=ttyS0", "quiet", "panic=-1", "tsc=reliable", "mitigations=off"]
        words += ["cgroup_no_v1=all"] if self.cgroups == 2 else []
        # A kernel that counts for itself while others have the processor may take its clock for
        # several times as fast as it is.
        khz = None if self.icount is not None else counter_khz()
        words += [] if khz is None else [f"tsc_early_khz={khz}"]
        share = "security_model=none,multidevs=remap"
        disk = f"file={initrd.with_name(DISK)},format=raw,if=virtio,cache=unsafe"
        clock = [] if self.icount is None else ["-icount", f"shift={self.icount},sleep=off"]
        data = [tools / folder for tools in self.tools for folder in DATA]
        return [
            *(self.program(QEMU) or QEMU, *(word for path in data for word in ("-L", str(path)))),
            *("-accel", "tcg", "-cpu", "max", "-smp", str(self.cpus), *clock),
            *("-m", str(self.memory), "-nodefaults", "-no-reboot", "-display", "none"),
            *("-serial", "stdio", "-nic", "none"),
            *(("-drive", disk) if self.disk else ()),
            *("-kernel", str(self.kernel), "-initrd", str(initrd), "-append", " ".join(words)),
            *("-virtfs", f"local,path=/,mount_tag=host,readonly=on,{share}"),
            *("-virtfs", f"local,path={out.resolve()},mount_tag=out,{share}"),
        ]

    def initrd(self) -> bytes:
        """What the guest begins with: busybox, modules, and a script that mounts this machine."""
        init = INIT.replace("CGROUPS", UNIFIED if self.cgroups == 2 else CLASSIC)
        mount = (
            "mkdir -p /root/scratch && mount -t ext4 /root/dev/vda /root/scratch"
            if self.disk
            else ""
        )
        init = init.replace("COMMAND", "command").replace("DISK", mount).replace("STATUS", STATUS)
        busybox = Path(self.program("busybox") or "busybox").read_bytes()
        modules = self.needed()
        files = {
            "init": init.encode(),
            "bin/busybox": busybox,
            "modules/order": "\n".join(modules).encode(),
            **{f"modules/{name}": content for name, content in modules.items()},
        }
        return archive(["bin", "modules"], files)

    def needed(self) -> dict[str, bytes]:
        """The modules, in the order in which they can be loaded; built-in ones are left out."""
        there = {name(path): path for path in self.modules.glob("kernel/**/*.ko*")}
        order: dict[str, bytes] = {}

        def add(module: str) -> None:
            if module in order or module not in there:
                return
            content = unpack(there[module])
            match = re.search(rb"\0depends=([^\0]*)\0", content)
            for other in match[1].decode().split(",") if match else []:
                add(other.replace("-", "_"))
            order[module] = content

        for module in MODULES:
            add(module)
        return order


def counter_khz() -> int | None:
    """How fast the time-stamp counter runs, of this processor and of one emulated on it, in kHz.

    None if there is none, or it cannot be read.
    """
    if platform.machine() != "x86_64":
        return None
    # rdtsc; shl rdx, 32; or rax, rdx; ret
    code = bytes.fromhex("0f31 48c1e220 4809d0 c3")
    try:
        with mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        ) as page:
            page.write(code)
            buffer = ctypes.c_char.from_buffer(page)
            counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(buffer))
            begun, first = time.monotonic_ns(), counter()
            time.sleep(0.2)
            ended, last = time.monotonic_ns(), counter()
            del buffer
    except OSError:
        return None
    return round((last - first) * 1e6 / (ended - begun))


def make_disk(path: Path, size: int) -> None:
    """Makes an empty disk, which takes the room of what is written to it.

    Raises:
        GuestError: there is no program for it, or it failed.
    """
    with path.open("wb") as file:
        file.truncate(size)
    command = ["mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", str(path)]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise GuestError(
            f"no file system could be made: {error}; apt-get install e2fsprogs"
        ) from error


def name(path: Path) -> str:
    """A module's name: 9p-net.ko.xz is 9p_net."""
    return path.name.split(".")[0].replace("-", "_")


def unpack(path: Path) -> bytes:
    """A module's content.

    Raises:
        GuestError: it is compressed in a way that Python cannot read.
    """
    raw = path.read_bytes()
    match path.suffix:
        case ".ko":
            return raw
        case ".xz":
            return lzma.decompress(raw)
        case ".gz":
            return gzip.decompress(raw)
        case other:
            raise GuestError(f"{path} is compressed as {other}, which is not read here")


def archive(folders: list[str], files: dict[str, bytes]) -> bytes:
    """A cpio archive of the form ``newc``, which the kernel unpacks; every file may be run."""
    parts: list[bytes] = []

    def add(path: str, mode: int, content: bytes) -> None:
        numbers = [len(parts) + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % number for number in numbers)
        for part in (head + path.encode() + b"\0", content):
            parts.append(part + bytes(-len(part) % 4))

    for path in folders:
        add(path, stat.S_IFDIR | 0o755, b"")
    for path, content in files.items():
        add(path, stat.S_IFREG | 0o755, content)
    add("TRAILER!!!", 0, b"")
    return b"".join(parts)


def options(parser: argparse.ArgumentParser) -> None:
    """Those that describe the guest."""
    parser.add_argument("--kernel", type=Path, required=True, help="vmlinuz")
    parser.add_argument("--modules", type=Path, required=True, help="lib/modules/RELEASE")
    parser.add_argument("--cgroups", type=int, choices=(1, 2), default=2, help="version")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options(parser)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--icount", type=int, help="2^N ns for each instruction")
    parser.add_argument("--memory", type=int, default=3072, help="MiB")
    parser.add_argument("--out", type=Path, help="the guest's /out; unless given, it goes again")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    guest = Guest(
        given.kernel, given.modules, given.cgroups, given.cpus, given.icount, given.memory
    )
    try:
        if given.out is not None:
            return guest.run(given.command, given.out)
        with tempfile.TemporaryDirectory(prefix="uncia-guest-out-") as out:
            return guest.run(given.command, Path(out))
    except GuestError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
