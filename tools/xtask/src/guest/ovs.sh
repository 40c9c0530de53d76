# Run in the guest, by the stage `guest`: the stock switch on the kernel datapath, between two hosts. It shows that the guest has
# what the kernel datapath needs, and that the stock switch, which others are held against, works on it.
set -eu

dir=/run/sluice-stock
export OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir OVS_SYSCONFDIR=$dir
in_switch="ip netns exec switch"

say() { echo "guest: $*"; }

die() {
    say "FAILED: $*"
    [ ! -f "$dir/ovs-vswitchd.log" ] || tail -n 20 "$dir/ovs-vswitchd.log"
    exit 1
}

for program in ovs-vswitchd ovs-vsctl ovsdb-server ovsdb-tool ovs-dpctl ip ping; do
    if ! command -v $program >/dev/null; then
        echo "SKIP: guest: not installed: $program (scripts/setup.sh check)"
        [ "${SLUICE_NO_SKIP:-0}" != 1 ]
        exit
    fi
done

# The name of the family is asked for, and the module comes.
ovs-dpctl show >/dev/null 2>&1 || die "ovs-dpctl finds no datapath family"
[ -d /sys/module/openvswitch ] || die "openvswitch is not loaded"
say "kernel $(uname -r), openvswitch loaded"

mkdir -p $dir
ip netns add switch
# The stock switch counts the processors once in ten seconds of the machine's clock, which begins at zero: started earlier, it
# believes that there are none, and has no handler.
while read -r uptime _ </proc/uptime && [ "${uptime%.*}" -lt 12 ]; do
    sleep 0.2
done
ovsdb-tool create $dir/conf.db /usr/share/openvswitch/vswitch.ovsschema
$in_switch ovsdb-server $dir/conf.db --remote=punix:$dir/db.sock --pidfile --detach -vconsole:off
$in_switch ovs-vswitchd unix:$dir/db.sock -vconsole:off --pidfile --detach --log-file
vsctl="ovs-vsctl --timeout=60 --db=unix:$dir/db.sock"
$vsctl --no-wait init
$vsctl add-br br0 -- set bridge br0 datapath_type=system
for n in 1 2; do
    ip netns add host$n
    ip -n host$n link add eth0 type veth peer name port$n netns switch
    ip -n host$n addr add 10.0.0.$n/24 dev eth0
    ip -n host$n link set eth0 up
    ip -n switch link set port$n up
    $vsctl add-port br0 port$n
done
ip netns exec host1 ping -q -c 1 -w 60 10.0.0.2 >/dev/null || die "no ping passes"
ip netns exec host1 ping -q -c 10 -i 0.2 -w 60 10.0.0.2 >/dev/null || die "pings are lost"
$in_switch ovs-dpctl show system@ovs-system | grep -q ': port2$' || die "the kernel datapath has no port2"
$in_switch ovs-dpctl dump-flows system@ovs-system | grep -q 'eth_type(0x0800).*packets:[1-9]' ||
    die "no flow of the kernel datapath forwards IPv4"
say "the stock switch forwards on the kernel datapath: $(ovs-vswitchd --version | head -n 1)"
