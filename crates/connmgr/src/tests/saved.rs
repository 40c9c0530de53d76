//! Connections and bridges on their way to another process.

use super::*;
use openflow::Multi;
use openflow::msg::control::{ControllerRole, Role, SwitchConfig, TableMod, Vacancy, table_config};
use openflow::msg::flow_monitor::{FlowMonitorRequest, MonitorCommand, MonitorFlags};
use openflow::msg::port::PortMod;

/// The state of a connection after its way as text.
fn passed(s: &Switch, id: ConnId) -> Result<SavedConn, CannotPass> {
    s.manager.save(id).inspect(|saved| {
        let text = saved.text();
        assert!(!text.contains('\n') && !text.contains('\t'), "{text}");
        assert_eq!(SavedConn::parse(&text).as_ref(), Ok(saved), "{text}");
    })
}

/// Another process with the bridge and the connection of one client.
fn taken_over(s: &Switch, client: &Client) -> (Switch, Client) {
    let saved = passed(s, client.id).unwrap();
    let mut next = Switch::new();
    next.now_ms = s.now_ms;
    let bridge = {
        let mut texts = Vec::new();
        let ctx = BridgeCtx {
            backer: &s.backer,
            datapath: &s.datapath,
            bridge: s.bridge,
            datapath_id: 0,
            desc: &s.desc,
        };
        texts.extend(s.manager.save_bridge(&ctx).texts());
        texts
    };
    for text in bridge {
        let saved = SavedBridge::parse(&text).unwrap();
        next.with(|m, ctx, _| m.adopt_bridge(&saved, ctx));
    }
    let id = next.with(|m, ctx, now| m.adopt(saved, VersionSet::IMPLEMENTED, ctx, now));
    let mut other = Client::of(id, client.version);
    (other.xid, other.options) = (client.xid, client.options.clone());
    (next, other)
}

/// Answers to a connection about itself.
fn told(s: &mut Switch, client: &mut Client) -> Vec<Vec<Message>> {
    let asks = [
        Message::GetConfigRequest,
        Message::GetAsyncRequest,
        Message::RoleRequest(Role {
            format: Format::Standard,
            role: ControllerRole::NoChange,
            generation_id: 0,
        }),
    ];
    let known = |m: &&Message| encode(m, client.version, 1).is_ok();
    let asks: Vec<Message> = asks.iter().filter(known).cloned().collect();
    asks.iter().map(|ask| client.ask(s, ask)).collect()
}

#[test]
fn a_connection_goes_on_with_its_settings_and_the_rest_of_its_bytes() {
    for version in [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15] {
        for kind in [ConnKind::Service, ConnKind::Controller] {
            let mut s = Switch::new();
            let mut client = s.client(kind, version);
            client.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 1, miss_send_len_bytes: 77 }));
            client.silent(&mut s, &Message::SetPacketInFormat(2));
            client.silent(&mut s, &Message::SetControllerId(9));
            if version == Version::V10 {
                client.silent(&mut s, &Message::FlowModTableId(true));
                client.options.table_id_in_command = true;
            }
            if version >= Version::V12 {
                let role = ControllerRole::Master;
                client.one(
                    &mut s,
                    &Message::RoleRequest(Role { format: Format::Standard, role, generation_id: 7 }),
                );
            }
            let before = told(&mut s, &mut client);
            // An event is unsent, and half of a request is there.
            s.manager.port_changed(None, Some(&port(OfPort(3), Some(3), "p3")), s.now_ms);
            let unsent = s.manager.output(client.id).to_vec();
            assert!(!unsent.is_empty(), "{version} {kind:?}");
            let echo = encode(&Message::EchoRequest(b"halves".to_vec()), version, 5).unwrap();
            s.with(|m, ctx, now| {
                m.input(client.id, &echo[..10], now);
                m.run(ctx, now);
            });
            let (mut next, mut client) = taken_over(&s, &client);
            assert_eq!(next.manager.output(client.id), unsent, "{version} {kind:?}");
            client.received.clear();
            client.send_bytes(&mut next, &echo[10..]);
            assert_eq!(client.received.last(), Some(&(5, Message::EchoReply(b"halves".to_vec()))));
            assert_eq!(told(&mut next, &mut client), before, "{version} {kind:?}");
            if version >= Version::V12 {
                // Elections go on: an older one is stale.
                let role = ControllerRole::Slave;
                let stale = Message::RoleRequest(Role { format: Format::Standard, role, generation_id: 6 });
                assert_eq!(next.service(version).refused(&mut next, &stale), ErrorKind::RrfcStale);
            }
            // It has events as before, in its form of packets, with its identifier.
            client.add(&mut next, "in_port=1,actions=controller(id=9,max_len=20)");
            let [status] = [next.manager.status(client.id).unwrap()];
            assert_eq!((status.kind, status.version), (kind, Some(version)));
        }
    }
}

#[test]
fn a_barrier_waits_on_in_the_other_process() {
    let mut s = Switch::new();
    let client = s.service(Version::V13);
    let saved = passed(&s, client.id).unwrap();
    let text = saved.text().replacen("\"barrier\":null", "\"barrier\":44", 1);
    let saved = SavedConn::parse(&text).unwrap();
    let mut next = Switch::new();
    let id = next.with(|m, ctx, now| m.adopt(saved, VersionSet::IMPLEMENTED, ctx, now));
    let mut client = Client::of(id, Version::V13);
    next.run();
    next.pass(1);
    client.read(&mut next);
    assert_eq!(client.received, [(44, Message::BarrierReply)]);
}

