# Completion of sluice for bash.
# Made from the rows of crates/sluiced/src/appctl by a test. SLUICE_WRITE_PAGES=1 writes this file.

_sluice_commands='autoattach/show-isid
autoattach/statistics
autoattach/status
bfd/set-forwarding
bfd/show
bond/disable-member
bond/enable-member
bond/hash
bond/list
bond/migrate
bond/set-active-member
bond/show
bridge/dump-flows
bridge/reconnect
cfm/set-fault
cfm/show
coverage/read-counter
coverage/show
dpctl/add-dp
dpctl/add-flow
dpctl/add-flows
dpctl/add-if
dpctl/cache-get-size
dpctl/cache-set-size
dpctl/ct-bkts
dpctl/ct-del-limits
dpctl/ct-disable-tcp-seq-chk
dpctl/ct-enable-tcp-seq-chk
dpctl/ct-get-limits
dpctl/ct-get-maxconns
dpctl/ct-get-nconns
dpctl/ct-get-sweep-interval
dpctl/ct-get-tcp-seq-chk
dpctl/ct-set-limits
dpctl/ct-set-maxconns
dpctl/ct-set-sweep-interval
dpctl/ct-stats-show
dpctl/del-dp
dpctl/del-flow
dpctl/del-flows
dpctl/del-if
dpctl/dump-conntrack
dpctl/dump-conntrack-exp
dpctl/dump-dps
dpctl/dump-flows
dpctl/flush-conntrack
dpctl/get-flow
dpctl/ipf-get-status
dpctl/ipf-set-disabled
dpctl/ipf-set-enabled
dpctl/ipf-set-max-nfrags
dpctl/ipf-set-min-frag
dpctl/list-commands
dpctl/mod-flow
dpctl/mod-flows
dpctl/normalize-actions
dpctl/offload-stats-show
dpctl/parse-actions
dpctl/set-if
dpctl/show
dpif-dummy/change-port-number
dpif-netdev/bond-show
dpif-netdev/dpif-impl-get
dpif-netdev/dpif-impl-set
dpif-netdev/miniflow-parser-get
dpif-netdev/miniflow-parser-set
dpif-netdev/pmd-perf-log-set
dpif-netdev/pmd-perf-show
dpif-netdev/pmd-rxq-rebalance
dpif-netdev/pmd-rxq-show
dpif-netdev/pmd-sleep-show
dpif-netdev/pmd-stats-clear
dpif-netdev/pmd-stats-show
dpif-netdev/subtable-lookup-info-get
dpif-netdev/subtable-lookup-prio-get
dpif-netdev/subtable-lookup-prio-set
dpif-netlink/dispatch-mode
dpif/dump-dps
dpif/dump-flows
dpif/get-flow
dpif/set-dp-features
dpif/show
dpif/show-dp-features
drops/show
exit
fdb/add
fdb/del
fdb/flush
fdb/show
fdb/stats-clear
fdb/stats-show
lacp/show
lacp/show-stats
list-commands
mdb/flush
mdb/show
memory/show
netdev-dummy/conn-state
netdev-dummy/ip4addr
netdev-dummy/ip6addr
netdev-dummy/receive
netdev-dummy/set-admin-state
odp-execute/action-impl-set
odp-execute/action-impl-show
ofproto/detrace
ofproto/list
ofproto/list-tunnels
ofproto/trace
ofproto/trace-packet-out
ovs/route/add
ovs/route/del
ovs/route/lookup
ovs/route/rule/show
ovs/route/show
ovsdb-server/compact
qos/show
qos/show-types
revalidator/pause
revalidator/purge
revalidator/resume
revalidator/wait
rstp/show
rstp/tcn
set-options
sluice/handover
sluice/help
sluice/loop-clear
sluice/loop-show
sluice/status
sluice/version
stp/show
stp/tcn
time/stop
time/warp
tnl/arp/aging
tnl/arp/flush
tnl/arp/set
tnl/arp/show
tnl/egress_port_range
tnl/neigh/aging
tnl/neigh/flush
tnl/neigh/retrans_time
tnl/neigh/set
tnl/neigh/show
tnl/ports/show
upcall/disable-megaflows
upcall/disable-ufid
upcall/enable-megaflows
upcall/enable-ufid
upcall/set-flow-limit
upcall/show
version
vlog/close
vlog/disable-rate-limit
vlog/enable-rate-limit
vlog/list
vlog/list-pattern
vlog/reopen
vlog/set'

