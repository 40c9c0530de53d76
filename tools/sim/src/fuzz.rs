//! Fuzz targets that span several crates: any bytes in; no panic, and the invariants hold.
//!
//! The datapath is the simulator's, so every call of a core is compared with the plain core.

use crate::dp::{DpConfig, SimDatapath};
use crate::frames::key_of;
use crate::model::VLAN_LIMIT;
use crate::world::fuzz_ports;
use connmgr::{BridgeCtx, ConnKind, Connmgr};
use dpif::text::NumbersOnly;
use dpif::{Datapath, DpAction, DpifOp, Execute, OpBatch, PmdId, PortOptions, PortSpec, SystemPort};
use flow::extract::Metadata;
use flow::text::NoPortNames;
use flow::{DpPort, OfPort, TableId};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use ofp_actions::{CheckContext, check_actions};
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use ofproto::rule::{Rule, RuleStats, RuleTimeouts};
use ofproto::upcall;
use openflow::msg::flow_mod::FlowModFlags;
use openflow::msg::stats::SwitchDesc;
use openflow::{Version, VersionSet};
use ovsdb::client::{Client, ClientConfig};
use ovsdb::db::Database;
use ovsdb::schema::open_vswitch;
use ovsdb::server::{Server, ServerLimits, Time};
use ovsdb::value::SeededUuids;
use packet::Packet;
use std::sync::Arc;
use vswitch::{Command, Desired, OpenedInterface, Planner, SupportedTypes};

/// Ports of the bridge.
const PORTS: u32 = 3;
/// Maximum number of rules read.
const RULES_MAX: usize = 40;
/// Maximum number of rounds for a packet.
const ROUNDS_MAX: usize = 200;

struct Rig {
    dp: SimDatapath,
    backer: Backer,
    bridge: BridgeId,
}

impl Rig {
    fn new() -> Rig {
        let config = DpConfig {
            cores: 1,
            handlers: 1,
            inbox_batches: 64,
            misses_per_port: 32,
            actions_per_port: 32,
            flow_limit_hard: 100,
            cache_entries: 64,
            parked_per_ticket: 4,
            parked: 32,
            check_order: false,
            connections: None,
            fragments: None,
            broken: None,
        };
        let (dp, mut backer) = (SimDatapath::new(config, 1), Backer::new(1));
        backer.rewrite = Some(Box::new(datapath::rewrite));
        let bridge = backer.add_bridge("br0");
        for n in 1..=PORTS {
            let spec = PortSpec {
                name: format!("p{n}"),
                options: PortOptions::System(SystemPort::default()),
                mac: None,
                mtu: None,
                number: Some(DpPort(n)),
            };
            assert!(dp.port_add(&spec).is_ok());
        }
        backer.set_ports(bridge, fuzz_ports(PORTS));
        Rig { dp, backer, bridge }
    }

    /// Receives a frame on port 1, and processes all that follows from it.
    fn receive(&self, frame: &[u8]) {
        self.dp.inner().receive(1, DpPort(1), vec![frame.to_vec()]);
        for _ in 0..ROUNDS_MAX {
            let upcalls = {
                let inner = &mut *self.dp.inner();
                inner.upcall_queues.take(0, &mut inner.violations)
            };
            for (pmd, ops) in upcall::handle(&self.backer, upcalls, 2000) {
                self.dp.operate(OpBatch { pmd, ops, tag: 0, reply: None });
            }
            let mut inner = self.dp.inner();
            for core in 0..2 {
                while inner.work(core) {}
            }
            if inner.is_quiet() {
                break;
            }
        }
        self.check();
    }

    fn check(&self) {
        let inner = self.dp.inner();
        assert!(inner.violations.list.is_empty(), "{:?}", inner.violations.list);
    }

    fn add_rule(&self, line: &str) {
        let Ok(m) = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames) else { return };
        let table = m.table.unwrap_or(TableId(0));
        let cx = CheckContext {
            version: Version::V13,
            max_ports: 0xff00,
            n_tables: 254,
            table: Some(table),
            debug_actions: true,
        };
        if check_actions(&m.actions, &m.rule_match, &cx).is_err() {
            return;
        }
        let rule = Rule {
            table,
            matching: m.rule_match.into(),
            priority: m.priority.into(),
            cookie: 0,
            timeouts: RuleTimeouts::new(m.idle_timeout_s, m.hard_timeout_s, &m.actions),
            importance: 0,
            flags: FlowModFlags::empty(),
            actions: m.actions.into(),
            created_ms: 0,
            modified_ms: 0,
            stats: Arc::new(RuleStats::default()),
        };
        self.backer.change_bridge(self.bridge, |b| b.tables.insert(Arc::new(rule)));
    }
}

/// Splits the input into text and the bytes after the first empty line.
fn text_and_frame(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let at = bytes.windows(2).position(|w| w == b"\n\n")?;
    Some((std::str::from_utf8(&bytes[..at]).ok()?, &bytes[at + 2..]))
}

/// Rules in `ovs-ofctl` syntax, one a line, an empty line, and a frame received twice: translated and
/// executed, then forwarded by the resulting flow.
pub fn pipeline(bytes: &[u8]) {
    let Some((rules, frame)) = text_and_frame(bytes) else { return };
    let rig = Rig::new();
    for line in rules.lines().take(RULES_MAX) {
        rig.add_rule(line);
    }
    rig.receive(frame);
    rig.receive(frame);
}

