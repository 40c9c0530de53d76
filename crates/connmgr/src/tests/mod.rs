//! A bridge with a recording datapath, and clients that use the same codec as its connection manager.

mod barriers;
mod bundles;
mod continuations;
mod events;
mod eviction;
mod fail;
mod flow_mods;
mod gone;
mod groups;
mod in_band;
mod meters;
#[path = "../../tests/support/recording.rs"]
mod recording;
mod report;
mod requests;
mod saved;
mod snoop;
mod table_features;
mod tlv;
mod turns;
mod versions;

use super::*;
use dpif::actions::Userspace;
use dpif::{DpAction, DpifError, PortStats, UserCookie};
use flow::text::{NoPortNames, PortNames};
use flow::{DpPort, MacAddr, OfPort, TableId};
use ofp_actions::text::{FlowModCommand as TextCommand, parse_flow_mod};
use ofproto::events::PacketInEvent;
use ofproto::flow_mod::{Mod, ModContext, Progress, Transaction};
use ofproto::ids::BundleId;
use ofproto::ports::{Bundle, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode};
use ofproto::rule::{Rule, RuleTimeouts};
use openflow::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::msg::flow_stats::FlowStatsRequest;
use openflow::{ErrorCode, ErrorKind, Format, GROUP_ANY, Message, NO_BUFFER, VersionSet, encode};
use recording::RecordingDatapath;

/// Port 1 has nonzero counters.
fn port_stats(port: DpPort) -> Result<PortStats, DpifError> {
    match port.0 {
        1 => Ok(PortStats { rx_packets: 11, rx_bytes: 1100, tx_packets: 7, ..PortStats::default() }),
        0 | 2 => Ok(PortStats::default()),
        _ => Err(DpifError::NotFound("port")),
    }
}

pub(super) fn port(n: OfPort, dp: Option<u32>, name: &str) -> Port {
    Port {
        of_port: n,
        dp_port: dp.map(DpPort),
        name: name.to_string(),
        type_name: String::new(),
        mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, n.0 as u8]),
        bundle: BundleId(n.0),
        patch_peer: None,
        counters: Arc::new(PortCounters::default()),
        tunnel: None,
        config: PortConfigBits::default(),
        link_down: false,
        links: Vec::new(),
        queue_dscp: Default::default(),
        features: Default::default(),
    }
}

fn bundle(n: OfPort, name: &str) -> Bundle {
    Bundle {
        id: BundleId(n.0),
        name: name.to_string(),
        members: vec![n],
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
    }
}

/// A bridge with two ports and its local port, and a clock set by tests.
pub(super) struct Switch {
    pub(super) backer: Backer,
    pub(super) datapath: RecordingDatapath,
    pub(super) bridge: BridgeId,
    pub(super) desc: SwitchDesc,
    pub(super) manager: Connmgr,
    pub(super) now_ms: u64,
}

impl Switch {
    pub(super) fn new() -> Switch {
        let backer = Backer::new(7);
        let bridge = backer.add_bridge("br0");
        let mut table = PortTable::default();
        for (n, dp, name) in [(OfPort::LOCAL, 0, "br0"), (OfPort(1), 1, "p1"), (OfPort(2), 2, "p2")] {
            table.ports.insert(n, Arc::new(port(n, Some(dp), name)));
            table.bundles.insert(BundleId(n.0), Arc::new(bundle(n, name)));
        }
        backer.set_ports(bridge, table);
        let desc = SwitchDesc {
            manufacturer: "Nicira, Inc.".to_string(),
            hardware: "Open vSwitch".to_string(),
            software: "3.5.4".to_string(),
            serial: "None".to_string(),
            datapath: "None".to_string(),
        };
        Switch {
            backer,
            datapath: RecordingDatapath::new(port_stats),
            bridge,
            desc,
            manager: Connmgr::new(),
            now_ms: 100_000,
        }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut Connmgr, &BridgeCtx<'_>, u64) -> R) -> R {
        let ctx = BridgeCtx {
            backer: &self.backer,
            datapath: &self.datapath,
            bridge: self.bridge,
            datapath_id: 0xfedc_ba98_7654_3210,
            desc: &self.desc,
        };
        f(&mut self.manager, &ctx, self.now_ms)
    }

