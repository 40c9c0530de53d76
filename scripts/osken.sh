#!/usr/bin/env bash
# Runs os-ken's switch tester against Sluice, or against the stock switch, and prints how many cases pass.
#
#   scripts/osken.sh VENV RESULTS SUITE [SLUICED]
#
# VENV is a Python environment with os-ken 3.1.1 (created if missing), RESULTS the file for one line per case,
# SUITE a folder below os_ken/tests/switch such as `of13/action`. The tester's own switch is the stock one.
# Without SLUICED the stock switch is the target, too. Everything runs in its own namespace, which is removed
# with the script.
set -euo pipefail

venv=$1 results=$2 suite=$3 sluiced=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
# Two namespaces: two stock switches in one would use the same device name.
declare -A ns=([target]=sl-$$-osken1 [tester]=sl-$$-osken2)
run=$(mktemp -d "/tmp/sl-$$-osken.XXXXXX")
pids=()

clean() {
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    for end in target tester; do
        ip netns delete "${ns[$end]}" 2>/dev/null || true
    done
    rm -rf "$run"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$here/controllers.sh" "$venv" >&2

# A switch with run directory $run/$1; the daemon is $2.
start_switch() {
    local dir=$run/$1 daemon=$2
    mkdir -p "$dir"
    if [ "$daemon" = stock ]; then
        ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
        OVS_RUNDIR=$dir OVS_LOGDIR=$dir ip netns exec "${ns[$1]}" ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" \
            --unixctl="$dir/db.ctl" -vconsole:off &
        pids+=($!)
        wait_for_socket "$dir/db.sock"
        OVS_RUNDIR=$dir OVS_LOGDIR=$dir ip netns exec "${ns[$1]}" ovs-vswitchd "unix:$dir/db.sock" --unixctl="$dir/vs.ctl" \
            -vconsole:off &
        pids+=($!)
    else
        OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir OVS_SYSCONFDIR=$dir ip netns exec "${ns[$1]}" "$daemon" -vconsole:off &
        pids+=($!)
        wait_for_socket "$dir/db.sock"
    fi
}

wait_for_socket() {
    for _ in $(seq 100); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    echo "osken: no socket $1" >&2
    exit 1
}

# A bridge with datapath id $2 and the ports $1{1,2,3}.
bridge() {
    local vsctl=(ovs-vsctl --timeout=20 "--db=unix:$run/$1/db.sock") n
    "${vsctl[@]}" add-br "$1" -- set bridge "$1" datapath_type=netdev "other_config:datapath-id=$(printf %016x "$2")" \
        fail_mode=secure "protocols=$protocol" -- set-controller "$1" tcp:10.99.0.2:6633 \
        -- set controller "$1" max_backoff=1000
    for n in 1 2 3; do
        "${vsctl[@]}" add-port "$1" "$1$n" -- set interface "$1$n" "ofport_request=$n"
    done
}

case $suite in
of10*) protocol=OpenFlow10 version=openflow10 ;;
of14*) protocol=OpenFlow14 version=openflow14 ;;
*) protocol=OpenFlow13 version=openflow13 ;;
esac
for end in target tester; do
    ip netns add "${ns[$end]}"
    ip -n "${ns[$end]}" link set lo up
done
# A veth pair between both, without offloads that only the kernel's other end could complete.
cable() {
    ip -n "${ns[target]}" link add "target$1" type veth peer name "tester$1" netns "${ns[tester]}"
    for end in target tester; do
        ip netns exec "${ns[$end]}" sysctl -qw "net.ipv6.conf.$end$1.disable_ipv6=1"
        ip netns exec "${ns[$end]}" ethtool -K "$end$1" tx off rx off tso off gso off gro off >/dev/null
        ip -n "${ns[$end]}" link set "$end$1" up
    done
}
for n in 1 2 3 ctl; do
    cable "$n"
done
ip -n "${ns[target]}" addr add 10.99.0.1/24 dev targetctl
ip -n "${ns[tester]}" addr add 10.99.0.2/24 dev testerctl
start_switch target "${sluiced:-stock}"
start_switch tester stock
bridge target 1
bridge tester 2

cases=$(echo "$venv"/lib/python3*/site-packages/os_ken/tests/switch)
OSKEN_HUB_TYPE=eventlet ip netns exec "${ns[tester]}" "$venv/bin/osken-manager" \
    --ofp-tcp-listen-port 6633 --test-switch-dir "$cases/$suite" --test-switch-target-version "$version" \
    --test-switch-tester-version "$version" --test-switch-interval 1 "$cases/tester.py" >"$run/log" 2>&1 &
manager=$!
pids+=("$manager")
for _ in $(seq "${OSKEN_LIMIT_S:-2400}"); do
    if grep -qs '^OK([0-9]*) ' "$run/log" || ! kill -0 "$manager" 2>/dev/null; then
        break
    fi
    sleep 1
done
cp "$run/log" "$results"
grep -h 'OK(\|ERROR(' "$results" | tail -1 >&2
grep -q '^OK([0-9]*) ' "$results"