# Words that a command takes.
_sluice_arguments() {
    case $1 in
    bfd/set-forwarding) echo 'false normal true' ;;
    cfm/set-fault) echo 'false normal true' ;;
    dpctl/ct-bkts) echo 'gt=' ;;
    dpctl/ct-del-limits) echo 'zone=' ;;
    dpctl/ct-get-limits) echo 'zone=' ;;
    dpctl/ct-set-limits) echo 'default= zone=' ;;
    dpctl/ct-stats-show) echo '-m zone=' ;;
    dpctl/del-flow) echo '-s' ;;
    dpctl/dump-conntrack) echo '-m -s zone=' ;;
    dpctl/dump-conntrack-exp) echo 'zone=' ;;
    dpctl/dump-flows) echo '--names --no-names -m filter= pmd= type=' ;;
    dpctl/flush-conntrack) echo 'labels= mark= zone=' ;;
    dpctl/get-flow) echo '--names --no-names -m' ;;
    dpctl/ipf-get-status) echo '-m' ;;
    dpctl/ipf-set-disabled) echo 'v4 v6' ;;
    dpctl/ipf-set-enabled) echo 'v4 v6' ;;
    dpctl/ipf-set-min-frag) echo 'v4 v6' ;;
    dpctl/mod-flow) echo '--clear --may-create -s' ;;
    dpctl/show) echo '-s' ;;
    dpif-netdev/miniflow-parser-set) echo '-pmd' ;;
    dpif-netdev/pmd-perf-log-set) echo '-a -b -e -ne -q -us off on' ;;
    dpif-netdev/pmd-perf-show) echo '-it -ms -nh -pmd' ;;
    dpif-netdev/pmd-rxq-show) echo '-pmd -secs' ;;
    dpif-netdev/pmd-stats-clear) echo '-pmd' ;;
    dpif-netdev/pmd-stats-show) echo '-pmd' ;;
    dpif/dump-flows) echo '--names --no-names -m' ;;
    dpif/get-flow) echo '--names --no-names -m' ;;
    dpif/set-dp-features) echo '--force' ;;
    exit) echo '--cleanup' ;;
    netdev-dummy/receive) echo '--len --qid' ;;
    netdev-dummy/set-admin-state) echo 'down up' ;;
    ofproto/detrace) echo 'pmd=' ;;
    ofproto/trace) echo '-generate' ;;
    ofproto/trace-packet-out) echo '-consistent -generate' ;;
    ovs/route/add) echo 'pkt_mark= src=' ;;
    ovs/route/del) echo 'pkt_mark=' ;;
    ovs/route/lookup) echo 'pkt_mark=' ;;
    ovs/route/rule/show) echo '-6' ;;
    ovs/route/show) echo 'table=' ;;
    set-options) echo '--format json text' ;;
    tnl/ports/show) echo '-v' ;;
    esac
}

_sluice() {
    local IFS=$' \t\n' cur=${COMP_WORDS[COMP_CWORD]} prefix= command= at
    local found
    found=$(sluice complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    mapfile -t COMPREPLY < <([ -z "$found" ] || printf '%s\n' "$found")
    [ "$COMP_CWORD" -gt 1 ] || return
    case ${COMP_WORDS[1]} in
    appctl) ;;
    dpctl) prefix=dpctl/ ;;
    *) return ;;
    esac
    for ((at = 2; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        -t | -T | -f | --target | --timeout | --format) ((at++)) ;;
        -*) ;;
        *) command=$prefix${COMP_WORDS[at]} && break ;;
        esac
    done
    if [ -n "$command" ]; then
        COMPREPLY+=($(compgen -W "$(_sluice_arguments "$command")" -- "$cur"))
    elif [ -z "$found" ]; then
        # No switch runs.
        COMPREPLY=($(compgen -W "$_sluice_commands" -- "$prefix$cur"))
        COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    fi
}
complete -o default -F _sluice sluice
