//! Requests and their replies, in both versions; malformed requests; readers that do not read.

use super::*;
use dpif::Capabilities;
use dpif::actions::Output;
use openflow::msg::asyncs::AsyncConfig;
use openflow::msg::control::{Role, SwitchConfig, TableMod};
use openflow::msg::packet::PacketOut;
use openflow::msg::port::{PortMod, config, state};
use openflow::msg::stats::{QUEUE_ALL, QueueStatsRequest};
use openflow::{HEADER_BYTES, Multi};

const VERSIONS: [Version; 2] = [Version::V10, Version::V13];

#[test]
fn the_switch_describes_itself() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let old = version == Version::V10;
        let Message::FeaturesReply(f) = c.one(&mut s, &Message::FeaturesRequest) else { panic!() };
        assert_eq!((f.datapath_id, f.n_buffers, f.n_tables), (0xfedc_ba98_7654_3210, 0, 254));
        assert_eq!(f.capabilities, if old { 0xc7 } else { 0x4f });
        let names: Vec<_> = f.ports.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, if old { vec!["br0", "p1", "p2"] } else { vec![] });
        let Message::PortDescReply(ports) = c.one(&mut s, &Message::PortDescRequest(OfPort::NONE)) else {
            panic!()
        };
        let told: Vec<_> = ports.entries.iter().map(|p| (p.port, p.state)).collect();
        let live = if old { 0 } else { state::LIVE };
        assert_eq!(told, [(OfPort::LOCAL, live), (OfPort(1), live), (OfPort(2), live)]);
        let desc = s.desc.clone();
        assert_eq!(c.one(&mut s, &Message::DescRequest), Message::DescReply(desc));
        let Message::TableStatsReply(t) = c.one(&mut s, &Message::TableStatsRequest) else { panic!() };
        assert_eq!((t.entries.len(), t.entries[253].table), (254, TableId(253)));
        let data = vec![1, 2, 3];
        assert_eq!(c.one(&mut s, &Message::EchoRequest(data.clone())), Message::EchoReply(data));
    }
}

#[test]
fn the_configuration_is_per_connection() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.controller(version));
        let set = |flags, len| Message::SetConfig(SwitchConfig { flags, miss_send_len_bytes: len });
        let ask = |s: &mut Switch, c: &mut Client| match c.one(s, &Message::GetConfigRequest) {
            Message::GetConfigReply(m) => (m.flags, m.miss_send_len_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!((ask(&mut s, &mut c), ask(&mut s, &mut other)), ((0, 0), (0, 128)));
        c.silent(&mut s, &set(0, 77));
        assert_eq!((ask(&mut s, &mut c), ask(&mut s, &mut other)), ((0, 77), (0, 128)));
        if version == Version::V10 {
            c.silent(&mut s, &set(4, 78));
            assert_eq!(ask(&mut s, &mut c), (4, 78));
        } else {
            assert_eq!(c.refused(&mut s, &set(4, 78)), ErrorKind::ScfcBadFlags);
            assert_eq!(ask(&mut s, &mut c), (0, 77));
        }
    }
}

#[test]
fn the_handling_of_fragments_is_per_bridge() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.controller(version));
        let set = |flags| Message::SetConfig(SwitchConfig { flags, miss_send_len_bytes: 128 });
        // Flags, and those reported afterwards; reassembly changes nothing.
        for (flags, told) in [(1, 1), (2, 1), (3, 3), (2, 3), (0, 0)] {
            c.silent(&mut s, &set(flags));
            for client in [&mut c, &mut other] {
                let Message::GetConfigReply(m) = client.one(&mut s, &Message::GetConfigRequest) else {
                    panic!()
                };
                assert_eq!(m.flags, told, "{flags}");
            }
        }
        // OpenFlow 1.0 has no error of this kind.
        let error = match version {
            Version::V10 => ErrorKind::NxbrcUnencodableError,
            _ => ErrorKind::ScfcBadFlags,
        };
        for flags in [8, 0x10, 0x8001] {
            assert_eq!(c.refused(&mut s, &set(flags)), error);
        }
        let epoch = s.backer.epoch();
        c.silent(&mut s, &set(0));
        assert_eq!(s.backer.epoch(), epoch);
    }
}

