//! Tests of datapath text: lines recorded from OVS, round trips, hostile text, the corpus.

use super::*;
use crate::actions::*;
use crate::actions::{
    CheckPktLen, CloneAction, CtClear, DecTtl, DropAction, HashAction, Meter, Output, PopEth, PopMpls,
    PopVlan, PushEth, PushMpls, PushVlan, Recirc, Sample, Trunc, Userspace,
};
use crate::cookie::tests::sample_actions;
use crate::offload::{OffloadLayer, Offloaded};
use crate::ops::FlowStats;
use crate::slow_path::slow_reasons;
use crate::upcall::{ControllerCookie, UserCookie};
use crate::{DpAction, FlowRecord, XlateDrop};
use flow::{FlowKey, KeyMask, RecircId, Ufid};
use proptest::prelude::*;

struct Names;

impl PortNames for Names {
    fn name(&self, port: DpPort) -> Option<String> {
        match port.0 {
            100 => Some("br0".into()),
            1 | 2 => Some(format!("p{port}")),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<DpPort> {
        match name {
            "br0" => Some(DpPort(100)),
            "p1" => Some(DpPort(1)),
            "p2" => Some(DpPort(2)),
            _ => None,
        }
    }
}

/// Keys in brief text.
const KEYS: &[&str] = &[
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,proto=6,ttl=64,frag=no),tcp(dst=80)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0806)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,dst=192.168.0.2,proto=6,tos=0/0x3,ttl=64,frag=no),tcp(src=1,dst=80/0xff),tcp_flags(syn|ack)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(dst=192.168.0.2,proto=6,tos=0,ttl=64/0xf0,frag=first),tcp(src=1,dst=81),tcp_flags(+syn-ack)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=17,tos=0,ttl=64,frag=later)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=1,tos=0x10,ttl=64,frag=no),icmp(type=8)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(src=10.1.2.3,proto=1,frag=no),icmp(type=3,code=0))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5/0xf,pcp=3/0x0),encap(eth_type(0x86dd),ipv6(src=2001:db8::1,dst=2001:db8::2/ffff::,label=0x5,proto=58,tclass=0x70,hlimit=64,frag=no),icmpv6(type=135,code=0),nd(target=fe80::1,sll=50:54:00:00:00:01,tll=50:54:00:00:00:02))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=136,code=0),nd_ext(nd_reserved=0x20,nd_options_type=2/0x3)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x88a8),vlan(vid=5,pcp=3),encap(eth_type(0x8100),vlan(vid=7,pcp=0),encap(eth_type(0x1234)))",
    "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth_type(0/0xffff)",
    "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0/0xffff))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:02:03:04:05,tha=00:00:00:00:00:00)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=100/0xff,tc=7/1,ttl=64/0x0,bos=1/1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=100,tc=7,ttl=64,bos=0,label=101,tc=7,ttl=64,bos=1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=100/0x0,tc=7/0,ttl=64/0x0,bos=0/1,label=101/0xfffff,tc=7/7,ttl=64/0xff,bos=1/1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=100/0x0,tc=7/0,ttl=64/0x0,bos=0/1,label=101/0x0,tc=7/0,ttl=64/0x0,bos=0/1)",
    "recirc_id(0x2),dp_hash(0x3/0xff),skb_priority(0x5),in_port(1),skb_mark(0x7/0xf),ct_state(-inv+trk),ct_zone(0x5),ct_mark(0x1/0x1),ct_label(0x2),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07/ff:ff:00:00:00:00),eth_type(0x1235)",
    "recirc_id(0),tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(df|csum|key)),in_port(1),packet_type(ns=0,id=0),eth_type(0x1235)",
    "recirc_id(0),tunnel(tun_id=0x5,src=1.1.1.5,dst=2.2.2.2,ttl=64,geneve({class=0xffff,type=0,len=4,0/0xff}{class=0xffff,type=0x3,len=4,0}{class=0xffff,type=0x4,len=0}),flags(df|csum|key)),in_port(1),packet_type(ns=0,id=0),eth_type(0x1235)",
    "recirc_id(0),in_port(1),ct_tuple4(src=1.1.1.1,dst=2.2.2.2/255.0.0.0,proto=6,tp_src=1,tp_dst=2/0xff),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0),tunnel(tun_id=0x5/0xff,ipv6_src=fe80::1,ipv6_dst=fe80::2/ffff::,tos=0x4,ttl=64,tp_src=1,tp_dst=4789,vxlan(gbp(id=5,flags=0x8)),flags(-df+csum+key)),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x1001)",
    "recirc_id(0),tunnel(tun_id=0x123456,src=1.1.2.92,dst=1.1.2.88,gtpu(flags=0x30/0xf0,msgtype=255),flags(-df-csum+key)),in_port(2152),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0),tunnel(tun_id=0x1,src=1.1.2.92,dst=1.1.2.88,erspan(idx=0x3/0),flags(-df-csum+key)),in_port(2),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0),tunnel(tun_id=0x1,src=1.1.2.92,dst=1.1.2.88,erspan(ver=1,idx=0x3),flags(-df-csum+key)),in_port(2),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0),tunnel(tun_id=0x2,src=1.1.2.92,dst=1.1.2.88,erspan(ver=2,dir=1,hwid=0x7/0xf),flags(-df-csum+key)),in_port(2),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0),in_port(1),ct_state(+new-est-rel-rpl-inv+trk-snat-dnat),ct_tuple6(src=fe80::1,dst=fe80::2,proto=6,src_port=1,dst_port=2/0xf),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x86dd),ipv6(frag=no)",
    "recirc_id(0),in_port(1),ct_state(-new-est-rel-rpl-inv-trk-snat-dnat),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x1003)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x86dd),ipv6(label=0x5/0xff,proto=58,tclass=0/0x3,frag=no),icmpv6(type=128,code=0))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=9),tcp_flags(-ns+[200])",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(proto=6,frag=no),tcp_flags(0)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=0,pcp=0),encap(eth_type(0x1234))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x894f),nsh(mdtype=1,np=1,spi=0x5,c1=0x1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x894f),nsh(flags=0,ttl=63,mdtype=2,spi=0x5)",
    "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth_type(0x894f),nsh(flags=0x00/0x01)",
    "recirc_id(0xf),in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no),udp(dst=2)",
    "recirc_id(0xf),in_port(1),packet_type(ns=1,id=0x894f),eth_type(0x894f),nsh(np=1)",
];

