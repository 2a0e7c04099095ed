#!/bin/sh
# Installs the load generators that compare.py sets beside Uncia's, and nginx.
#
#     benches/load/peers.sh FOLDER
#
# wrk, hey and nginx are Debian's packages (apt-get, when run as root); k6 and vegeta are built by Go,
# oha by cargo, into FOLDER/bin. What is there already is kept. Versions go to FOLDER/versions.txt and
# to the terminal, as does what could not be had; the exit code is then 1.
set -u

if [ $# -ne 1 ]; then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi
mkdir -p "$1/bin" "$1/logs" || exit 2
folder=$(cd "$1" && pwd)
bin=$folder/bin
missing=0

# Fixed, so that figures can be repeated; $K6_VERSION and so on ask for others.
k6=${K6_VERSION:-v1.8.1}
vegeta=${VEGETA_VERSION:-v12.12.0}
oha=${OHA_VERSION:-1.16.0}

lack() {
    echo "missing: $1: $2" >&2
    missing=1
}

# package COMMAND: Debian's package of the same name.
package() {
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        lack "$1" "not installed, and installing it takes apt-get and root"
        return
    fi
    # Without recommended packages, and without a service that would hold a port.
    if ! { apt-get update -q && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends "$1"; } >"$folder/logs/$1.log" 2>&1; then
        lack "$1" "apt-get failed, see $folder/logs/$1.log"
    fi
}

# from_go NAME MODULE VERSION
from_go() {
    [ -x "$bin/$1" ] && return
    if ! command -v go >/dev/null; then
        lack "$1" "Go is not installed"
        return
    fi
    export GOBIN="$bin" GOTOOLCHAIN=auto
    go install "$2@$3" >"$folder/logs/$1.log" 2>&1 && return
    # That asks for a list of all versions, which not every proxy gives. A module that requires the
    # version needs no list.
    mkdir -p "$folder/build/$1"
    printf 'module peers\n\nrequire %s %s\n' "$2" "$3" >"$folder/build/$1/go.mod"
    if ! (cd "$folder/build/$1" && go install -mod=mod "$2") >>"$folder/logs/$1.log" 2>&1; then
        lack "$1" "go install $2@$3 failed, see $folder/logs/$1.log"
    fi
}

# from_cargo NAME VERSION
from_cargo() {
    [ -x "$bin/$1" ] && return
    if ! command -v cargo >/dev/null; then
        lack "$1" "cargo is not installed"
    elif ! cargo install --locked --root "$folder" "$1@$2" >"$folder/logs/$1.log" 2>&1; then
        lack "$1" "cargo install $1@$2 failed, see $folder/logs/$1.log"
    fi
}

package wrk
package hey
package nginx
from_go k6 go.k6.io/k6 "$k6"
from_go vegeta github.com/tsenart/vegeta/v12 "$vegeta"
from_cargo oha "$oha"

# version NAME: one line. Debian's hey and wrk are named by their packages: hey does not say, and wrk
# says "debian/...". A Go program's version is its module's, as built in.
version() {
    if [ -x "$bin/$1" ]; then
        case $1 in
        k6 | vegeta) go version -m "$bin/$1" | awk -v name="$1" '$1 == "mod" { print name, $3 }' ;;
        *) "$bin/$1" --version | head -n 1 ;;
        esac
    elif command -v "$1" >/dev/null; then
        dpkg-query -W -f '${Package} ${Version} (Debian)\n' "$1" 2>/dev/null || echo "$1 (not of a package)"
    fi
}

for name in wrk hey nginx k6 vegeta oha; do
    version "$name"
done | tee "$folder/versions.txt"
exit $missing