#[test]
fn rules_are_reported_as_given() {
    for (version, format) in
        [(Version::V10, Format::Nxt), (Version::V10, Format::Standard), (Version::V13, Format::Standard)]
    {
        let mut s = Switch::new();
        let mut c = s.service(version);
        if version == Version::V10 {
            c.silent(&mut s, &Message::SetFlowFormat(2));
        }
        c.silent(&mut s, &Message::FlowModTableId(true));
        c.options.table_id_in_command = true;
        let given = flow_mod(
            TextCommand::Add,
            "table=3,priority=9,cookie=0x5,idle_timeout=7,send_flow_rem,tcp,tcp_dst=80,actions=2",
        );
        c.silent(&mut s, &Message::FlowMod(given.clone()));
        s.now_ms += 2500;
        let answers = c.ask(&mut s, &Message::FlowStatsRequest(all_flows(format)));
        let [Message::FlowStatsReply(m)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(m.format, format);
        let [f] = &m.entries[..] else { panic!("{m:?}") };
        assert_eq!((f.table, f.priority, f.cookie, f.idle_timeout_s), (TableId(3), 9, 5, 7));
        assert_eq!((f.duration_s, f.duration_ns, f.packet_count), (2, 500_000_000, 0));
        assert_eq!((&f.matching, &f.actions[..]), (&given.matching, &given.actions[..]));
        let sums = c.one(&mut s, &Message::AggregateRequest(all_flows(format)));
        assert!(matches!(sums, Message::AggregateReply(a) if a.flow_count == 1 && a.format == format));
    }
}

#[test]
fn ports_are_counted_and_configured() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let Message::PortStatsReply(all) = c.one(&mut s, &Message::PortStatsRequest(OfPort::NONE)) else {
            panic!()
        };
        let ports: Vec<_> = all.entries.iter().map(|p| p.port).collect();
        assert_eq!(ports, [OfPort::LOCAL, OfPort(1), OfPort(2)]);
        s.now_ms += 3000;
        let Message::PortStatsReply(one) = c.one(&mut s, &Message::PortStatsRequest(OfPort(1))) else {
            panic!()
        };
        let p = &one.entries[0];
        assert_eq!((p.rx_packets, p.rx_bytes, p.tx_packets, p.collisions), (11, 1100, 7, u64::MAX));
        assert_eq!(p.duration_s, if version == Version::V10 { 0 } else { 3 });
        let Message::PortStatsReply(none) = c.one(&mut s, &Message::PortStatsRequest(OfPort(9))) else {
            panic!()
        };
        assert!(none.entries.is_empty());

        let mac = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 1]);
        let set = |port, hw_addr, config, mask| {
            Message::PortMod(PortMod { port: OfPort(port), hw_addr, config, mask, advertise: 0 })
        };
        assert_eq!(c.refused(&mut s, &set(9, mac, 0, 0)), ErrorKind::PmfcBadPort);
        assert_eq!(c.refused(&mut s, &set(2, mac, 0, 0)), ErrorKind::PmfcBadHwAddr);
        let all_bits = config::NO_FWD | config::NO_FLOOD | config::PORT_DOWN;
        c.silent(&mut s, &set(1, mac, all_bits, config::NO_FWD | config::NO_FLOOD));
        let view = s.backer.view();
        let ports = &view.bridge(s.bridge).unwrap().ports;
        let told = ports.port(OfPort(1)).unwrap().config;
        let old = version == Version::V10;
        assert_eq!((told.no_fwd, told.no_flood, told.port_down), (true, old, false));
        assert_eq!(ports.bundle_of(OfPort(1)).unwrap().floodable, !old);
        assert_eq!(s.manager.take_admin_changes(), []);

        // Bits without effect are stored; the owner sets a device down.
        let stp = config::NO_STP | config::NO_RECV_STP;
        c.silent(&mut s, &set(1, mac, stp | config::PORT_DOWN, stp | config::PORT_DOWN));
        let told = s.backer.view().bridge(s.bridge).unwrap().ports.port(OfPort(1)).unwrap().config;
        assert_eq!((told.no_stp, told.no_recv_stp, told.port_down), (old, old, true));
        c.silent(&mut s, &set(1, mac, 0, config::PORT_DOWN));
        let change = |up| AdminChange { name: "p1".to_string(), up };
        assert_eq!(s.manager.take_admin_changes(), [change(false), change(true)]);
        // A port without a device cannot be set down.
        s.backer.change_bridge(s.bridge, |b| {
            let port = Arc::make_mut(&mut b.ports).ports.get_mut(&OfPort(1)).unwrap();
            Arc::make_mut(port).dp_port = None;
        });
        c.silent(&mut s, &set(1, mac, config::PORT_DOWN, config::PORT_DOWN));
        assert_eq!(s.manager.take_admin_changes(), []);
    }
}