/// Actions in text.
const ACTIONS: &[&str] = &[
    "set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),2",
    "100,2",
    "drop",
    "push_vlan(vid=5,pcp=0),2",
    "push_vlan(tpid=0x88a8,vid=5,pcp=3,cfi=0),2",
    "pop_vlan,2",
    "set(ipv4(src=1.2.3.4,dst=5.6.7.8/255.255.0.0,tos=0x10,ttl=63)),set(udp(src=7,dst=9)),2",
    "set(sctp(dst=9)),trunc(100),2",
    "set(tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,tos=0x10,ttl=64,tp_dst=4789,flags(df|csum|key))),2",
    "set(tunnel(tun_id=0,ipv6_dst=fe80::2,ttl=64,vxlan(gbp(id=5,flags=0)),flags(key))),2",
    "set(tunnel(tun_id=0x5,dst=2.2.2.2,ttl=64,geneve({class=0xffff,type=0,len=4,0x1234}{class=0x1,type=0x5,len=0}),flags(df|key))),3",
    "set(tunnel(dst=2.2.2.2,ttl=64,geneve({class=0xffff,type=0,len=4,0}),flags(0))),3",
    "set(tunnel(dst=2.2.2.2,ttl=0,flags(0))),2",
    "set(icmp(type=1,code=2)),recirc(0x1a)",
    "sample(sample=50.0%,actions(2)),sample(sample=0.1%,actions(2))",
    "userspace(pid=0,slow_path(controller))",
    "userspace(pid=0,slow_path(controller,action)),clone(push_vlan(vid=1,pcp=1),2),meter(3),2",
    "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=1,rule_cookie=0x1f,controller_id=3,max_len=65535))",
    "set(ipv6(src=fe80::1,label=0x7,tclass=0x3,hlimit=9)),set(nd(target=fe80::2,sll=00:00:00:00:00:01)),2",
    "set(nd_ext(nd_reserved=0x5,nd_options_type=2)),set(nd_ext(nd_reserved=0x50/0xf0)),2",
    "set(eth(src=00:00:00:00:00:01/ff:00:00:00:00:00)),set(ipv6(label=0x7/0xff)),userspace(pid=0,slow_path(0)),1",
    "sample(sample=0.0%,actions(1)),meter(0),recirc(0)",
    "psample(group=12,cookie=0xf020304),psample(group=0),2",
    "sample(sample=50.0%,actions(psample(group=4294967295,cookie=0x100000002))),psample(group=1,cookie=0)",
    "set(arp(sip=1.1.1.1,op=2,sha=00:00:00:00:00:09)),2",
    "set(skb_mark(0x1/0xf)),set(skb_priority(0x9)),set(tcp(src=5/0xff)),2",
    "hash(l4(0)),recirc(0x1)",
    "hash(sym_l4(5)),recirc(0x1)",
    "push_mpls(label=16,tc=0,ttl=64,bos=1,eth_type=0x8847),2",
    "push_mpls(label=1048575,tc=7,ttl=255,bos=0,eth_type=0x8848),pop_mpls(eth_type=0x800),2",
    "set(mpls(label=5,tc=1,ttl=9,bos=1)),2",
    "set(mpls(label=5/0xfffff,tc=0/0,ttl=0/0x0,bos=0/0)),2",
    "ct,recirc(0x1)",
    "ct(commit),2",
    "ct(force_commit,zone=65535,mark=0x1/0xff,label=0/0x123456789abcdef00000000000000001),2",
    "ct(commit,zone=1,mark=0x5/0xffffffff,label=0x5,helper=ftp,timeout=x,nat(src=10.0.0.1-10.0.0.9:1-99,persistent,random)),2",
    "ct(nat),recirc(0x2)",
    "ct(commit,nat(src)),ct(commit,nat(dst,hash)),ct_clear,2",
    "ct(commit,nat(dst=10.0.0.1)),ct(commit,nat(dst=10.0.0.1:80)),ct(commit,nat(src=:1-99)),2",
    "ct(commit,nat(src=fe80::1-fe80::9)),ct(commit,nat(src=[fe80::1]-[fe80::9]:1-99,hash)),ct(commit,nat(dst=[::]:5)),2",
    "pop_eth,push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),2",
    "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=11,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0),push_eth(src=00:00:00:00:00:00,dst=11:22:33:44:55:66),2",
    "pop_eth,push_nsh(flags=0,ttl=63,mdtype=2,np=1,spi=0x1234,si=255,md2=0x10000a041234567820001408fedcba9876543210),push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),2",
    "push_nsh(flags=0,ttl=1,mdtype=2,np=3,spi=0x0,si=255,md2=0),2",
    "pop_eth,pop_nsh(),recirc(0xf)",
    "set(nsh(flags=3,spi=0x7)),2",
    "set(nsh(flags=0x00/0x01,c1=0x7/0x0000000f)),3",
    "add_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8848),add_mpls(label=5,tc=0,ttl=64,bos=0,eth_type=0x8847),2",
    "tnl_push(tnl_port(4791),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x4,ttl=17,frag=0x0),udp(src=0,dst=4791,csum=0xffff),vxlan(flags=0x8000000,vni=0x5)),out_port(100)),1",
    "tnl_push(tnl_port(6081),header(size=58,type=5,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=6081,csum=0x0),geneve(crit,vni=0x4d,options({class=0x102,type=0x80,len=4,0x1234}))),out_port(100)),1",
    "tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x6558),key=0x1c8)),out_port(100)),1",
    "tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x8000,proto=0x6558),csum=0x0)),out_port(100)),1",
    "tnl_push(tnl_port(4789),header(size=70,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=0,dst=4789,csum=0xffff),vxlan(flags=0x8000000,vni=0x7b)),out_port(100)),1",
    "tnl_push(tnl_port(4),header(size=46,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.94,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x3000,proto=0x6558),key=0x1,seq=0x0)),out_port(100)),1",
    "tnl_push(tnl_port(6),header(size=62,type=109,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),gre((flags=0x2000,proto=0x6558),key=0x1c8)),out_port(100)),1",
    "tnl_push(tnl_port(5),header(size=50,type=107,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),erspan(ver=1,sid=0x1,idx=0x3)),out_port(100)),1",
    "tnl_push(tnl_port(5),header(size=54,type=107,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),erspan(ver=2,sid=0x3ff,dir=1,hwid=0x7)),out_port(100)),1",
    "tnl_push(tnl_port(6),header(size=70,type=108,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=1,sid=0x5,idx=0xabcde)),out_port(100)),1",
    "tnl_push(tnl_port(6),header(size=74,type=108,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=2,sid=0x6,dir=0,hwid=0x3f)),out_port(100)),1",
    "tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000003,vni=0x5)),out_port(100)),1",
    "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0),tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000004,vni=0x5)),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(2152),header(size=50,type=110,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x123456)),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(2152),header(size=70,type=110,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=44249,dst=2152,csum=0xffff),gtpu(flags=0x30,msgtype=255,teid=0x7)),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x800),key=0x2)),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000001,vni=0x6)),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(17),header(size=78,type=112,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=0,segs(2001:cafe::92))),out_port(100)),1",
    "pop_eth,tnl_push(tnl_port(17),header(size=94,type=112,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=74565,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=1,segs(2001:cafe::92,2001:cafe::93))),out_port(100)),1",
    "tnl_push(tnl_port(6),header(size=70,type=5,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=0,dst=6081,csum=0x0),geneve(oam,vni=0x1c7)),out_port(1))",
    "tnl_pop(4),1",
    "clone(tnl_pop(4)),1",
    "check_pkt_len(size=200,gt(drop),le(5))",
    "check_pkt_len(size=200,gt(trunc(50),1),le(check_pkt_len(size=100,gt(drop),le(1)))),2",
    "dec_ttl(le_1(drop)),2",
    "dec_ttl(le_1(userspace(pid=0,slow_path(action)))),clone(ct(commit),2)",
];

