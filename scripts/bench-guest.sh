#!/usr/bin/env bash
# The four tests of `sluice upcall-bench` on the kernel datapath: Debian's switch, then Sluice in both
# dispatch modes. Runs in the machine of `cargo xtask guest`; compare its times only with each other.
#
#   cargo build --release -p sluiced -p sluice
#   cargo xtask guest --memory 2048 --write OUT -- scripts/bench-guest.sh OUT [PORTS [ROUNDS]]
#
# Each round runs all three in turn, on fresh daemons. Leaves OUT/{ovs,per-cpu,per-port}-ROUND.json; prints
# the number of upcall sockets of each daemon, and the medians of the rounds with the median of their ratios
# to the stock switch.
set -euo pipefail

out=$(realpath "$1")
ports=${2:-256}
rounds=${3:-1}
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

# All generic netlink sockets (protocol 16) of the daemon.
sockets() {
    local inodes
    # Descriptors may appear and vanish meanwhile.
    inodes=$({ find "/proc/$daemon/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null || true; } | tr -dc '0-9\n' | sort)
    ip netns exec "$netns" cat /proc/net/netlink | awk '$2 == 16 { print $10 }' | sort | comm -12 - <(echo "$inodes") | wc -l
}

# One run on the daemon in $work/NAME.
run() {
    local name=$1 target_switch=$2
    shift 2
    ip netns exec "$netns" "$target/sluice" upcall-bench --target "$target_switch" --name "$name" --rundir "$work/$name" --datapath-type system \
        --ports "$ports" --packets 1000 --port-packets 4 --load-packets 300 --interval 5ms --load-rate 2000 --json "$out/$name.json" "$@" &
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

# The stock switch, round NUMBER.
stock() {
    local dir=$work/ovs-$1
    mkdir -p "$dir"
    ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    export OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir
    ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" -vconsole:off &
    server=$!
    ip netns exec "$netns" ovs-vswitchd "unix:$dir/db.sock" --pidfile -vconsole:off --log-file="$dir/vswitchd.log" &
    daemon=$!
    until ip netns exec "$netns" ovs-appctl -t "$dir/ovs-vswitchd.$daemon.ctl" version >/dev/null 2>&1; do sleep 0.5; done
    run "ovs-$1" ovs
    stop
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# Sluice with dispatch mode MODE, round NUMBER.
ours() {
    local mode=$1 dir=$work/$1-$2
    mkdir -p "$dir"
    export OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir
    ip netns exec "$netns" "$target/sluiced" --pidfile -vconsole:off --log-file="$dir/sluiced.log" &
    daemon=$!
    until [ -S "$dir/db.sock" ] && "$target/sluice" vsctl --timeout=10 set Open_vSwitch . "other_config:upcall-dispatch=$mode"; do sleep 0.5; done
    run "$mode-$2" sluice
    stop
}

ip netns add "$netns"
ip -n "$netns" link set lo up
# Debian's switch counts no processors in the first seconds after boot, and then starts no handlers.
until awk '{ exit !($1 > 15) }' /proc/uptime; do sleep 1; done
for round in $(seq "$rounds"); do
    stock "$round"
    ours per-cpu "$round"
    ours per-port "$round"
done

python3 - "$out" "$rounds" <<'END'
import json, statistics, sys

out, rounds = sys.argv[1], range(1, int(sys.argv[2]) + 1)
runs = {side: [json.load(open(f"{out}/{side}-{n}.json")) for n in rounds] for side in ("ovs", "per-cpu", "per-port")}


def lost(measured):
    return 100 * (1 - measured["arrived"] / measured["sent"])


def means(run):
    return [port["avg_ns"] for port in run["all"]]


rows = [("one port, p50, µs", lambda r: r["one"]["delays"]["p50_ns"] / 1000)]
rows += [("one port, p99, µs", lambda r: r["one"]["delays"]["p99_ns"] / 1000)]
rows += [("all ports, mean of means, µs", lambda r: statistics.mean(means(r)) / 1000)]
rows += [("all ports, deviation, %", lambda r: 100 * statistics.pstdev(means(r)) / statistics.mean(means(r)))]
for name, of in [("loaded port", lambda r: r["load"]), ("idle port", lambda r: r["idle"]["loaded"])]:
    for figure in ("avg", "p50", "p99"):
        rows += [(f"{name}, {figure}, ms", lambda r, of=of, figure=figure: of(r)["delays"][f"{figure}_ns"] / 1e6)]
    rows += [(f"{name}, lost, %", lambda r, of=of: lost(of(r)))]
rows += [("misses beside the idle port", lambda r: r["idle"]["loaded"]["misses"])]
rows += [("descriptors", lambda r: r["daemon"]["descriptors"])]
print(f"{'':32}{'ovs':>12}{'per-cpu':>12}{'per-port':>12}{'per-cpu/ovs':>14}{'per-port/ovs':>14}")
for name, of in rows:
    values = {side: [of(r) for r in runs[side]] for side in runs}
    line = f"{name:32}" + "".join(f"{statistics.median(v):12.2f}" for v in values.values())
    for side in ("per-cpu", "per-port"):
        ratios = [a / b for a, b in zip(values[side], values["ovs"]) if b]
        line += f"{statistics.median(ratios):14.2f}" if ratios else f"{'':14}"
    print(line)
END