#[test]
fn packet_outs_are_translated_and_executed() {
    let frame = |n: usize| vec![0xaa; n];
    for version in VERSIONS {
        let mut s = Switch::new();
        let mut c = s.service(version);
        c.add(&mut s, "in_port=1,actions=2");
        let out = |in_port, port, data| {
            let actions = vec![ofp_actions::Action::Output(ofp_actions::Output { port, max_len_bytes: 0 })];
            Message::PacketOut(PacketOut {
                buffer_id: NO_BUFFER,
                in_port,
                metadata: Box::default(),
                actions,
                data,
            })
        };
        c.silent(&mut s, &out(OfPort(1), OfPort::TABLE, frame(60)));
        c.silent(&mut s, &out(OfPort::NONE, OfPort::FLOOD, frame(60)));
        c.silent(&mut s, &out(OfPort(1), OfPort::IN_PORT, frame(60)));
        c.silent(&mut s, &out(OfPort(1), OfPort(2), frame(13)));
        let done: Vec<_> = s
            .datapath
            .executed
            .lock()
            .unwrap()
            .drain(..)
            .map(|e| (e.actions.to_vec(), e.packet.len(), e.key.base.in_port))
            .collect();
        let to =
            |ports: &[u32]| ports.iter().map(|p| DpAction::Output(Output(DpPort(*p)))).collect::<Vec<_>>();
        let want = [(to(&[2]), 60, 1), (to(&[0, 1, 2]), 60, DpPort::NONE.0), (to(&[1]), 60, 1)];
        assert_eq!(done, want, "a runt goes nowhere");
        assert!(s.rules()[0].ends_with("n=1"), "the rule has counted the packet");
        let bad = |buffer_id, port| {
            let actions = vec![ofp_actions::Action::Output(ofp_actions::Output { port, max_len_bytes: 0 })];
            Message::PacketOut(PacketOut {
                buffer_id,
                in_port: OfPort(1),
                metadata: Box::default(),
                actions,
                data: Vec::new(),
            })
        };
        assert_eq!(c.refused(&mut s, &bad(3, OfPort(1))), ErrorKind::BrcBufferUnknown);
        let reserved = OfPort(0xffff_ff01);
        assert_eq!(c.refused(&mut s, &bad(NO_BUFFER, reserved)), ErrorKind::BacBadOutPort);
    }
}

#[test]
fn absent_objects_are_empty_lists_or_errors() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let queue = |port, queue| Message::QueueStatsRequest(QueueStatsRequest { port, queue });
    let none = Message::QueueStatsReply(Multi::all(vec![]));
    assert_eq!(c.one(&mut s, &queue(OfPort::NONE, QUEUE_ALL)), none);
    assert_eq!(c.one(&mut s, &queue(OfPort(1), QUEUE_ALL)), none);
    assert_eq!(c.refused(&mut s, &queue(OfPort(1), 4)), ErrorKind::QofcBadQueue);
    assert_eq!(c.refused(&mut s, &queue(OfPort(9), QUEUE_ALL)), ErrorKind::QofcBadPort);
    assert_eq!(c.refused(&mut s, &Message::QueueGetConfigRequest(OfPort(9))), ErrorKind::QofcBadPort);
    assert_eq!(c.refused(&mut s, &Message::FlowMonitorCancel(1)), ErrorKind::MofcUnknownMonitor);
    let table_mod = |table| Message::TableMod(TableMod { table, config: 0, eviction: None, vacancy: None });
    c.silent(&mut s, &table_mod(TableId(3)));
    assert_eq!(c.refused(&mut s, &table_mod(TableId::INTERNAL)), ErrorKind::TmfcEperm);
    // Messages that only a switch sends are errors.
    assert_eq!(c.refused(&mut s, &Message::GetConfigReply(SwitchConfig::default())), ErrorKind::BrcBadType);
}