const VERBOSE: FlowFormat<'_> =
    FlowFormat { verbose: true, packet_types: true, names: &NumbersOnly, extra_info: None };

#[test]
fn recorded_keys_print_as_they_were_read() {
    for text in KEYS {
        let (key, mask) = parse_key_mask(text, &NumbersOnly).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(format_key_mask(&key, &mask, &FlowFormat::brief(&NumbersOnly)), *text);
        let verbose = format_key_mask(&key, &mask, &VERBOSE);
        let again = parse_key_mask(&verbose, &NumbersOnly).unwrap_or_else(|e| panic!("{verbose}: {e}"));
        assert_eq!(again, (key, mask), "{verbose}");
    }
}

#[test]
fn recorded_actions_print_as_they_were_read() {
    for text in ACTIONS {
        let actions = parse_actions(text, &NumbersOnly).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(format_actions(&actions, &NumbersOnly), *text);
    }
    assert_eq!(format_actions(&[], &NumbersOnly), "drop");
    assert_eq!(parse_actions("br0,p2,7", &Names), parse_actions("100,2,7", &NumbersOnly));
    // As accepted by stock tools.
    for (text, shown) in [
        ("ct(),1", "ct,1"),
        ("ct(zone=0),1", "ct,1"),
        ("ct(nat(src),mark=1,commit)", "ct(commit,mark=0x1/0xffffffff,nat(src))"),
        ("ct(commit,nat(hash))", "ct(commit,nat)"),
        ("ct(commit,nat(src=10.0.0.1-10.0.0.1:5-5))", "ct(commit,nat(src=10.0.0.1:5))"),
        ("ct(commit,nat(src=[fe80::1]))", "ct(commit,nat(src=fe80::1))"),
        ("set(mpls(ttl=9))", "set(mpls(label=0/0x0,tc=0/0,ttl=9/0xff,bos=0/0))"),
        ("check_pkt_len(size=200,gt(),le())", "check_pkt_len(size=200,gt(drop),le(drop))"),
    ] {
        assert_eq!(format_actions(&parse_actions(text, &NumbersOnly).unwrap(), &NumbersOnly), shown);
    }
}