    /// Advances the clock and runs all due work.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.backer.dump_completed(self.now_ms);
        self.backer.expire(self.now_ms);
        self.run();
    }

    /// Routes events as the owner does: packets executed for controllers, and removed rules.
    pub(super) fn run(&mut self) {
        let executed = std::mem::take(&mut *self.datapath.executed.lock().unwrap());
        for e in executed {
            for action in &e.actions[..] {
                if let DpAction::Userspace(Userspace(UserCookie::Controller(cookie))) = action {
                    let state = self.backer.recirc_state(cookie.recirc_id).unwrap();
                    let paused_in = cookie.continuation.then(|| self.backer.bridge_uuid(state.bridge));
                    let (packet, cookie) = (e.packet.clone(), *cookie);
                    let event = PacketInEvent { state, cookie, packet, key: e.key, paused_in };
                    self.manager.deliver_packet_in(&event, self.now_ms);
                }
            }
        }
        self.with(|m, ctx, now| m.run(ctx, now));
    }

    /// The rules of the bridge as lines, hidden ones included.
    pub(super) fn rules(&self) -> Vec<String> {
        let view = self.backer.view();
        let mut lines: Vec<String> = view
            .bridge(self.bridge)
            .unwrap()
            .tables
            .iter()
            .map(|r| {
                let m = flow::text::format_match(&r.matching.unpack(), Some(r.priority));
                let a = ofp_actions::text::format_actions(&r.actions, &NoPortNames);
                format!("table={} cookie={:#x} {m} {a} n={}", r.table.0, r.cookie, r.stats.counts().0)
            })
            .collect();
        lines.sort();
        lines
    }

    pub(super) fn client(&mut self, kind: ConnKind, version: Version) -> Client {
        self.client_with(kind, ConnSettings::default(), version)
    }

    fn client_with(&mut self, kind: ConnKind, settings: ConnSettings, version: Version) -> Client {
        let id = self.manager.open(kind, VersionSet::IMPLEMENTED, self.now_ms);
        self.manager.configure_conn(id, settings);
        let mut client = Client::of(id, version);
        let hello = openflow::msg::control::Hello { versions: VersionSet::of(&[version]) };
        let bytes = encode(&Message::Hello(hello), version, 1).unwrap();
        client.send_bytes(self, &bytes);
        client.received.clear();
        client
    }

    pub(super) fn service(&mut self, version: Version) -> Client {
        self.client(ConnKind::Service, version)
    }

    pub(super) fn controller(&mut self, version: Version) -> Client {
        self.client(ConnKind::Controller, version)
    }

    /// A controller without `enable_async_messages`.
    pub(super) fn quiet_controller(&mut self, version: Version) -> Client {
        let settings = ConnSettings { async_messages: false, ..ConnSettings::default() };
        self.client_with(ConnKind::Controller, settings, version)
    }
}

/// The other end of a connection.
pub(super) struct Client {
    pub(super) id: ConnId,
    pub(super) version: Version,
    pub(super) xid: u32,
    pub(super) options: openflow::Options,
    /// Received messages not yet taken.
    pub(super) received: Vec<(u32, Message)>,
}

impl Client {
    /// The other end of an open connection.
    pub(super) fn of(id: ConnId, version: Version) -> Client {
        Client { id, version, xid: 100, options: openflow::Options::default(), received: Vec::new() }
    }

    /// Passes bytes in and reads until no more arrive.
    pub(super) fn send_bytes(&mut self, switch: &mut Switch, bytes: &[u8]) {
        let id = self.id;
        switch.with(|m, _, now| m.input(id, bytes, now));
        self.read(switch);
    }

    pub(super) fn read(&mut self, switch: &mut Switch) {
        loop {
            let bytes = switch.manager.take_output(self.id);
            if bytes.is_empty() && !switch.manager.has_work(self.id) {
                return;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                let (version, xid, message) = openflow::decode_with(&rest[..len], &self.options).unwrap();
                if !matches!(message, Message::Hello(_)) {
                    assert_eq!(version, self.version);
                }
                self.received.push((xid, message));
                rest = &rest[len..];
            }
            switch.with(|m, ctx, now| m.run(ctx, now));
        }
    }

    /// Sends a request and a barrier; returns the replies to the request before the barrier's reply.
    pub(super) fn ask(&mut self, switch: &mut Switch, message: &Message) -> Vec<Message> {
        self.xid += 2;
        let (version, xid) = (self.version, self.xid);
        let mut bytes = openflow::encode_with(message, version, xid, &self.options).unwrap();
        bytes.extend(encode(&Message::BarrierRequest, version, xid + 1).unwrap());
        self.ask_bytes(switch, &bytes)
    }