#[test]
fn of_several_masters_the_last_is_master_and_slaves_change_nothing() {
    let mut s = Switch::new();
    let (mut a, mut b) = (s.controller(Version::V13), s.controller(Version::V13));
    let role =
        |role, generation_id| Message::RoleRequest(Role { format: Format::Standard, role, generation_id });
    let told = |m: Message| match m {
        Message::RoleReply(r) => (r.role, r.generation_id),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(a.one(&mut s, &role(ControllerRole::NoChange, 9))), (ControllerRole::Equal, u64::MAX));
    assert_eq!(told(a.one(&mut s, &role(ControllerRole::Equal, 9))), (ControllerRole::Equal, u64::MAX));
    assert_eq!(told(a.one(&mut s, &role(ControllerRole::Master, 5))), (ControllerRole::Master, 5));
    assert_eq!(told(b.one(&mut s, &role(ControllerRole::Master, 6))), (ControllerRole::Master, 6));
    assert_eq!(s.manager.status(a.id).unwrap().role, ControllerRole::Slave);
    assert_eq!(a.refused(&mut s, &role(ControllerRole::Master, 5)), ErrorKind::RrfcStale);
    let add = Message::FlowMod(flow_mod(TextCommand::Add, "actions=1"));
    assert_eq!(a.refused(&mut s, &add), ErrorKind::BrcIsSlave);
    assert!(matches!(a.one(&mut s, &Message::DescRequest), Message::DescReply(_)), "a slave may ask");
    b.silent(&mut s, &add);
    assert_eq!(s.rules().len(), 1);
    let slave = role(ControllerRole::Slave, 6);
    assert_eq!(told(b.one(&mut s, &slave)), (ControllerRole::Slave, 6));
}

#[test]
fn generations_are_numbers_that_wrap_around() {
    let mut s = Switch::new();
    let (mut a, mut b) = (s.controller(Version::V13), s.controller(Version::V13));
    let rows = [
        (12, true),
        (u64::MAX, false),
        (0, false),
        (u64::MAX / 2, true),
        (1 << 63, true),
        (u64::MAX - 1, true),
        (u64::MAX, true),
        (1, true),
        (u64::MAX, false),
    ];
    for (generation_id, fresh) in rows {
        let m = Role { format: Format::Standard, role: ControllerRole::Master, generation_id };
        let [got] = &a.ask(&mut s, &Message::RoleRequest(m))[..] else { panic!("one answer") };
        match got {
            Message::RoleReply(r) if fresh => assert_eq!(r.generation_id, generation_id),
            Message::Error(e) if !fresh => assert_eq!(e.error, ErrorCode::Known(ErrorKind::RrfcStale)),
            other => panic!("{generation_id:#x}: {other:?}"),
        }
    }
    // Nicira's form has no generation, so it is never stale.
    let m = Role { format: Format::Nxt, role: ControllerRole::Master, generation_id: 0 };
    assert_eq!(b.one(&mut s, &Message::RoleRequest(m)), Message::RoleReply(m));
}

#[test]
fn async_configuration_is_reported_as_set() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V13);
    let Message::GetAsyncReply(m) = c.one(&mut s, &Message::GetAsyncRequest) else { panic!() };
    assert_eq!((m.packet_in, m.port_status, m.flow_removed), ([3, 0], [7, 7], [0xf, 0]));
    let set = AsyncConfig {
        packet_in: [4, 1],
        flow_removed: [1, 2],
        given: AsyncConfig::OF13,
        ..AsyncConfig::default()
    };
    c.silent(&mut s, &Message::SetAsync(set));
    assert_eq!(c.one(&mut s, &Message::GetAsyncRequest), Message::GetAsyncReply(set));
    let all = AsyncConfig { packet_in: [!0, !0], port_status: [!0, !0], flow_removed: [!0, !0], ..set };
    c.silent(&mut s, &Message::SetAsync(all));
    let known = AsyncConfig { packet_in: [7, 7], port_status: [7, 7], flow_removed: [0x3f, 0x3f], ..set };
    let told = c.one(&mut s, &Message::GetAsyncRequest);
    assert_eq!(told, Message::GetAsyncReply(known), "reasons that nobody knows are not kept");
}