/// The record of the first flow in the recorded dump, with its unmasked fields.
fn record() -> FlowRecord {
    let text = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                ipv4(src=10.1.2.3/255.0.0.0,dst=192.168.0.2/0.0.0.0,proto=6,tos=0/0,ttl=64,frag=no),tcp(src=1234/0,dst=80)";
    let (key, mut mask) = parse_key_mask(text, &NumbersOnly).unwrap();
    mask.base.dl_src = [0; 6];
    let actions = parse_actions("set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),2", &NumbersOnly).unwrap();
    let stats = FlowStats { packets: 1, bytes: 54, used_ms: 4_000, tcp_flags: 2 };
    let ufid = Ufid(0xcf25_7829_62ba_490e_8a42_802f_3e99_190e);
    FlowRecord { ufid, key, mask, actions: actions.into(), stats, offloaded: Offloaded::No }
}

#[test]
fn flows_print_as_dpctl_dump_flows_does() {
    let brief = FlowFormat::brief(&NumbersOnly);
    assert_eq!(
        format_flow(&record(), 5_000, &brief),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,proto=6,ttl=64,frag=no),tcp(dst=80), packets:1, bytes:54, used:1.000s, flags:S, actions:set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),2"
    );
    let verbose = FlowFormat {
        verbose: true,
        packet_types: true,
        names: &Names,
        extra_info: Some("miniflow_bits(5,3)"),
    };
    assert_eq!(
        format_flow(&record(), 5_000, &verbose),
        "ufid:cf257829-62ba-490e-8a42-802f3e99190e, recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(p1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05/00:00:00:00:00:00,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,dst=192.168.0.2/0.0.0.0,proto=6,tos=0/0,ttl=64,frag=no),tcp(src=1234/0,dst=80),tcp_flags(0/0), packets:1, bytes:54, used:1.000s, flags:S, dp:ovs, actions:set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),p2, dp-extra-info:miniflow_bits(5,3)"
    );
    for (offloaded, text) in [
        (Offloaded::Partial, ", offloaded:partial, dp:ovs, actions:"),
        (Offloaded::Full(OffloadLayer::Tc), ", offloaded:yes, dp:tc, actions:"),
        (Offloaded::Full(OffloadLayer::Dpdk), ", offloaded:yes, dp:dpdk, actions:"),
    ] {
        let flow = FlowRecord { offloaded, ..record() };
        assert!(format_flow(&flow, 5_000, &verbose).contains(text), "{text}");
        assert!(!format_flow(&flow, 5_000, &brief).contains("dp:"));
    }
    let without_types = FlowFormat { packet_types: false, ..FlowFormat::brief(&NumbersOnly) };
    let any_ethernet = parse_key_mask("in_port(1),eth(),eth_type(0x0806)", &NumbersOnly).unwrap();
    let text = format_key_mask(&any_ethernet.0, &any_ethernet.1, &without_types);
    assert_eq!(text, "recirc_id(0),in_port(1),eth(),eth_type(0x0806)", "as of kernel flows in OVS");
    // Every key, in the order of OVS.
    let ordered = "recirc_id(0x1),dp_hash(0x7),skb_priority(0x1),tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(key)),in_port(2),skb_mark(0x3),ct_state(+est+trk),ct_zone(0x4),ct_mark(0x5),ct_label(0x6),packet_type(ns=0,id=0),eth_type(0x1234)";
    let (key, mask) = parse_key_mask(ordered, &NumbersOnly).unwrap();
    assert_eq!(format_key_mask(&key, &mask, &brief), ordered);
    assert_eq!(
        format_key_mask(&key, &mask, &without_types),
        "recirc_id(0x1),dp_hash(0x7),skb_priority(0x1),tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(key)),in_port(2),\
         skb_mark(0x3),ct_state(+est+trk),ct_zone(0x4),ct_mark(0x5),ct_label(0x6),eth(),eth_type(0x1234)"
    );
    // Without a packet type also on a datapath that has them.
    for text in [
        "recirc_id(0),in_port(1),eth(),eth_type(0x0806)",
        "recirc_id(0),in_port(1),eth(src=00:00:00:00:00:01),eth_type(0x0800),ipv4(src=1.2.3.4)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800))",
        "recirc_id(0),in_port(1),eth_type(0x0800)",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0806)",
    ] {
        let (key, mask) = parse_key_mask(text, &NumbersOnly).unwrap();
        assert_eq!(format_key_mask(&key, &mask, &brief), text);
        let shown = format_key_mask(&key, &mask, &verbose);
        assert_eq!(shown.contains("packet_type(ns=0,id=0)"), text.contains("packet_type"), "{shown}");
        assert_eq!(shown.contains("packet_type(ns=0/0,id=0/0)"), !text.contains("packet_type"), "{shown}");
    }
    let mut fresh = record();
    fresh.stats = FlowStats::default();
    fresh.actions = [].into();
    assert!(format_flow(&fresh, 0, &brief).ends_with(", packets:0, bytes:0, used:never, actions:drop"));
    assert_eq!(tcp_flag_letters(0xfff), "SFPRU.ECN[200][400][800]");
}

