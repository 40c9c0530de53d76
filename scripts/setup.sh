#!/usr/bin/env bash
# Installs the missing system packages that a target of the Makefile needs.
#
#   scripts/setup.sh check    what `make check` needs (the stock OVS tools among them: tests drive Sluice with them)
#   scripts/setup.sh check-long   that, and what `make check-long` needs
#   scripts/setup.sh bench    what `make bench` needs: the peers that it measures against
#   scripts/setup.sh package  what `make deb`, `make rpm` and `make image` need
#   scripts/setup.sh demo     what `make demo` needs (nothing of OVS)
#
# Packages are installed for their programs. While apt runs, a temporary policy-rc.d keeps them from starting
# a service; the previous one is restored afterwards, also when this script is interrupted. A second run with
# nothing missing changes nothing and needs no root.
set -euo pipefail

policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
saved=$policy.before-sluice
mark='# Temporary, written by scripts/setup.sh of Sluice.'

say() { echo "setup: $*" >&2; }

# Whether this script's policy-rc.d is in place, or one that it set aside.
policy_touched() {
    [ -e "$saved" ] || [ -L "$saved" ] || { [ -f "$policy" ] && grep -qsF "$mark" "$policy"; }
}

# Restores policy-rc.d; does nothing if it is untouched.
restore_policy() {
    if [ -e "$saved" ] || [ -L "$saved" ]; then
        mv -f "$saved" "$policy"
    elif policy_touched; then
        rm -f "$policy"
    fi
}

# Two concurrent runs would restore each other's policy. The lock is on the folder and ends with this process.
# Child shells inherit it, and would deadlock if they opened the folder again.
locked=
lock() {
    [ -z "$locked" ] || return 0
    exec 9<"${policy%/*}"
    if ! flock -w 600 9; then
        say "another run has held its lock for ten minutes"
        exit 1
    fi
    locked=yes
}

# Whether an existing policy-rc.d already refuses to start services.
policy_refuses() {
    local code=0
    [ -x "$policy" ] || return 1
    "$policy" openvswitch-switch start >/dev/null 2>&1 </dev/null || code=$?
    [ "$code" -eq 101 ]
}

forbid_services() {
    restore_policy
    policy_refuses && return
    trap restore_policy EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # The marked file must never exist without the saved one beside it: save first.
    if [ -e "$policy" ] || [ -L "$policy" ]; then
        mv "$policy" "$saved"
    fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Keep new services from starting at the next boot, too.
disable_services() {
    [ -d /run/systemd/system ] || return 0
    local package
    for package in "$@"; do
        case $package in
        openvswitch-switch) systemctl disable --quiet openvswitch-switch.service ovs-vswitchd.service ovsdb-server.service || true ;;
        openvswitch-testcontroller) systemctl disable --quiet openvswitch-testcontroller.service || true ;;
        ovn-central) systemctl disable --quiet ovn-central.service ovn-northd.service ovn-ovsdb-server-nb.service \
            ovn-ovsdb-server-sb.service || true ;;
        ovn-host) systemctl disable --quiet ovn-host.service ovn-controller.service || true ;;
        lldpd) systemctl disable --quiet lldpd.service || true ;;
        nfdump) systemctl disable --quiet nfdump.service || true ;;
        pmacct) systemctl disable --quiet pmacctd.service nfacctd.service sfacctd.service uacctd.service || true ;;
        iperf3) systemctl disable --quiet iperf3.service || true ;;
        # A dependency of the daemon with DPDK; its service binds devices to user space drivers.
        openvswitch-switch-dpdk) systemctl disable --quiet dpdk.service || true ;;
        esac
    done
}

install_packages() {
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here; install the equivalents of these by hand: $*"
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        say "missing: $*"
        say "run this as root: $0 $target"
        exit 1
    fi
    lock
    forbid_services
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update -qq </dev/null
    apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends "$@" </dev/null
    disable_services "$@"
}

target=${1:-}
optional=()
# The tracer: clang compiles its eBPF programs, and libbpf, which loads them, is built from source. TLS is the system's
# OpenSSL.
build=(clang libelf-dev zlib1g-dev libssl-dev pkg-config make)
case $target in
demo) packages=("${build[@]}" iproute2 iputils-ping iperf3 ethtool) ;;
package) packages=("${build[@]}" dpkg-dev rpm) ;;
bench)
    packages=("${build[@]}" openvswitch-switch openvswitch-common iperf3 iproute2 iputils-ping ethtool procps)
    # The daemon with DPDK is a separate program: /usr/sbin/ovs-vswitchd stays the stock one, which has the
    # higher priority among the alternatives. Releases number the libraries of DPDK differently; without them
    # the bench skips the rows with DPDK.
    optional=(openvswitch-switch-dpdk librte-net-pcap23 librte-net-null23 librte-mempool-ring23)
    ;;
check | check-long)
    packages=("${build[@]}" openvswitch-switch openvswitch-common python3-openvswitch tcpdump iperf3 iproute2 iputils-ping
        ethtool procps openvswitch-testcontroller strace openssl libteam-utils
        curl lldpd python3-pyftpdlib nfdump nfdump-sflow)
    if [ "$(uname -m)" = x86_64 ]; then
        # The virtual machine of the stage `guest` (17 MB; it downloads its kernel itself, 71 MB). Without
        # them the stage is skipped.
        optional=(qemu-system-x86 busybox-static kmod xz-utils)
    fi
    # Without them the tests of OVN are skipped. mold only saves time (scripts/cc.sh).
    optional+=(ovn-central ovn-host mold)
    if [ "$target" = check-long ]; then
        # libFuzzer is C++; the controllers live in a separate Python environment.
        packages+=(g++ python3-venv isc-dhcp-client prometheus chromium tshark pmacct dpkg-dev rpm mmdebstrap)
    fi
    ;;
*)
    say "usage: scripts/setup.sh check|check-long|demo|bench|package"
    exit 2
    ;;
esac

if ! command -v cc >/dev/null; then
    packages+=(gcc libc6-dev)
fi
missing=()
optional_missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        is_installed "$package" || missing+=("$package")
    done
    for package in "${optional[@]}"; do
        is_installed "$package" || optional_missing+=("$package")
    done
else
    # Not a Debian: check for the programs.
    commands="ip ping iperf3 ethtool cc clang pkg-config make"
    [ "$target" = demo ] || commands="$commands ovs-vsctl ovs-vswitchd tcpdump ps strace"
    for program in $commands; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
fi
# A killed run left its policy behind: restore that first.
if [ "$(id -u)" -eq 0 ] && policy_touched; then
    (lock && restore_policy)
fi
if [ "${#missing[@]}" -gt 0 ]; then
    install_packages "${missing[@]}"
fi
if [ "${#optional_missing[@]}" -gt 0 ]; then
    # In a subshell: unavailable packages are skipped.
    (install_packages "${optional_missing[@]}") || say "going on without: ${optional_missing[*]}"
fi
if ! command -v cargo >/dev/null; then
    say "no cargo on the path: install Rust (https://rustup.rs); rust-toolchain.toml names the toolchain"
    exit 1
fi
