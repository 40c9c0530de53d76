//! Traffic through the userspace datapath and the slow path, without the control plane.

mod threads;

use crate::slowpath::{InlineSlowPath, SlowPath, Wake};
use dpif::{Datapath, PortOptions, PortSpec, SystemPort};
use dpif_netdev::ablation::Ablation;
use dpif_netdev::offload::Providers;
use dpif_netdev::{UserspaceConfig, UserspaceDatapath};
use flow::{DpPort, MacAddr, Match, OfPort, TableId};
use ofp_actions::{Action, Output};
use ofproto::backer::Backer;
use ofproto::ports::{Bundle, BundleId, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode};
use ofproto::rule::{Rule, RuleStats, RuleTimeouts};
use openflow::msg::flow_mod::FlowModFlags;
use std::sync::Arc;
use sync::{Mutex, lock};
use testkit::{Topology, require_netns};

fn port_table(ports: &[(u32, DpPort, &str)]) -> PortTable {
    let mut table = PortTable::default();
    for (n, dp_port, name) in ports {
        let bundle = BundleId(*n);
        table.ports.insert(
            OfPort(*n),
            Arc::new(ofproto::ports::Port {
                of_port: OfPort(*n),
                dp_port: Some(*dp_port),
                name: name.to_string(),
                type_name: String::new(),
                mac: MacAddr::default(),
                bundle,
                patch_peer: None,
                counters: Arc::new(PortCounters::default()),
                tunnel: None,
                config: PortConfigBits::default(),
                link_down: false,
                links: Vec::new(),
                queue_dscp: Default::default(),
                features: Default::default(),
            }),
        );
        table.bundles.insert(
            bundle,
            Arc::new(Bundle {
                id: bundle,
                name: name.to_string(),
                members: vec![OfPort(*n)],
                vlan_mode: VlanMode::Trunk,
                tag: 0,
                trunks: None,
                cvlans: None,
                qinq_tpid: 0x88a8,
                mcast_flood: false,
                mcast_flood_reports: false,
                priority_tags: PriorityTags::Never,
                protected: false,
                floodable: true,
                bond: None,
            }),
        );
    }
    table
}

fn normal_rule() -> Rule {
    Rule {
        table: TableId(0),
        matching: Match::catchall().into(),
        priority: 0,
        cookie: 0,
        timeouts: RuleTimeouts::new(0, 0, &[]),
        importance: 0,
        flags: FlowModFlags::empty(),
        actions: vec![Action::Output(Output { port: OfPort::NORMAL, max_len_bytes: 0 })].into(),
        created_ms: 0,
        modified_ms: 0,
        stats: Arc::new(RuleStats::default()),
    }
}

#[test]
fn hosts_reach_each_other_through_normal_with_offloads_on() {
    require_netns!();
    let net = Topology::new(2).unwrap();
    let config = UserspaceConfig {
        name: "netdev@test".to_string(),
        dummy: false,
        dummy_ports: Default::default(),
        dummy_numa: Vec::new(),
        ablation: Ablation::default(),
        watch: None,
        threads: Default::default(),
        vlan_limit: 1,
        hash_seed: 7,
        offload: Providers::default(),
        inheritance: dpif_netdev::Inheritance::default(),
    };
    let backer = Arc::new(Backer::new(1));
    let wake: Wake = Arc::new(|| {});
    let inline =
        Arc::new(InlineSlowPath { backer: backer.clone(), datapath: String::new(), wake: wake.clone() });
    let datapath = UserspaceDatapath::start(&config, inline).unwrap();
    let datapath = Arc::new(datapath);
    let slow = SlowPath::start(&backer, datapath.clone(), Some(2), false, wake).unwrap();
    let bridge = backer.add_bridge("br0");
    let names: Vec<String> = net.hosts.iter().map(|h| h.port.clone()).collect();
    let numbers: Vec<DpPort> = net
        .switch
        .enter(|| {
            names
                .iter()
                .map(|name| {
                    let spec = PortSpec {
                        name: name.clone(),
                        options: PortOptions::System(SystemPort::default()),
                        mac: None,
                        mtu: None,
                        number: None,
                    };
                    datapath.port_add(&spec).unwrap()
                })
                .collect()
        })
        .unwrap();
    backer.set_ports(bridge, port_table(&[(1, numbers[0], &names[0]), (2, numbers[1], &names[1])]));
    backer.change_bridge(bridge, |b| b.tables.insert(Arc::new(normal_rule())));
    let (a, b) = (&net.hosts[0], &net.hosts[1]);
    testkit::reachable(&a.netns, b.ipv4.into(), std::time::Duration::from_secs(10)).unwrap();
    let pings = testkit::Pings::start(&a.netns, &["-i", "0.05", &b.ipv6.to_string()]).unwrap();
    pings.answered(5, std::time::Duration::from_secs(10)).unwrap();
    let _server = testkit::iperf3_server(&b.netns, 5201).unwrap();
    let options = testkit::Iperf3Options::default();
    let tcp = testkit::iperf3_client(&a.netns, b.ipv4.into(), &options).unwrap();
    eprintln!("{tcp:?}");
    assert!(backer.ukeys.len() >= 2);
    drop(slow);
    drop(datapath);
}
