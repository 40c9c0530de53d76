#!/usr/bin/env bash
# Installs, upgrades and removes the Debian package in fresh systems, with and without Open vSwitch, under their own systemd.
#
#   scripts/packages.sh PACKAGE FOLDER [SUITE...]    suites: bookworm trixie (default: both)
#
# FOLDER keeps root file systems, made once by mmdebstrap. Each trial changes a copy in memory. Its processes, devices and
# control groups are in namespaces of their own. SLUICE_MIRROR names a mirror; by default it is the first one of this
# machine's apt. What cannot run here is printed as SKIP.
set -euo pipefail

skip() {
    echo "SKIP: packages: $*"
    exit 0
}

if [ "${SLUICE_PACKAGES_INNER:-}" != yes ]; then
    [ "$(id -u)" -eq 0 ] || skip "it makes namespaces: run it as root"
    for program in mmdebstrap unshare nsenter dpkg-deb; do
        command -v "$program" >/dev/null || skip "not installed: $program"
    done
    exec env SLUICE_PACKAGES_INNER=yes unshare --mount --propagation private "$0" "$@"
fi

package=$(readlink -f "$1")
folder=$2
shift 2
[ $# -gt 0 ] || set -- bookworm trixie
mirror=${SLUICE_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | sed -n 1p || true)}
[ -n "$mirror" ] || skip "apt has no mirror"
mkdir -p "$folder"
folder=$(readlink -f "$folder")
work=$(mktemp -d)
mount -t tmpfs none "$work"
mkdir "$work/groups"
mount -t cgroup2 none "$work/groups" 2>/dev/null || skip "the kernel has no cgroup2"
# Nothing of a group outlives its trial.
group=$work/groups/sluice-packages-$$
mkdir "$group"

# A system with Open vSwitch, and its package for a second installation. A folder appears complete or not at all.
make_root() {
    local suite=$1 root=$folder/$1 new
    [ ! -d "$root" ] || return 0
    new=$(mktemp -d "$root.XXXXXX")
    mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,dbus,iproute2,iputils-ping,procps,logrotate,libssl3,libelf1,openvswitch-switch \
        --customize-hook='chroot "$1" sh -c "mkdir -p /var/local/debs && cd /var/local/debs && apt-get download -qq openvswitch-switch"' \
        "$suite" "$new" "deb $mirror $suite main" || {
        rm -rf "$new"
        skip "mmdebstrap failed for $suite"
    }
    chmod 755 "$new"
    mv -T "$new" "$root"
}

# Becomes the first process of a system whose root file system is $1.
become_init='
set -e
root=$1
mount -t tmpfs none "$root/tmp"
mount -t tmpfs -o mode=755 none "$root/run"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
for device in null zero full random urandom tty net/tun; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
hostname sluice-test
ip link set lo up
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=sluice-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=null
'

outer=
init=
trial=

# Removes the groups of a system; its processes end a little after its first one.
empty_group() {
    find "$group" -mindepth 1 -depth -type d -exec rmdir {} +
}

# Ends the running system.
down() {
    [ -n "$outer" ] || return 0
    kill -KILL "$init" "$outer" 2>/dev/null || true
    wait "$outer" 2>/dev/null || true
    outer=
    umount -R "$trial/root" 2>/dev/null || umount -l "$trial/root"
    until_true 20 empty_group
}

leave() {
    down
    rmdir "$group"
    umount -l "$work"
    rmdir "$work"
}
trap leave EXIT

# Starts a copy of the suite's system; $2 runs in it before its first process.
up() {
    local suite=$1 before=$2
    trial=$(mktemp -d -p "$work")
    mkdir "$trial/upper" "$trial/work" "$trial/root"
    mount -t overlay overlay -o "lowerdir=$folder/$suite,upperdir=$trial/upper,workdir=$trial/work" "$trial/root"
    cp "$package" "$trial/root/var/local/debs/sluice.deb"
    later_package "$trial/root/var/local/debs/later.deb"
    chroot "$trial/root" sh -ec "$before" >/dev/null 2>&1
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec unshare --cgroup --mount --pid --net --uts --ipc --fork --kill-child bash -c "$become_init" init "$trial/root"
    ) </dev/null >"$trial/console" 2>&1 &
    outer=$!
    until_true 20 pgrep -P "$outer"
    init=$(pgrep -P "$outer")
    until_true 60 inside 'systemctl is-active --quiet multi-user.target'
}