/// As OVS 3.1 traces these flows.
#[test]
fn an_ethernet_header_makes_a_frame() {
    let rest = "recirc_id(0),in_port(1)";
    for (text, expected) in [
        (
            "packet_type(ns=1,id=0x800),ipv4(src=1.1.1.1)",
            "packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(src=1.1.1.1)",
        ),
        ("packet_type(ns=1,id=0x806),eth_type(0x0800)", "packet_type(ns=1,id=0x800),eth_type(0x0800)"),
        ("packet_type(ns=1),eth_type(0x0800)", "packet_type(ns=1,id=0x800),eth_type(0x0800)"),
        ("packet_type(ns=2,id=0x800),eth_type(0x0800)", "packet_type(ns=1,id=0x800),eth_type(0x0800)"),
        (
            "packet_type(ns=1,id=0x800),eth(src=00:00:00:00:00:01),eth_type(0x0800)",
            "packet_type(ns=0,id=0),eth(src=00:00:00:00:00:01),eth_type(0x0800)",
        ),
        ("packet_type(ns=0,id=0),eth_type(0x0800)", "packet_type(ns=0,id=0),eth_type(0x0800)"),
    ] {
        let (key, mask) = parse_key_mask(&format!("{rest},{text}"), &NumbersOnly).unwrap();
        let shown = format_key_mask(&key, &mask, &FlowFormat::brief(&NumbersOnly));
        assert_eq!(shown, format!("{rest},{expected}"), "{text}");
    }
}