#[test]
fn what_controllers_set_of_ports_and_tables_travels() {
    let mut s = Switch::new();
    let mut client = s.controller(Version::V14);
    let port_mod = |bits| {
        let hw_addr = port(OfPort(1), Some(1), "p1").mac;
        Message::PortMod(PortMod { port: OfPort(1), hw_addr, config: bits, mask: u32::MAX, advertise: 0 })
    };
    client.silent(&mut s, &port_mod(openflow::msg::port::config::NO_FWD));
    let vacancy = Some(Vacancy { down_percent: 10, up_percent: 90, now_percent: 0 });
    let config = table_config::EVICTION | table_config::VACANCY_EVENTS;
    let table_mod =
        |config, vacancy| Message::TableMod(TableMod { table: TableId(3), config, eviction: None, vacancy });
    client.silent(&mut s, &table_mod(config, vacancy));
    s.backer.change_bridge(s.bridge, |b| b.tables.set_name(TableId(7), "acl"));
    let (mut next, _) = taken_over(&s, &client);
    let state = |s: &mut Switch| s.with(|m, ctx, _| m.save_bridge(ctx));
    assert_eq!(state(&mut next), state(&mut s));
    let view = next.backer.view();
    let bridge = view.bridge(next.bridge).unwrap();
    assert!(bridge.ports.port(OfPort(1)).is_some_and(|p| p.config.no_fwd));
    assert_eq!(bridge.tables.name(TableId(7)), "acl");
    assert_eq!(bridge.tables.desc(TableId(3)).config, config);
    // Settings that end between two parts end there, too.
    client.silent(&mut s, &port_mod(0));
    client.silent(&mut s, &table_mod(0, None));
    for text in state(&mut s).texts() {
        let saved = SavedBridge::parse(&text).unwrap();
        next.with(|m, ctx, _| m.adopt_bridge(&saved, ctx));
    }
    assert_eq!(state(&mut next), state(&mut s));
    assert_eq!(next.backer.view().bridge(next.bridge).unwrap().tables.desc(TableId(3)).config, 0);
}

#[test]
fn connections_with_requests_under_way_wait_and_those_with_monitors_end() {
    let mut s = Switch::new();
    let id = s.manager.open(ConnKind::Service, VersionSet::IMPLEMENTED, s.now_ms);
    assert!(matches!(s.manager.save(id), Err(CannotPass::Ever(_))), "no version yet");
    let mut client = s.service(Version::V14);
    let open = Message::BundleControl(openflow::msg::bundle::BundleControl {
        bundle_id: 1,
        ty: openflow::msg::bundle::BundleControlType::OpenRequest,
        flags: 0,
    });
    client.one(&mut s, &open);
    assert!(matches!(s.manager.save(client.id), Err(CannotPass::Now(_))));
    let mut client = s.service(Version::V13);
    let many: Vec<u8> = (0..2000)
        .flat_map(|n| {
            let line = format!("priority={n},actions=drop");
            encode(&Message::FlowMod(flow_mod(TextCommand::Add, &line)), Version::V13, n).unwrap()
        })
        .collect();
    s.with(|m, _, now| m.input(client.id, &many, now));
    assert!(matches!(s.manager.save(client.id), Err(CannotPass::Now(_))));
    s.with(|m, ctx, now| m.run_within(ctx, now, &mut 10));
    assert!(matches!(s.manager.save(client.id), Err(CannotPass::Now(_))), "collected rules");
    client.read(&mut s);
    assert!(passed(&s, client.id).is_ok());
    let mut watcher = s.service(Version::V10);
    let watch = FlowMonitorRequest {
        id: 1,
        command: MonitorCommand::Add,
        flags: MonitorFlags::ADD,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        table: TableId::ALL,
        matching: Box::default(),
    };
    watcher.ask(&mut s, &Message::FlowMonitorRequest(Multi::all(vec![watch])));
    assert!(matches!(s.manager.save(watcher.id), Err(CannotPass::Ever(_))));
    s.with(|m, ctx, now| m.close(watcher.id, ctx, now));
    assert!(s.manager.save(watcher.id).is_err());
}

#[test]
fn wrong_texts_are_refused_with_the_field() {
    let good = {
        let mut s = Switch::new();
        let client = s.service(Version::V13);
        passed(&s, client.id).unwrap().text()
    };
    for (from, to, why) in [
        ("\"version\":4", "\"version\":9", "version: 9 is not spoken"),
        ("\"version\":4", "\"version\":\"x\"", "version: "),
        ("\"kind\":\"service\"", "\"kind\":\"king\"", "kind: "),
        ("\"input\":\"\"", "\"input\":\"0\"", "input: "),
        ("\"input\":\"\"", "\"input\":\"+1\"", "input: "),
        ("\"miss_send_len\":0", "\"miss_send_len\":65536", "miss_send_len: "),
        ("\"packet_in\":[", "\"packet_in\":[7,", "packet_in: "),
        ("{\"kind", "[{\"kind", "EOF"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let refused = SavedConn::parse(&text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    // Names of a later version are skipped, and absent ones have their start value.
    assert!(SavedConn::parse(&good.replacen('{', "{\"later\":1,", 1)).is_ok());
    assert!(SavedConn::parse("{\"version\":4}").is_ok());
    for (text, why) in [
        ("{\"frags\":2}", "frags: "),
        ("{\"tables\":{}}", "tables: "),
        ("{\"tables\":[{\"vacancy\":[1]}]}", "vacancy: "),
        ("{\"ports\":[[1]]}", "ports: "),
    ] {
        assert!(SavedBridge::parse(text).unwrap_err().contains(why), "{text}");
    }
}