# The same package as a later version.
later_package() {
    local files=$work/later
    if [ ! -e "$work/later.deb" ]; then
        dpkg-deb -R "$package" "$files"
        sed -i 's/^Version: .*/&+later/' "$files/DEBIAN/control"
        dpkg-deb --root-owner-group -Zgzip -b "$files" "$work/later.deb" >/dev/null
    fi
    cp "$work/later.deb" "$1"
}

inside() {
    nsenter --target "$init" --all --root --wd env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        sh -exc "$1"
}

until_true() {
    local seconds=$1 end
    shift
    end=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || {
            echo "packages: not after $seconds seconds: $*"
            return 1
        }
        sleep 0.1
    done
}

# Runs a step of a trial, with its output only if it fails.
step() {
    local name=$1 text
    # Steps follow each other faster than the manager allows starts.
    inside 'systemctl reset-failed' >/dev/null 2>&1 || true
    if ! text=$(inside "$2" 2>&1); then
        echo "packages: $suite: $name: FAILED"
        echo "$text"
        inside 'journalctl --no-pager -n 60 2>&1; tail -n 40 /var/log/openvswitch/*.log /var/log/sluice/*.log' 2>&1 || true
        exit 1
    fi
    echo "packages: $suite: $name"
}

# Functions for steps: the state that must outlive each exchange, and the daemon that has it.
state='
vsctl() { ovs-vsctl --timeout=20 "$@"; }
has_state() {
    vsctl wait-until interface p1 error=[] -- wait-until interface int0 error=[]
    [ "$(vsctl list-br)" = br0 ]
    [ "$(vsctl list-ports br0 | sort | xargs)" = "int0 p1" ]
    ovs-ofctl dump-flows br0 | grep -q "priority=50,udp actions=drop"
    ovs-ofctl dump-flows br0 | grep -q "priority=0 actions=NORMAL"
    ip -4 addr show int0 | grep -q "inet 192.0.2.1/24"
    for try in 1 2 3 4 5 6 7 8 9 10; do
        ! ping -c 1 -W 1 192.0.2.2 >/dev/null || return 0
    done
    echo "no reply to ping"
    return 1
}
make_state() {
    ip netns add host
    ip link add p1 type veth peer name eth0 netns host
    ip link set p1 up
    ip -n host addr add 192.0.2.2/24 dev eth0
    ip -n host link set eth0 up
    vsctl add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1 -- add-port br0 int0 -- set interface int0 type=internal
    ip addr add 192.0.2.1/24 dev int0
    ip link set int0 up
    ovs-ofctl add-flow br0 priority=50,udp,actions=drop
}
make_meter() {
    ovs-ofctl -O OpenFlow13 add-meter br0 meter=7,pktps,bands=type=drop,rate=100000
    ovs-ofctl -O OpenFlow13 add-flow br0 priority=60,icmp,actions=meter:7,normal
}
has_meter() {
    ovs-ofctl -O OpenFlow13 dump-meters br0 | grep -q "meter=7 pktps"
    ovs-ofctl -O OpenFlow13 dump-flows br0 | grep -q "priority=60,icmp actions=meter:7,NORMAL"
}
drop_meter() {
    ovs-ofctl -O OpenFlow13 --strict del-flows br0 priority=60,icmp
    ovs-ofctl -O OpenFlow13 del-meters br0
}
daemon() { cat /run/openvswitch/ovs-vswitchd.pid; }
is_sluice() {
    [ "$(readlink /proc/$(daemon)/exe)" = /usr/sbin/sluiced ]
    [ "$(cat /proc/$(daemon)/comm)" = "$1" ]
    [ "$(pidof "$1")" = "$(daemon)" ]
    ovs-appctl sluice/help >/dev/null
}
is_ovs() {
    [ "$(readlink /proc/$(daemon)/exe)" = /usr/lib/openvswitch-switch/ovs-vswitchd ]
}
own_unit() { systemctl show -P MainPID sluiced.service | grep -qx "$(daemon)"; }
install() { apt-get -qq -y --allow-downgrades install "$1"; }
debs=/var/local/debs
'

