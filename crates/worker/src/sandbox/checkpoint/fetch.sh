#!/bin/sh
# Unpacks a CRIU that is new enough, with its own libraries, into a new folder, for UNCIA_CRIU.
#   fetch.sh FOLDER [SUITE]
# From where this Debian has its packages, with apt's check of their signatures; nothing is installed.
set -eu

to=$1 suite=${2:-testing}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

if [ -e "$to" ]; then
  echo "$to is there already: remove it to fetch CRIU anew"
  exit
fi
for needed in apt-get dpkg-deb; do
  command -v $needed >/dev/null || { echo "there is no $needed: CRIU is unpacked from Debian's packages, on a Debian" >&2; exit 1; }
done
[ -e $keys ] || { echo "$keys is missing: apt-get install debian-archive-keyring" >&2; exit 1; }
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$') || {
  echo "apt has no packages of Debian's: there is none in /etc/apt/sources.list and the folder of that name" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work" "$to.new"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/lists/partial" "$work/archives/partial"
# Of a system on which nothing is installed, so that all that it depends on comes along.
: >"$work/status"
echo "deb [signed-by=$keys] $site $suite main" >"$work/sources.list"
apt() {
  apt-get -qq -o APT::Sandbox::User= -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::PreferencesParts=/dev/null -o Dir::Etc::Preferences=/dev/null -o Dir::State::Lists="$work/lists" \
    -o Dir::State::Status="$work/status" -o Dir::Cache::PkgCache= -o Dir::Cache::SrcPkgCache= \
    -o Dir::Cache::Archives="$work/archives" -o Debug::NoLocking=true "$@"
}
apt update
apt install --yes --download-only --no-install-recommends criu
rm -rf "$to.new"
mkdir -p "$to.new"
for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$to.new"; done
mv -T "$to.new" "$to"
echo "unpacked: UNCIA_CRIU=$to"
