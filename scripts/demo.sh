#!/usr/bin/env bash
# Demonstrates the switch without any part of Open vSwitch: starts sluiced with its own database in a
# namespace, connects three hosts (namespaces) to a bridge, sends real traffic and shows the switch's view of
# it. Leaves nothing behind, also when interrupted.
#
# SLUICE_BIN_DIR: folder of `sluiced` and `sluice` (set by `make demo`).
set -euo pipefail

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR must name the folder of sluiced and sluice; run: make demo}
id=$$
work=$(mktemp -d /tmp/sluice-demo.XXXXXX)
switch=sl-demo-$id-sw
hosts=(sl-demo-$id-h1 sl-demo-$id-h2 sl-demo-$id-h3)
pids=()

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }
in_switch() { ip netns exec "$switch" "$@"; }
in_host() { local n=$1; shift; ip netns exec "${hosts[$((n - 1))]}" "$@"; }
# The background process itself, not a shell around it, so that its id ends it.
beside() { local ns=$1; shift; ip netns exec "$ns" "$@" & pids+=($!); }
# The switch's command line, shown as a user would type it.
sluice() { printf '\033[2m$ sluice %s\033[0m\n' "$*"; in_switch "$bin/sluice" "$@"; }

cleanup() {
    trap - EXIT INT TERM HUP
    local pid ns
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    for ns in "${hosts[@]}" "$switch"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[ "$(id -u)" = 0 ] || { echo "the demo makes network namespaces: run it as root" >&2; exit 1; }

export OVS_RUNDIR=$work/run OVS_LOGDIR=$work/log OVS_DBDIR=$work/db OVS_SYSCONFDIR=$work/etc
mkdir -p "$OVS_RUNDIR" "$OVS_LOGDIR" "$OVS_DBDIR" "$OVS_SYSCONFDIR"

say "Three hosts, each a network namespace with a veth cable to the switch (offloads as veth has them: on)"
ip netns add "$switch"
in_switch ip link set lo up
for n in 1 2 3; do
    ns=${hosts[$((n - 1))]}
    ip netns add "$ns"
    ip link add "d${id}p$n" netns "$switch" type veth peer name eth0 netns "$ns"
    in_switch ip link set "d${id}p$n" name "port$n" up
    in_host $n ip link set lo up
    in_host $n ip addr add "10.0.0.$n/24" dev eth0
    in_host $n ip link set eth0 up
    echo "host $n: 10.0.0.$n on port$n"
done

say "Starting the switch: sluiced, serving its own database"
beside "$switch" "$bin/sluiced" --pidfile --log-file "-vconsole:off"
daemon=${pids[-1]}
for _ in $(seq 100); do [ -S "$OVS_RUNDIR/db.sock" ] && break; sleep 0.1; done
kill -0 "$daemon" && [ -S "$OVS_RUNDIR/db.sock" ] || { echo "sluiced did not start:" >&2; cat "$OVS_LOGDIR"/*.log >&2; exit 1; }
sluice vsctl add-br br0 -- set bridge br0 datapath_type=netdev
for n in 1 2 3; do sluice vsctl add-port br0 "port$n"; done
sluice vsctl show

say "Hosts reach each other"
for _ in $(seq 50); do in_host 1 ping -c1 -W1 10.0.0.2 >/dev/null 2>&1 && break; sleep 0.1; done
run in_host 1 ping -c 3 -i 0.2 10.0.0.2
run in_host 3 ping -c 2 -i 0.2 10.0.0.1

say "Rates between host 1 and host 2"
beside "${hosts[1]}" iperf3 -s -1 -p 5201 >"$work/iperf1" 2>&1
sleep 0.5
in_host 1 iperf3 -c 10.0.0.2 -p 5201 -t 2 -f g | grep -E 'sender|receiver'
beside "${hosts[1]}" iperf3 -s -1 -p 5202 >"$work/iperf2" 2>&1
sleep 0.5
# Losses of UDP datagrams: at the switch's ports, by their counters, and at the receiver's socket, by its
# kernel.
switch_lost() {
    in_switch "$bin/sluice" appctl coverage/show | awk '/drop/ { sub(/.*total: /, ""); sum += $0 } END { print sum + 0 }'
}
socket_lost() { in_host 2 awk '/^Udp: [0-9]/ { print $6 }' /proc/net/snmp; }
lost_before="$(switch_lost) $(socket_lost)"
in_host 1 iperf3 -c 10.0.0.2 -p 5202 -u -b 1G -l 1400 -t 2 -f g | grep -E 'sender|receiver'
read -r switch_before socket_before <<<"$lost_before"
echo "UDP does not wait for its receiver: $(($(switch_lost) - switch_before)) datagrams were lost in the switch," \
    "$(($(socket_lost) - socket_before)) at the receiver's full socket buffer"

say "A rule changes the path of live traffic: what host 1 sends to host 2 is answered by host 3"
mac() { in_host "$1" cat /sys/class/net/eth0/address; }
beside "${hosts[0]}" ping -i 0.2 -c 20 10.0.0.2 >"$work/ping.txt"
sleep 1
sluice ofctl add-flow br0 "priority=100,ip,in_port=1,nw_dst=10.0.0.2,actions=mod_dl_dst:$(mac 3),mod_nw_dst:10.0.0.3,output:3"
sluice ofctl add-flow br0 "priority=100,ip,in_port=3,nw_dst=10.0.0.1,actions=mod_dl_src:$(mac 2),mod_nw_src:10.0.0.2,output:1"
in_host 2 ip addr del 10.0.0.2/24 dev eth0
wait "${pids[-1]}" || true
echo "host 2 has given its address up in between, and host 1 went on:"
tail -n 3 "$work/ping.txt"
sluice ofctl dump-flows br0
sluice appctl ofproto/trace br0 "in_port=1,icmp,dl_src=$(mac 1),dl_dst=$(mac 2),nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64"

say "What the switch learned and installed"
sluice appctl fdb/show br0
sluice appctl dpctl/dump-flows
sluice appctl dpif-netdev/pmd-stats-show
sluice status

say "A firewall that lets replies in and nothing else, and a gateway that shows host 1 as 10.0.0.100"
sluice ofctl del-flows br0
sluice ofctl add-flow br0 "priority=10,arp,actions=NORMAL"
sluice ofctl add-flow br0 "ip,in_port=1,actions=ct(commit,zone=1,nat(src=10.0.0.100:20000-30000),table=1)"
sluice ofctl add-flow br0 "ip,in_port=3,actions=ct(zone=1,nat,table=1)"
sluice ofctl add-flow br0 "table=1,in_port=1,ip,ct_state=+trk-inv,actions=3"
sluice ofctl add-flow br0 "table=1,in_port=3,ip,ct_state=+trk+est+rpl,actions=1"
in_host 3 ip neigh replace 10.0.0.100 lladdr "$(mac 1)" dev eth0
for _ in $(seq 50); do in_host 1 ping -c1 -W1 10.0.0.3 >/dev/null 2>&1 && break; sleep 0.1; done
run in_host 1 ping -c 2 -i 0.2 10.0.0.3
beside "${hosts[2]}" iperf3 -s -1 -p 5203 >"$work/iperf3" 2>&1
sleep 0.5
in_host 1 iperf3 -c 10.0.0.3 -p 5203 -t 1 -f g | grep -E 'sender|receiver'
echo "host 3 served: $(grep -m1 -o 'Accepted connection from [^ ,]*' "$work/iperf3")"
beside "${hosts[0]}" iperf3 -s -1 -p 5204 >"$work/iperf4" 2>&1
if in_host 3 timeout 2 bash -c '</dev/tcp/10.0.0.1/5204' 2>/dev/null; then
    echo "host 3 began a connection: the firewall failed" >&2
    exit 1
fi
echo "host 3 cannot begin a connection to host 1"
sluice appctl dpctl/dump-conntrack
sluice ofctl del-flows br0
sluice ofctl add-flow br0 "priority=0,actions=NORMAL"

say "An overlay: a machine behind the kernel's own vxlan device, reached by a tunnel in user space"
hosts+=("sl-demo-$id-h4")
ip netns add "${hosts[3]}"
ip link add "d${id}p4" netns "$switch" type veth peer name eth0 netns "${hosts[3]}"
in_switch ip link set "d${id}p4" name uplink up
# Its address is on the bridge's device alone.
in_switch sysctl -q -w net.ipv4.conf.all.arp_ignore=1
in_host 4 ip addr add 192.0.2.4/24 dev eth0
in_host 4 ip link set eth0 up
if in_host 4 ip link add vx0 type vxlan id 5 local 192.0.2.4 remote 192.0.2.1 dstport 4789 2>/dev/null; then
    in_host 4 ip addr add 10.0.0.4/24 dev vx0
    in_host 4 ip link set vx0 up
    sluice vsctl add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy uplink
    for _ in $(seq 50); do in_switch ip link set br-phy up 2>/dev/null && break; sleep 0.1; done
    in_switch ip addr add 192.0.2.1/24 dev br-phy
    sluice vsctl add-port br0 vx0 -- set interface vx0 type=vxlan options:remote_ip=192.0.2.4 options:key=5
    for _ in $(seq 50); do in_host 1 ping -c1 -W1 10.0.0.4 >/dev/null 2>&1 && break; sleep 0.1; done
    run in_host 1 ping -c 2 -i 0.2 10.0.0.4
    sluice appctl dpctl/dump-flows | grep -o 'tnl_push(.*' | head -n 1 || true
else
    echo "SKIP: this kernel has no vxlan device"
fi

say "What first packets cost: each of these starts a flow of its own"
sluice ofctl add-flow br0 "priority=200,udp,tp_dst=9,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],NORMAL"
beside "${hosts[2]}" bash -c 'exec 9<> <(:); sleep 1
    for n in $(seq 500); do exec 3<>/dev/udp/10.0.0.1/9; echo >&3; exec 3>&-; read -rt 0.004 -u 9; done' 2>/dev/null
sluice upcall-cost --summary --duration 4s

say "What to try next"
cat <<'NEXT'
make install                                    # sluiced and sluice into /usr/local
sluiced --pidfile --log-file --detach           # serves its own database; or name one: unix:/var/run/openvswitch/db.sock
sluice vsctl add-br br0 -- add-port br0 eth1    # ovs-vsctl, ovs-ofctl and ovs-appctl of OVS work as well
sluice top                                      # threads, ports, flows and upcalls, live
sluice upcall-cost --duration 10s               # the cost of first packets, stage by stage
make bench                                      # figures beside Open vSwitch, OVS-DPDK and the Linux bridge
README.md, "From Open vSwitch in five lines"    # for a machine that runs Open vSwitch today
NEXT

say "Done: stopping the switch and removing the hosts"