# Over a running Open vSwitch, and back.
trial_with_ovs() {
    up "$suite" :
    step "Open vSwitch has a bridge" "$state make_state; make_meter; has_state; has_meter; is_ovs"
    step "install takes bridge, addresses and rules over" "$state install \$debs/sluice.deb; is_sluice ovs-vswitchd; has_state; has_meter
        systemctl is-active ovs-vswitchd.service openvswitch-switch.service; ! systemctl is-active sluiced.service"
    step "units and scripts of Open vSwitch run it" "$state systemctl reload openvswitch-switch; is_sluice ovs-vswitchd; has_state; has_meter
        systemctl restart openvswitch-switch; is_sluice ovs-vswitchd; has_state; has_meter; /usr/share/openvswitch/scripts/ovs-ctl status"
    step "upgrade" "$state before=\$(daemon); install \$debs/later.deb; is_sluice ovs-vswitchd; has_state; [ \$before != \$(daemon) ]"
    step "roll back" "$state install \$debs/sluice.deb; is_sluice ovs-vswitchd; has_state"
    step "alternatives choose the other, and this one again" "$state
        drop_meter; update-alternatives --set ovs-vswitchd /usr/lib/openvswitch-switch/ovs-vswitchd; systemctl reload openvswitch-switch; is_ovs; has_state
        update-alternatives --auto ovs-vswitchd; systemctl reload openvswitch-switch; is_sluice ovs-vswitchd; has_state; make_meter"
    step "remove gives all back" "$state apt-get -qq -y remove sluice; is_ovs; has_state; has_meter; systemctl is-active ovs-vswitchd.service"
    step "purge leaves the database" "$state apt-get -qq -y purge sluice; [ ! -e /etc/default/sluice ]; has_state
        [ -e /var/lib/openvswitch/conf.db ]; systemctl restart openvswitch-switch; is_ovs; [ \$(vsctl list-br) = br0 ]"
    down
}

# On a machine without Open vSwitch's daemon; its tools are there. Then Open vSwitch comes and goes.
trial_without_ovs() {
    up "$suite" 'DEBIAN_FRONTEND=noninteractive dpkg --purge openvswitch-switch; ln -s /usr/bin/sluice /usr/local/bin/ovs-vsctl'
    step "install starts the switch" "$state install \$debs/sluice.deb; systemctl is-active sluiced.service; own_unit; is_sluice sluiced"
    step "it works in its sandbox" "$state make_state; has_state; vsctl get open . external_ids:hostname
        vsctl add-port br0 tun0 -- set interface tun0 type=vxlan options:remote_ip=192.0.2.2 -- wait-until interface tun0 error=[]
        vsctl del-port br0 tun0
        [ \"\$(systemctl show -P WatchdogUSec sluiced)\" = 1min ]; [ \"\$(systemctl show -P StatusErrno sluiced)\" = 0 ]"
    step "an AF_XDP port works in its sandbox" "$state ip link add x1 type veth peer name x2; ip link set x1 up; ip link set x2 up
        vsctl add-port br0 x1 -- set interface x1 type=afxdp -- wait-until interface x1 error=[]; vsctl del-port br0 x1"
    step "log rotation" "$state logrotate -f /etc/logrotate.d/sluice; [ -s /var/log/sluice/ovs-vswitchd.log.1.gz ]; [ -e /var/log/sluice/ovs-vswitchd.log ]"
    step "the manager restarts a killed one" "$state before=\$(daemon); kill -KILL \$before
        for try in \$(seq 200); do [ \$(daemon) = \$before ] || ! systemctl is-active --quiet sluiced || break; sleep 0.1; done
        [ \$before != \$(daemon) ]; own_unit; has_state"
    step "upgrade" "$state before=\$(daemon); install \$debs/later.deb; own_unit; [ \$before != \$(daemon) ]; has_state"
    step "roll back" "$state install \$debs/sluice.deb; own_unit; has_state"
    step "Open vSwitch comes: its units run the switch" "$state dpkg --install \$debs/openvswitch-switch_*.deb; is_sluice ovs-vswitchd; has_state
        ! systemctl is-active sluiced.service; systemctl is-active ovs-vswitchd.service"
    step "Open vSwitch goes: the own unit runs it" "$state apt-get -qq -y remove openvswitch-switch; own_unit; is_sluice sluiced; has_state"
    step "remove and purge" "$state apt-get -qq -y purge sluice; [ ! -e /usr/sbin/ovs-vswitchd ] && [ ! -e /var/log/sluice ]
        ! pidof sluiced; [ ! -e /etc/systemd/system/multi-user.target.wants/sluiced.service ]"
    down
}

for suite in "$@"; do
    make_root "$suite"
    trial_with_ovs
    trial_without_ovs
done
echo "packages: all trials passed"
