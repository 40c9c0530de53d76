#!/usr/bin/env bash
# Makes a root file system with Open vSwitch 3.5 of Debian 13, the peer of the differential trial (CONTRIBUTING.md).
#
#   scripts/ovs35.sh [FOLDER]    by default SLUICE_OVS_ROOT, else /opt/ovs35
#
# A folder that has the switch is left as it is. Where it cannot be made (no root, no mmdebstrap, no mirror), the reason
# is printed and the result is 0: the trial then compares with the installed switch. SLUICE_MIRROR names a mirror; by
# default it is the first one of this machine's apt.
set -euo pipefail

folder=${1:-${SLUICE_OVS_ROOT:-/opt/ovs35}}
mirror=${SLUICE_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | sed -n 1p || true)}

skip() {
    echo "SKIP: ovs35: $*" >&2
    exit 0
}

case $folder in
/?*) ;;
*) skip "$folder: give an absolute path" ;;
esac
[ ! -x "$folder/usr/sbin/ovs-vswitchd" ] || exit 0
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v mmdebstrap >/dev/null || skip "not installed: mmdebstrap"
[ -n "$mirror" ] || skip "apt has no mirror"
[ ! -e "$folder" ] || skip "$folder exists without the switch"

# A folder appears complete or not at all.
new=$(mktemp -d "$folder.XXXXXX") || skip "cannot create $folder.*"
trap 'rm -rf "$new"' EXIT
mmdebstrap --quiet --variant=apt --include=openvswitch-switch,iproute2 trixie "$new" "deb $mirror trixie main" ||
    skip "mmdebstrap failed"
chmod 755 "$new"
mv -T "$new" "$folder"
echo "ovs35: $folder" >&2