#[test]
fn malformed_messages_get_the_right_error_and_keep_the_connection() {
    let cases: [(u8, &[u8], ErrorKind); 5] = [
        (77, &[], ErrorKind::BrcBadType),
        (5, &[1, 2, 3, 4], ErrorKind::BrcBadLen),
        (4, &[0, 0, 0, 0x99, 0, 0, 0, 1], ErrorKind::BrcBadExperimenter),
        (4, &[0, 0, 0x23, 0x20, 0, 0, 0xff, 1], ErrorKind::BrcBadExpType),
        (18, &[0, 99, 0, 0, 0, 0, 0, 0], ErrorKind::BrcBadStat),
    ];
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    for (ty, body, kind) in cases {
        c.xid += 2;
        let mut bytes = vec![4, ty];
        bytes.extend(((HEADER_BYTES + body.len()) as u16).to_be_bytes());
        bytes.extend(c.xid.to_be_bytes());
        bytes.extend(body);
        bytes.extend(encode(&Message::BarrierRequest, c.version, c.xid + 1).unwrap());
        let answers = c.ask_bytes(&mut s, &bytes);
        let [Message::Error(e)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(e.error, ErrorCode::Known(kind));
    }
    // Bytes other than OpenFlow close it.
    c.send_bytes(&mut s, &[4, 0, 0, 3, 0, 0, 0, 0]);
    assert!(s.manager.close_reason(c.id).is_some());
    assert!(!s.manager.wants_input(c.id));
}

#[test]
fn messages_may_come_in_any_pieces() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let mut bytes = encode(&Message::DescRequest, c.version, 5).unwrap();
    bytes.extend(encode(&Message::EchoRequest(vec![7; 300]), c.version, 6).unwrap());
    bytes.extend(encode(&Message::BarrierRequest, c.version, 7).unwrap());
    for piece in bytes.chunks(3) {
        c.send_bytes(&mut s, piece);
    }
    assert_eq!(c.received.iter().map(|(xid, _)| *xid).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn a_reader_that_does_not_read_is_not_served_further() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: true,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let mods: Vec<FlowMod> = (0..15_000u16)
        .map(|n| flow_mod(TextCommand::Add, &format!("priority={n},tcp,tcp_dst={n},actions=1")))
        .collect();
    apply_all(&s, &mods, &cx).unwrap();
    let request = encode(&Message::FlowStatsRequest(all_flows(Format::Standard)), c.version, 9).unwrap();
    let features = Message::TableFeaturesRequest(Multi::all(Vec::new()));
    let features = encode(&features, c.version, 10).unwrap();
    let id = c.id;
    for _ in 0..8 {
        s.with(|m, ctx, now| {
            m.input(id, &request, now);
            m.run(ctx, now);
        });
        s.with(|m, ctx, now| {
            m.input(id, &features, now);
            m.run(ctx, now);
        });
    }
    let waiting = s.manager.output(id).len();
    assert!(waiting < 3 << 20, "{waiting} bytes wait");
    // Its requests wait until it reads.
    assert!(!s.manager.wants_input(id) && !s.manager.has_work(id));
    // After reading, it gets all replies.
    c.read(&mut s);
    let (mut rules, mut tables, mut ends) = (0, 0, 0);
    for (_, m) in &c.received {
        match m {
            Message::FlowStatsReply(m) => {
                rules += m.entries.len();
                ends += usize::from(!m.more);
            }
            Message::TableFeaturesReply(m) => tables += m.entries.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((rules, ends, tables), (8 * 15_000, 8, 8 * 254));
}

#[test]
fn a_peer_that_floods_is_closed() {
    let mut s = Switch::new();
    let c = s.service(Version::V13);
    let id = c.id;
    let request = encode(&Message::TableFeaturesRequest(Multi::all(Vec::new())), c.version, 9).unwrap();
    for _ in 0..1000 {
        let many = request.repeat(100);
        s.with(|m, ctx, now| {
            m.input(id, &many, now);
            m.run(ctx, now);
        });
    }
    assert!(s.manager.close_reason(id).is_some());
    assert!(s.manager.output(id).len() < 16 << 20);
}

/// Expectations are those of OVS 3.1, but its statistics of tables report another treatment than the one set.
#[test]
fn misses_are_treated_as_controllers_of_older_versions_ask() {
    use ofproto::xlate::{Request, Start, render_trace, translate};
    use openflow::msg::control::TableMiss::{Continue, Controller, Drop};
    let mut s = Switch::new();
    let (mut old, mut new) = (s.service(Version::V12), s.service(Version::V13));
    let set = |table: u8, config| {
        Message::TableMod(TableMod { table: TableId(table), config, eviction: None, vacancy: None })
    };
    let trace = |s: &Switch| {
        let flow = flow::text::parse_exact_flow("in_port=1,tcp", &NoPortNames).unwrap();
        let view = s.backer.view();
        let request =
            Request { view: &view, bridge: s.bridge, flow: &flow, start: Start::Tables, trace: true };
        let t = translate(&request, &mut s.backer.xlate_host(false, s.now_ms));
        let lines: Vec<String> =
            render_trace(&t.trace, false).lines().skip(3).map(|l| l.trim().to_string()).collect();
        (lines.join("; "), matches!(t.actions.last(), Some(DpAction::Userspace(_))))
    };
    let called_for =
        |n: u8| format!("{n}. No match, and a \"packet-in\" is called for.; controller(reason=)");
    assert_eq!(trace(&s), ("0. No match.; drop".to_string(), false));
    old.silent(&mut s, &set(0, Controller.to_config()));
    assert_eq!(trace(&s), (called_for(0), true));
    old.silent(&mut s, &set(0, Continue.to_config()));
    old.silent(&mut s, &set(1, Continue.to_config()));
    assert_eq!(trace(&s), ("2. No match.; drop".to_string(), false));
    let all = TableId::ALL.0;
    old.silent(&mut s, &set(all, Continue.to_config()));
    assert_eq!(trace(&s), (called_for(253), true));
    new.add(&mut s, "table=3,in_port=1,actions=2,resubmit(,5)");
    assert_eq!(
        trace(&s),
        ("3. in_port=1, priority 32768; output:2; resubmit(,5); 5. No match.; drop".to_string(), false)
    );
    old.silent(&mut s, &set(2, Drop.to_config()));
    assert_eq!(trace(&s), ("2. No match.; drop".to_string(), false));
    let Message::TableStatsReply(tables) = old.one(&mut s, &Message::TableStatsRequest) else { panic!() };
    let configs: Vec<u32> = tables.entries.iter().take(4).map(|t| t.abilities.config).collect();
    assert_eq!(configs, [1, 1, 2, 1]);
    // As OVS 3.5 has it: with mpls_bos and packet_type, which have no other header.
    let fields = &tables.entries[0].abilities;
    assert_eq!((fields.matches, fields.wildcards), (0x101f_ffff_fffd, 0x101f_ffff_fffd));
    assert_eq!((fields.write_set_fields, fields.apply_set_fields), (0xf_ffff_fbdd, 0xf_ffff_fbdd));
    // A port may keep its misses.
    old.silent(&mut s, &set(0, Controller.to_config()));
    let mut table = PortTable::clone(&s.backer.view().bridge(s.bridge).unwrap().ports);
    Arc::make_mut(table.ports.get_mut(&OfPort(1)).unwrap()).config.no_packet_in = true;
    s.backer.set_ports(s.bridge, table);
    assert_eq!(trace(&s), ("0. No match.; drop".to_string(), false));
    // Other values, and the same in later versions.
    assert_eq!(old.refused(&mut s, &set(0, 3)), ErrorKind::TmfcBadConfig);
    new.silent(&mut s, &set(0, Drop.to_config()));
    assert_eq!(s.backer.view().bridge(s.bridge).unwrap().tables.miss(TableId(0)), Some(Controller));
}

/// A full original tuple selects one connection, which a tracker finds without a walk.
#[test]
fn flushes_select_what_they_name() {
    use dpif::{CtAddresses, CtTransport, CtTuple};
    use openflow::text::parse_ct_flush;
    let full = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2";
    let tuple = CtTuple {
        addresses: CtAddresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        proto: 17,
        transport: CtTransport::Ports { src: 1, dst: 2 },
    };
    for (line, protos, exact) in [
        (full.to_string(), [17, 0], Some((0, tuple))),
        (format!("zone=7 {full}"), [17, 0], Some((7, tuple))),
        (format!("zone=7 mark=1 {full}"), [17, 0], None),
        (format!("{full} ct_tp_dst=1"), [17, 17], None),
        ("zone=7".to_string(), [0, 0], None),
        ("ct_nw_proto=6".to_string(), [6, 0], None),
        (" ct_nw_proto=6,ct_tp_src=5".to_string(), [0, 6], None),
    ] {
        let which = crate::selected_connections(&parse_ct_flush(line.split(' ')).unwrap());
        assert_eq!([which.orig.proto, which.reply.proto], protos, "{line}");
        assert_eq!(which.exact(), exact, "{line}");
        let [zone, mark] = ["zone=7", "mark=1"].map(|part| line.contains(part));
        assert_eq!((which.zone.is_some(), which.mark.is_some()), (zone, mark), "{line}");
    }
}

/// Later requests of the connection wait for the end of a deletion, those of others do not.
#[test]
fn flushes_are_carried_out_by_the_owner() {
    use dpif::DpifError;
    use openflow::msg::ct_flush::CtFlush;
    use openflow::{ErrorCode, ErrorKind};
    let failed = || DpifError::Device("the kernel refused".to_string());
    for (result, error) in [
        (Ok(()), None),
        (Err(DpifError::NotFound("connection")), None),
        (Err(failed()), Some(ErrorKind::BrcEperm)),
    ] {
        let mut s = Switch::new();
        s.datapath.tracks = true;
        let (mut c, mut other) = (s.service(Version::V13), s.service(Version::V13));
        let mut bytes = encode(&Message::CtFlushZone(5), c.version, 7).unwrap();
        let flush = CtFlush { zone: Some(6), mark: Some((1, 3)), ..CtFlush::default() };
        bytes.extend(encode(&Message::CtFlush(flush), c.version, 8).unwrap());
        bytes.extend(encode(&Message::BarrierRequest, c.version, 9).unwrap());
        c.send_bytes(&mut s, &bytes);
        for zone in [5, 6] {
            let (conn, which) = s.manager.take_flush().expect("one at a time");
            assert_eq!((conn, which.zone, which.mark.is_some()), (c.id, Some(zone), zone == 6));
            assert_eq!(s.manager.take_flush(), None);
            c.read(&mut s);
            assert!(!c.received.iter().any(|(_, m)| *m == Message::BarrierReply));
            assert_eq!(other.ask(&mut s, &Message::DescRequest).len(), 1);
            s.manager.flushed(conn, result.clone());
            c.read(&mut s);
        }
        let (last, before) = c.received.split_last().unwrap();
        assert_eq!(last, &(9, Message::BarrierReply));
        let refused = before.iter().map(|(xid, m)| match m {
            Message::Error(e) => (*xid, e.error),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            refused.collect::<Vec<_>>(),
            error.map_or(vec![], |e| [7, 8].map(|xid| (xid, ErrorCode::Known(e))).to_vec())
        );
        // A connection may end before.
        let (gone, bytes) =
            (s.service(Version::V13), encode(&Message::CtFlushZone(5), Version::V13, 7).unwrap());
        s.with(|m, ctx, now| {
            m.input(gone.id, &bytes, now);
            m.run(ctx, now);
            assert!(m.take_flush().is_some());
            m.close(gone.id, ctx, now);
            m.flushed(gone.id, Err(failed()));
        });
    }
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let answer = c.ask(&mut s, &Message::CtFlushZone(5));
    assert!(
        matches!(&answer[..], [Message::Error(e)] if e.error == ErrorCode::Known(ErrorKind::BrcBadExpType)),
        "{answer:?}"
    );
    assert_eq!(s.manager.take_flush(), None);
}