#[test]
fn mistakes_are_reported() {
    for (text, part) in [
        ("in_port(p9)", "no port \"p9\""),
        ("eth(src=1:2)", "\"1:2\" is not an Ethernet address"),
        ("ipv4(proto=256)", "256 is more than 255"),
        ("ipv4(src=1.2.3.4", "')' is missing"),
        ("colour(3)", "\"colour\" is not known"),
        ("vlan(vid=1,cfi=0)", "no tag"),
        ("in_port(1)x", "',' or ')' expected"),
        ("in_port(1))", "')' without '('"),
    ] {
        let error = parse_key_mask(text, &NumbersOnly).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    for (text, part) in [
        ("hash(l5(0))", "\"l5\" is not known"),
        ("hash(l4(0),l4(1))", "exactly one"),
        ("push_mpls(label=1048576)", "more than 1048575"),
        ("pop_mpls()", "eth_type=TYPE expected"),
        ("set(mpls(size=1))", "\"size\" is not known"),
        ("ct(commit,force_commit)", "twice"),
        ("ct(helper=)", "not a name"),
        ("ct(helper=sixteen.letters.)", "1 to 15"),
        ("ct(timeout=a b)", "not a name"),
        ("ct(nat(src,dst))", "once"),
        ("ct(nat(src,hash,random))", "either hash or random"),
        ("ct(nat(src=))", "not a range"),
        ("ct(nat(src=:))", "not a number"),
        ("ct(nat(src=10.0.0.9-10.0.0.1))", "not a range"),
        ("ct(nat(src=10.0.0.1-fe80::1))", "not a range"),
        ("ct(nat(src=10.0.0.1:9-5))", "not a range"),
        ("push_eth(src=02:00:00:00:00:01)", "dst=ADDRESS"),
        ("check_pkt_len(size=200,gt(1))", "le(…) expected"),
        ("check_pkt_len(size=65536,gt(1),le(1))", "more than 65535"),
        ("dec_ttl(1)", "le_1(…) expected"),
    ] {
        let error = parse_actions(text, &NumbersOnly).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(parse_actions(&"clone(".repeat(100_000), &NumbersOnly).is_err());
    for around in ["dec_ttl(le_1(", "check_pkt_len(size=1,le(),gt("] {
        let deep = format!("{}1{}", around.repeat(11), "))".repeat(11));
        assert!(parse_actions(&deep, &NumbersOnly).unwrap_err().to_string().contains("deeper"));
        let deep = format!("{}1{}", around.repeat(10), "))".repeat(10));
        assert!(parse_actions(&deep, &NumbersOnly).is_ok());
    }
    let deep = format!("{}1{}", "clone(".repeat(12), ")".repeat(12));
    assert!(parse_actions(&deep, &NumbersOnly).unwrap_err().to_string().contains("deeper"));
}

#[test]
fn corpus_is_digested() {
    for text in include_str!("../../corpus/key/recorded.txt").lines() {
        fuzz_text(text.as_bytes());
        assert!(parse_key_mask(text, &NumbersOnly).is_ok(), "{text}");
    }
    for text in include_str!("../../corpus/actions/recorded.txt").lines() {
        fuzz_text(text.as_bytes());
        assert!(parse_actions(text, &NumbersOnly).is_ok(), "{text}");
    }
}

fn masked<T: std::fmt::Debug>(value: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = Masked<T>> {
    (value.clone(), value).prop_map(|(value, mask)| Masked { value, mask })
}

fn set() -> impl Strategy<Value = SetAction> {
    let ports = || any::<(u16, u16)>().prop_map(|(src, dst)| PortsSet { src, dst });
    let types = || (0..256u16, 0..256u16).prop_map(|(src, dst)| PortsSet { src, dst });
    let eth = any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| EthSet { src, dst });
    let v4 = any::<(u32, u32, u8, u8)>().prop_map(|(src, dst, tos, ttl)| Ipv4Set { src, dst, tos, ttl });
    let v6 = (any::<([u8; 16], [u8; 16], u8, u8)>(), 0..0x10_0000u32)
        .prop_map(|((src, dst, tclass, hlimit), label)| Ipv6Set { src, dst, label, tclass, hlimit });
    prop_oneof![
        masked(eth).prop_map(SetAction::Eth),
        masked(v4).prop_map(SetAction::Ipv4),
        masked(v6).prop_map(SetAction::Ipv6),
        masked(ports()).prop_map(SetAction::Tcp),
        masked(ports()).prop_map(SetAction::Udp),
        masked(ports()).prop_map(SetAction::Sctp),
        masked(types()).prop_map(SetAction::Icmp),
        masked(types()).prop_map(SetAction::Icmpv6),
        masked(any::<u32>()).prop_map(SetAction::SkbMark),
        any::<u32>().prop_map(SetAction::SkbPriority),
        masked(any::<u32>()).prop_map(SetAction::Mpls),
    ]
}

fn ct() -> impl Strategy<Value = CtAction> {
    let addresses = prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| NatAddresses::V4(a.min(b).into(), a.max(b).into())),
        any::<(u128, u128)>().prop_map(|(a, b)| NatAddresses::V6(a.min(b).into(), a.max(b).into())),
    ];
    let ports = any::<(u16, u16)>().prop_map(|(a, b)| (a.min(b), a.max(b)));
    let range = (any::<(bool, bool)>(), prop::option::of(addresses), prop::option::of(ports), 0..3u8);
    let range = range.prop_map(|((is_dst, persistent), addresses, ports, how)| {
        CtNat::New(NatRange { is_dst, addresses, ports, persistent, hash: how == 1, random: how == 2 })
    });
    let nat = prop_oneof![Just(CtNat::No), Just(CtNat::Known), range];
    let commit = prop_oneof![Just(CtCommit::No), Just(CtCommit::Yes), Just(CtCommit::Force)];
    let names = ("[a-zA-Z0-9_.=/-]{0,15}", "[a-z:]{0,31}");
    let marks = (prop::option::of(masked(any::<u32>())), prop::option::of(masked(any::<u128>())));
    (commit, any::<u16>(), marks, names, nat).prop_map(
        |(commit, zone, (mark, labels), (helper, timeout), nat)| {
            let (helper, timeout) = (CtName::new(&helper), CtName::new(&timeout));
            CtAction { commit, zone, mark, labels, helper, nat, event_mask: None, timeout }
        },
    )
}

