#!/usr/bin/env bash
# The four tests of `sluice upcall-bench` on the kernel's datapath: Debian's switch, then Sluice in both dispatch modes. For the
# machine of `cargo xtask guest`; times in there compare with times in there alone.
#
#   cargo build --release -p sluiced -p sluice
#   cargo xtask guest --memory 2048 --write OUT -- scripts/bench-guest.sh OUT [PORTS]
#
# Leaves OUT/{ovs,per-cpu,per-port}.json, and prints the tables and how many upcall sockets each daemon has.
set -euo pipefail

out=$(realpath "$1")
ports=${2:-256}
target=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
netns=sl-bench-$$
daemon=
server=

clean() {
    [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    ip netns del "$netns" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

# Sockets of the daemon's for generic netlink (protocol 16), all of them.
sockets() {
    local inodes
    # Descriptors come and go meanwhile.
    inodes=$({ find "/proc/$daemon/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null || true; } | tr -dc '0-9\n' | sort)
    ip netns exec "$netns" cat /proc/net/netlink | awk '$2 == 16 { print $10 }' | sort | comm -12 - <(echo "$inodes") | wc -l
}

# One run on the daemon in $work/NAME.
run() {
    local name=$1 target_switch=$2
    shift 2
    ip netns exec "$netns" "$target/sluice" upcall-bench --target "$target_switch" --name "$name" --rundir "$work/$name" --datapath-type system \
        --ports "$ports" --packets 300 --port-packets 4 --load-packets 300 --interval 5ms --load-rate 2000 --json "$out/$name.json" "$@" &
    local bench=$! most=0 now
    while kill -0 "$bench" 2>/dev/null; do
        now=$(sockets)
        [ "$now" -le "$most" ] || most=$now
        sleep 2
    done
    wait "$bench"
    echo "$name: $most generic netlink sockets at most, with $ports ports"
}

stop() {
    kill -9 "$daemon"
    wait "$daemon" 2>/dev/null || true
    daemon=
    ip netns exec "$netns" ovs-dpctl del-dp ovs-system 2>/dev/null || true
}

ip netns add "$netns"
ip -n "$netns" link set lo up
mkdir -p "$work/ovs"
ovsdb-tool create "$work/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
export OVS_RUNDIR=$work/ovs OVS_LOGDIR=$work/ovs OVS_DBDIR=$work/ovs
ovsdb-server "$work/ovs/conf.db" --remote="punix:$work/ovs/db.sock" -vconsole:off &
server=$!
# Debian's switch counts no processors in the first seconds of a machine, and then has no handlers.
until awk '{ exit !($1 > 15) }' /proc/uptime; do sleep 1; done
ip netns exec "$netns" ovs-vswitchd "unix:$work/ovs/db.sock" --pidfile -vconsole:off --log-file="$work/ovs/vswitchd.log" &
daemon=$!
until ip netns exec "$netns" ovs-appctl -t "$work/ovs/ovs-vswitchd.$daemon.ctl" version >/dev/null 2>&1; do sleep 0.5; done
run ovs ovs
stop

for mode in per-cpu per-port; do
    mkdir -p "$work/$mode"
    export OVS_RUNDIR=$work/$mode OVS_LOGDIR=$work/$mode OVS_DBDIR=$work/$mode
    ip netns exec "$netns" "$target/sluiced" --pidfile -vconsole:off --log-file="$work/$mode/sluiced.log" &
    daemon=$!
    until [ -S "$work/$mode/db.sock" ] && "$target/sluice" vsctl --timeout=10 set Open_vSwitch . "other_config:upcall-dispatch=$mode"; do sleep 0.5; done
    run "$mode" sluice --compare "$out/ovs.json"
    stop
done