/// Datapath actions, an empty line, and the frame to execute them on.
pub fn actions(bytes: &[u8]) {
    let Some((actions, frame)) = text_and_frame(bytes) else { return };
    let Ok(actions) = dpif::text::parse_actions(actions, &NumbersOnly) else { return };
    if is_not_modelled(&actions) {
        return;
    }
    let rig = Rig::new();
    let md = Metadata { in_port: 1, ..Metadata::default() };
    let execute = Execute {
        packet: Packet::from_slice(frame),
        key: key_of(frame, &md, VLAN_LIMIT),
        actions: actions.into(),
        ticket: None,
        upcall: 0,
        went_on: false,
    };
    let ops = vec![DpifOp::Execute(Box::new(execute))];
    rig.dp.operate(OpBatch { pmd: PmdId::Core(0), ops, tag: 0, reply: None });
    while rig.dp.inner().work(1) {}
    rig.check();
}

/// Sampling is random, and the model tracks no connections: results cannot be compared.
fn is_not_modelled(actions: &[DpAction]) -> bool {
    actions.iter().any(|a| a.any(|a| matches!(a, DpAction::Sample(_) | DpAction::Ct(_))))
}

/// Bytes on an OpenFlow connection after the hello (the first byte is the version), and a frame afterwards.
pub fn connection(bytes: &[u8]) {
    let Some((first, stream)) = bytes.split_first() else { return };
    let hello = match first % 2 {
        0 => [1, 0, 0, 8, 0, 0, 0, 1],
        _ => [4, 0, 0, 8, 0, 0, 0, 1],
    };
    let rig = Rig::new();
    let text = || String::from("fuzz");
    let desc = SwitchDesc {
        manufacturer: text(),
        hardware: text(),
        software: text(),
        serial: text(),
        datapath: text(),
    };
    let ctx =
        BridgeCtx { backer: &rig.backer, datapath: &rig.dp, bridge: rig.bridge, datapath_id: 1, desc: &desc };
    let mut manager = Connmgr::new();
    let kind = match first & 2 {
        0 => ConnKind::Service,
        _ => ConnKind::Controller,
    };
    let id = manager.open(kind, VersionSet::IMPLEMENTED, 1000);
    manager.input(id, &hello, 1000);
    manager.input(id, stream, 1000);
    for _ in 0..ROUNDS_MAX {
        manager.run(&ctx, 1500);
        manager.take_output(id);
        if !manager.has_work(id) {
            break;
        }
    }
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &[0x45; 50]].concat();
    rig.receive(&frame);
    rig.backer.route_packet_ins(usize::MAX, |event| manager.deliver_packet_in(&event, 1500));
    manager.close(id, &ctx, 2000);
}

/// Lines of operations on the `Open_vSwitch` database, a transaction each. The resulting database is parsed
/// as a configuration, and planned; every other device can be opened.
pub fn configuration(bytes: &[u8]) {
    let mut server = Server::new(Box::new(SeededUuids::new(1)), ServerLimits::default());
    assert!(server.add_database(Database::new(open_vswitch()), true).is_ok());
    let (Ok(writer), Ok(reader)) = (server.session_open(), server.session_open()) else { return };
    let mut client = Client::new(ClientConfig::all(open_vswitch()));
    let (mut planner, mut opened_so_far) = (Planner::default(), 0);
    for line in bytes.split(|b| *b == b'\n').take(RULES_MAX) {
        let Some(operations) = line.strip_prefix(b"[") else { continue };
        let request =
            [&br#"{"id":1,"method":"transact","params":["Open_vSwitch","#[..], operations, b"}"].concat();
        server.session_input(writer, &request, Time::default());
        server.log_synced(server.log_seq());
        server.session_output(writer);
        loop {
            let up = client.take_output();
            server.session_input(reader, &up, Time::default());
            server.log_synced(server.log_seq());
            let down = server.session_output(reader);
            if up.is_empty() && down.is_empty() {
                break;
            }
            assert!(client.input(&down).is_ok());
        }
        let desired = Desired::from_replica(client.replica(), &SupportedTypes::userspace());
        let mut commands = planner.plan(desired);
        for _ in 0..ROUNDS_MAX {
            if commands.is_empty() {
                break;
            }
            for (n, command) in commands.into_iter().enumerate() {
                if let Command::OpenInterface(open) = command {
                    opened_so_far += 1;
                    let opened = OpenedInterface {
                        dp_port: DpPort(opened_so_far),
                        mac: flow::MacAddr([2, 0, 0, 0, 0, n as u8]),
                        mtu: Some(1500),
                    };
                    let result = if n % 2 == 0 { Ok(opened) } else { Err("no such device".to_string()) };
                    planner.opened(open.open, result);
                }
            }
            commands = planner.commands();
        }
        assert!(planner.is_settled(), "a plan without end");
        planner.take_notices();
    }
    let open: Vec<OfPort> = planner.open_ports().map(|p| p.of_port).collect();
    assert!(open.iter().all(|p| p.0 != 0));
}