fn action() -> impl Strategy<Value = DpAction> {
    let controller = (any::<u32>(), any::<u64>(), any::<u8>(), any::<u16>(), any::<u16>()).prop_map(
        |(id, rule_cookie, reason, controller_id, max_len_bytes)| {
            let recirc_id = RecircId(id);
            UserCookie::Controller(ControllerCookie {
                recirc_id,
                rule_cookie,
                reason,
                controller_id,
                continuation: false,
                max_len_bytes,
            })
        },
    );
    let leaf = prop_oneof![
        any::<u32>().prop_map(|p| DpAction::Output(Output(DpPort(p)))),
        slow_reasons().prop_map(|reasons| DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons }))),
        controller.prop_map(|a| DpAction::Userspace(Userspace(a))),
        // Texts show a tag or none, and no bridge.
        sample_actions(prop_oneof![Just(0u16), any::<u16>().prop_map(|tci| tci | 0x1000)], Just(0u32))
            .prop_map(|a| DpAction::Userspace(Userspace(a))),
        set().prop_map(DpAction::Set),
        any::<(u16, u16)>().prop_map(|(tpid, tci)| DpAction::PushVlan(PushVlan { tpid, tci })),
        Just(DpAction::PopVlan(PopVlan)),
        any::<u32>().prop_map(|a| DpAction::Trunc(Trunc(a))),
        any::<u32>().prop_map(|n| DpAction::Recirc(Recirc(RecircId(n)))),
        any::<u32>().prop_map(|a| DpAction::Meter(Meter(a))),
        Just(DpAction::Drop(DropAction(XlateDrop::Ok))),
        (any::<bool>(), any::<u32>()).prop_map(|(both, basis)| DpAction::Hash(HashAction {
            algorithm: if both { HashAlgorithm::SymL4 } else { HashAlgorithm::L4 },
            basis,
        })),
        any::<(u32, u16)>().prop_map(|(lse, ethertype)| DpAction::PushMpls(PushMpls { lse, ethertype })),
        any::<u16>().prop_map(|ethertype| DpAction::PopMpls(PopMpls { ethertype })),
        ct().prop_map(|ct| DpAction::Ct(Box::new(ct))),
        Just(DpAction::CtClear(CtClear)),
        any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| DpAction::PushEth(PushEth { src, dst })),
        Just(DpAction::PopEth(PopEth)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let list = prop::collection::vec(inner, 1..4);
        prop_oneof![
            list.clone().prop_map(|a| DpAction::Clone(CloneAction(a))),
            list.clone().prop_map(|a| DpAction::DecTtl(DecTtl(a))),
            (any::<u16>(), list.clone(), list.clone())
                .prop_map(|(len, greater, less)| DpAction::CheckPktLen(CheckPktLen { len, greater, less })),
            // The text has tenths of a percent.
            (0..=1000u32, list).prop_map(|(tenths, actions)| DpAction::Sample(Sample {
                probability: (f64::from(tenths) / 1000.0 * f64::from(u32::MAX)).round() as u32,
                actions,
            })),
        ]
    })
}

/// The part of a set action expressible in text: the bits within its mask.
fn drop_unmasked(set: &SetAction) -> String {
    format_actions(&[DpAction::Set(set.clone())], &NumbersOnly)
}

/// A key as made by extraction, with a mask expressible in text.
fn key_and_mask() -> impl Strategy<Value = (FlowKey, KeyMask)> {
    let frame = prop_oneof![
        Just(&[0x08u8, 0x00][..]),
        Just(&[0x86, 0xdd][..]),
        Just(&[0x08, 0x06][..]),
        Just(&[0x81, 0x00, 0x60, 5, 0x08, 0x00][..]),
        Just(&[0x88, 0xa8, 0x60, 5, 0x81, 0x00, 0, 7, 0x86, 0xdd][..]),
        Just(&[0x12, 0x34][..]),
    ];
    let body = (any::<[u8; 32]>(), any::<[u8; 40]>(), any::<[u64; 8]>(), any::<u32>(), 0..5usize);
    (frame, body).prop_map(|(types, (macs, rest, mask, md, proto))| {
        let mut bytes = macs[..12].to_vec();
        bytes.extend(types);
        let proto = [1, 6, 17, 58, 132][proto];
        match types[types.len() - 2..] {
            [0x08, 0x00] => {
                bytes.extend([0x45, rest[0], 0, 0, 0, 0, 0, 0, rest[1], proto, 0, 0]);
                bytes.extend(&rest[2..10]);
            }
            [0x86, 0xdd] => {
                bytes.extend([0x60, rest[0], rest[1], 2, 0, 0, proto, rest[2]]);
                bytes.extend(&macs);
            }
            _ => bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]),
        }
        bytes.extend(rest);
        let mut key = FlowKey::default();
        let metadata = flow::extract::Metadata {
            in_port: md,
            recirc_id: md >> 3,
            pkt_mark: md >> 5,
            skb_priority: md & 1,
            dp_hash: md >> 7,
        };
        flow::extract::extract(&bytes, &metadata, 2, &mut key);
        let text = format_key_mask(&key, &random_mask(&key, mask), &VERBOSE);
        parse_key_mask(&text, &NumbersOnly).unwrap_or_else(|e| panic!("{text}: {e}"))
    })
}

