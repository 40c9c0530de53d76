//! Commands of `ovs-ofctl` whose answers must be those of the stock switch in every version of OpenFlow.

/// The commands, run in order on an empty bridge. A rule that a version or the tool refuses is part of the comparison.
pub(crate) const VERBS: &str = "\
del-flows br0
show br0
add-flow br0 table=1,cookie=0x12,priority=5,idle_timeout=60,tcp,tcp_dst=80,in_port=1,dl_vlan=7,actions=output:2
add-flow br0 table=2,cookie=0x13,udp,nw_src=10.0.0.0/8,actions=mod_nw_dst:1.2.3.4,set_queue:3,output:LOCAL
add-flow br0 table=2,cookie=0x14,ipv6,ipv6_src=fe80::/10,actions=set_field:fe80::1->ipv6_dst,output:1
add-flow br0 table=3,check_overlap,send_flow_rem,reset_counts,arp,actions=normal
add-flow br0 table=3,check_overlap,arp,arp_tpa=1.2.3.4,actions=drop
add-flow br0 table=3,no_packet_counts,icmp,icmp_type=8,actions=drop
add-flow br0 table=4,importance=7,tun_id=5,actions=set_tunnel:6,dec_ttl,flood
add-flow br0 table=4,ip,tun_id=5,actions=set_tunnel:6,dec_ttl,flood
add-flow br0 table=4,ip,tun_id=6,actions=move:NXM_NX_REG1[]->NXM_NX_REG2[],load:3->NXM_NX_REG3[0..7],output:1
add-flow br0 table=4,ip,tun_id=7,actions=set_field:0x3/0xf->reg5,set_field:9->reg6,enqueue:1:5
add-flow br0 table=5,metadata=5,actions=write_metadata:7/0xf,goto_table:9
add-flow br0 table=5,reg1=5,actions=learn(table=6,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])
add-flow br0 table=6,actions=mod_tp_dst:5
add-flow br0 table=6,ip,actions=mod_vlan_vid:7,mod_nw_tos:4
add-flow br0 table=6,ip,dl_vlan=9,actions=set_vlan_vid:7,set_vlan_pcp:1,mod_nw_ecn:2,mod_nw_ttl:9
add-flow br0 table=6,tcp,vlan_tci=0,actions=mod_tp_src:5,push_vlan:0x8100,set_field:4100->vlan_vid
add-flow br0 table=6,dl_vlan_pcp=3,actions=mod_dl_src:00:00:00:00:00:09,strip_vlan,output:1
add-flow br0 table=6,actions=output:65000
add-flow br0 table=7,actions=write_actions(mod_nw_src:1.2.3.4,output:1)
add-flow br0 table=7,dl_src=00:00:00:00:00:02/00:00:00:00:00:ff,nw_ecn=1,ip,actions=in_port,all
add-flow br0 table=7,dl_type=0x8847,mpls_label=5,actions=controller(max_len=60,id=4)
mod-flows br0 table=8,cookie=0x99,udp,actions=output:1
mod-flows br0 table=2,cookie=0x99,udp,nw_src=10.0.0.0/8,actions=output:1
--strict mod-flows br0 table=8,cookie=0x98,priority=3,tcp,actions=output:1
mod-flows br0 table=2,cookie=0x14/-1,ipv6,actions=output:2
add-flow br0 table=2,cookie=0x77,udp,nw_src=10.0.0.0/8,actions=output:2
--strict del-flows br0 table=2,cookie=0x77/-1,udp
dump-flows br0
dump-flows br0 table=2
dump-flows br0 table=6,ip
dump-flows br0 out_port=2
--no-stats dump-flows br0 cookie=0x12/-1
dump-aggregate br0
dump-aggregate br0 table=2
dump-table-desc br0
dump-ports br0
dump-ports br0 1
dump-ports-desc br0
dump-ports-desc br0 1
mod-port br0 p1 noflood
mod-port br0 p1 no-packet-in
dump-ports-desc br0 1
mod-port br0 p1 flood
mod-port br0 p1 packet-in
mod-port br0 77 down
get-frags br0
set-frags br0 drop
get-frags br0
set-frags br0 normal
add-meter br0 meter=3,pktps,stats,band=type=drop,rate=7
dump-meters br0
add-flow br0 table=9,actions=meter:3,output:1
dump-flows br0 table=9
del-meters br0
dump-flows br0 table=9
add-group br0 group_id=1,type=select,bucket=weight=5,output:1,bucket=weight=6,output:2
add-group br0 group_id=1,type=all,bucket=output:1
add-group br0 group_id=2,type=ff,bucket=watch_port:1,output:1
mod-group br0 group_id=2,type=all,bucket=output:2
insert-buckets br0 group_id=2,command_bucket_id=last,bucket=bucket_id:9,output:1
insert-buckets br0 group_id=1,command_bucket_id=first,bucket=bucket_id:7,weight:3,output:2
insert-buckets br0 group_id=2,command_bucket_id=first,bucket=bucket_id:8,weight:3,output:2
dump-groups br0
dump-groups br0 1
dump-group-stats br0
add-flow br0 table=9,actions=group:1
dump-flows br0 table=9
del-groups br0 group_id=1
dump-flows br0 table=9
del-groups br0
packet-out br0 in_port=1,packet=PACKET,actions=resubmit(,60)
packet-out br0 in_port=controller,packet=ARP,actions=table
packet-out br0 in_port=65400,packet=ARP,actions=table
queue-stats br0 77
queue-get-config br0 77
probe br0
dump-tables br0
dump-table-features br0
mod-table br0 3 name:acl
mod-table br0 4 name:
mod-table br0 3 evict
dump-tables br0
dump-table-features br0
mod-table br0 acl name:
mod-table br0 3 noevict
--bundle add-flow br0 table=10,tcp,actions=output:1
--bundle add-flows br0 -
--bundle mod-flows br0 table=21,actions=output:2
dump-flows br0 table=21
replace-flows br0 -
diff-flows br0 -
dump-flows br0
del-flows br0
";