    /// As [`Client::ask`], with bytes that end in a barrier request of the current transaction and one.
    pub(super) fn ask_bytes(&mut self, switch: &mut Switch, bytes: &[u8]) -> Vec<Message> {
        self.received.clear();
        self.send_bytes(switch, bytes);
        let (last, answers) = self.received.split_last().expect("a barrier is always answered");
        assert_eq!((last.0, &last.1), (self.xid + 1, &Message::BarrierReply));
        answers.iter().filter(|(xid, _)| *xid == self.xid).map(|(_, m)| m.clone()).collect()
    }

    /// A request without a reply.
    pub(super) fn silent(&mut self, switch: &mut Switch, message: &Message) {
        assert_eq!(self.ask(switch, message), []);
    }

    /// A request with one reply.
    pub(super) fn one(&mut self, switch: &mut Switch, message: &Message) -> Message {
        let mut answers = self.ask(switch, message);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    /// A request that fails.
    pub(super) fn refused(&mut self, switch: &mut Switch, message: &Message) -> ErrorKind {
        match self.one(switch, message) {
            Message::Error(e) => match e.error {
                ErrorCode::Known(kind) => kind,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Messages received since the last request without one.
    pub(super) fn events(&mut self, switch: &mut Switch) -> Vec<Message> {
        self.received.clear();
        switch.run();
        self.read(switch);
        self.received.iter().map(|(_, m)| m.clone()).collect()
    }

    pub(super) fn flow(&mut self, switch: &mut Switch, command: TextCommand, text: &str) {
        let fm = flow_mod(command, text);
        self.silent(switch, &Message::FlowMod(fm));
    }

    pub(super) fn add(&mut self, switch: &mut Switch, text: &str) {
        self.flow(switch, TextCommand::Add, text);
    }
}

/// Executes flow-mods together, which are valid by themselves; returns the index of the first failure.
pub(super) fn apply_all(s: &Switch, mods: &[FlowMod], cx: &ModContext<'_>) -> Result<(), (usize, ErrorKind)> {
    let numbered =
        mods.iter().enumerate().map(|(i, fm)| (Mod::Flow(fm.clone()), i.to_string().into_bytes().into()));
    let mut transaction = Transaction::begin(&s.backer, s.bridge, numbered).unwrap();
    loop {
        match transaction.step(&s.backer, cx, &mut 100) {
            Progress::More => {}
            Progress::Done => return Ok(()),
            Progress::Failed(kind, number) => {
                return Err((String::from_utf8(number.into()).unwrap().parse().unwrap(), kind));
            }
        }
    }
}

/// A flow-mod from a line in `ovs-ofctl` syntax.
pub(super) fn flow_mod(command: TextCommand, text: &str) -> FlowMod {
    flow_mod_with(command, text, &NoPortNames)
}

/// As [`flow_mod`], with a bridge's names.
pub(super) fn flow_mod_with(command: TextCommand, text: &str, names: &dyn PortNames) -> FlowMod {
    let t = parse_flow_mod(text, command, names).unwrap();
    let command = match t.command {
        TextCommand::Add => FlowModCommand::Add,
        TextCommand::Modify => FlowModCommand::Modify,
        TextCommand::ModifyStrict => FlowModCommand::ModifyStrict,
        TextCommand::Delete => FlowModCommand::Delete,
        TextCommand::DeleteStrict => FlowModCommand::DeleteStrict,
    };
    let mut flags = FlowModFlags::empty();
    flags.set(FlowModFlags::SEND_FLOW_REM, t.flags.send_flow_rem);
    flags.set(FlowModFlags::CHECK_OVERLAP, t.flags.check_overlap);
    flags.set(FlowModFlags::RESET_COUNTS, t.flags.reset_counts);
    let add = command == FlowModCommand::Add;
    FlowMod {
        format: Format::Nxt,
        command,
        table: t.table.unwrap_or(if command.deletes() { TableId::ALL } else { TableId(0) }),
        cookie: t.cookie,
        cookie_mask: t.cookie_mask,
        new_cookie: t.new_cookie.unwrap_or(if add { 0 } else { u64::MAX }),
        idle_timeout_s: t.idle_timeout_s,
        hard_timeout_s: t.hard_timeout_s,
        priority: t.priority,
        buffer_id: NO_BUFFER,
        out_port: t.out_port,
        out_group: GROUP_ANY,
        flags,
        importance: t.importance,
        matching: t.rule_match.into(),
        actions: t.actions,
    }
}

/// A request for all rules.
pub(super) fn all_flows(format: Format) -> FlowStatsRequest {
    FlowStatsRequest {
        format,
        table: TableId::ALL,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: Box::default(),
    }
}