fn random_mask(key: &FlowKey, words: [u64; 8]) -> KeyMask {
    let mut mask = KeyMask::default();
    for i in key.present_blocks() {
        for (w, word) in words.iter().enumerate() {
            // Some words exact, some unmatched, some partly matched.
            mask.block_mut(i)[w] = match word % 4 {
                0 => 0,
                1 => *word,
                _ => u64::MAX,
            };
        }
    }
    mask
}

#[test]
fn faulty_samples_are_refused_with_the_reason() {
    let cookie = |text: &str| format!("psample: cookie {text:?} is not 0x and at most 32 digits");
    for (text, why) in [
        ("psample(cookie=0x01)", "psample: group=NUMBER is missing".to_string()),
        ("psample()", "psample: group=NUMBER is missing".to_string()),
        ("psample(group=1,cookie=0x)", cookie("0x")),
        ("psample(group=1,cookie=0f02)", cookie("0f02")),
        ("psample(group=1,cookie=0x+1)", cookie("0x+1")),
        (
            "psample(group=1,cookie=0x000102030405060708090a0b0c0d0e0f10)",
            cookie("0x000102030405060708090a0b0c0d0e0f10"),
        ),
        ("psample(group=1,group=2)", "psample: group is given twice".to_string()),
        ("psample(group=4294967296)", "4294967296 is more than 4294967295".to_string()),
        ("psample(group=x)", "\"x\" is not a number".to_string()),
        ("psample(group=1,foo=2)", "psample: \"foo\" is not known here".to_string()),
    ] {
        assert_eq!(parse_actions(text, &NumbersOnly), Err(TextError(why)), "{text}");
    }
    let whole =
        parse_actions("psample(cookie=0x000102030405060708090a0b0c0d0e0f,group=5)", &NumbersOnly).unwrap();
    assert_eq!(
        format_actions(&whole, &NumbersOnly),
        "psample(group=5,cookie=0x102030405060708090a0b0c0d0e0f)"
    );
}

/// As OVS, but for parts of a type: its datapath in user space takes them.
#[test]
fn an_ethertype_is_whole_and_a_type() {
    for (text, why) in [
        ("eth_type(0x12)", "invalid Ethertype 18 in flow key"),
        ("eth_type(0x5ff)", "invalid Ethertype 1535 in flow key"),
        ("eth_type(0)", "invalid Ethertype 0 in flow key"),
        ("eth_type(0x1234/0xff00)", "eth_type(0x1234/0xff00): an Ethertype is matched whole"),
        ("eth_type(0/0xff)", "eth_type(0/0xff): an Ethertype is matched whole"),
        ("eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(5))", "invalid Ethertype 5 in flow key"),
    ] {
        let got = parse_key_mask(&format!("in_port(1),eth(),{text}"), &NumbersOnly);
        assert_eq!(got.map(|_| ()), Err(TextError(why.to_string())), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn actions_survive_print_and_parse(actions in prop::collection::vec(action(), 1..6)) {
        let text = format_actions(&actions, &NumbersOnly);
        let parsed = parse_actions(&text, &NumbersOnly).unwrap();
        prop_assert_eq!(parsed.len(), actions.len());
        prop_assert_eq!(format_actions(&parsed, &NumbersOnly), text);
        for (a, b) in actions.iter().zip(&parsed) {
            match (a, b) {
                (DpAction::Set(a), DpAction::Set(b)) => prop_assert_eq!(drop_unmasked(a), drop_unmasked(b)),
                _ if a.lists().next().is_some() => {}
                _ => prop_assert_eq!(a, b),
            }
        }
    }

    #[test]
    fn keys_survive_print_and_parse((key, mask) in key_and_mask()) {
        let text = format_key_mask(&key, &mask, &VERBOSE);
        let (again, mask_again) = parse_key_mask(&text, &NumbersOnly).unwrap();
        prop_assert_eq!(again, key, "{}", text);
        prop_assert_eq!(mask_again, mask, "{}", text);
        // Brief text omits unmatched fields, including the protocol; its content prints again unchanged.
        let brief = |k: &FlowKey, m: &KeyMask| format_key_mask(k, m, &FlowFormat::brief(&NumbersOnly));
        let (partial, mask_partial) = parse_key_mask(&brief(&key, &mask), &NumbersOnly).unwrap();
        let told = brief(&partial, &mask_partial);
        let (last, mask_last) = parse_key_mask(&told, &NumbersOnly).unwrap();
        prop_assert_eq!(brief(&last, &mask_last), told);
    }

    #[test]
    fn hostile_text_is_refused_without_panic(text in "[a-z0-9_(),=/:.|+% -]{0,80}") {
        fuzz_text(text.as_bytes());
    }

    #[test]
    fn damaged_text_is_refused_without_panic(which in any::<usize>(), at in 0..200usize, with in "[(),=/0-9a-f+-]{0,2}") {
        let all: Vec<&str> = KEYS.iter().chain(ACTIONS).copied().collect();
        let mut text = all[which % all.len()].to_string();
        let at = at % text.len();
        text.replace_range(at..at + 1, &with);
        fuzz_text(text.as_bytes());
    }
}
