//! Differences between the versions of OpenFlow. The expectations are answers of OVS 3.1.

use super::*;
use openflow::msg::asyncs::AsyncConfig;
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::control::{Role, RoleReason, RoleStatus, TableMod, table_config};
use openflow::msg::packet::PacketOut;

const ALL: [Version; 6] =
    [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

fn standard(command: TextCommand, text: &str) -> FlowMod {
    FlowMod { format: Format::Standard, ..flow_mod(command, text) }
}

/// The cookies of all rules.
fn cookies(s: &mut Switch) -> Vec<u64> {
    let request = Message::FlowStatsRequest(all_flows(Format::Standard));
    let Message::FlowStatsReply(reply) = s.service(Version::V15).one(s, &request) else { panic!() };
    reply.entries.iter().map(|rule| rule.cookie).collect()
}

#[test]
fn a_modification_without_rules_adds_one_before_1_2() {
    for version in ALL {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let mut fm = standard(TextCommand::Modify, "table=1,udp,actions=1");
        fm.new_cookie = 0x99;
        c.silent(&mut s, &Message::FlowMod(fm.clone()));
        let adds = version < Version::V12;
        assert_eq!(cookies(&mut s), if adds { vec![0x99] } else { vec![] }, "{version}");
        // With a cookie to match it never does.
        (fm.table, fm.cookie, fm.cookie_mask, fm.new_cookie) = (TableId(2), 5, u64::MAX, u64::MAX);
        fm.format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
        c.silent(&mut s, &Message::FlowMod(fm));
        assert_eq!(cookies(&mut s).len(), usize::from(adds), "{version}");
    }
}

#[test]
fn actions_that_contradict_the_match_are_refused_since_1_1() {
    for version in ALL {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let fm = Message::FlowMod(standard(TextCommand::Add, "actions=mod_tp_dst:5,output:1"));
        match version {
            Version::V10 => c.silent(&mut s, &fm),
            _ => assert_eq!(c.refused(&mut s, &fm), ErrorKind::BacMatchInconsistent, "{version}"),
        }
        if version > Version::V10 {
            // The packet of an action set is unknown.
            let text = "table=3,actions=write_actions(mod_nw_src:1.2.3.4,output:1)";
            let refused = c.ask(&mut s, &Message::FlowMod(standard(TextCommand::Add, text)));
            // A set-field, which stands for it since 1.2, needs its prerequisites everywhere.
            assert_eq!(refused.is_empty(), version == Version::V11, "{version}: {refused:?}");
        }
    }
}

#[test]
fn asynchronous_messages_are_chosen_by_kind_and_role_since_1_4() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V14);
    let Message::GetAsyncReply(m) = c.one(&mut s, &Message::GetAsyncRequest) else { panic!() };
    let expected = AsyncConfig {
        packet_in: [0x3b, 0],
        port_status: [7, 7],
        flow_removed: [0x3f, 0],
        ..AsyncConfig::default()
    };
    assert_eq!(m, expected);
    // Kinds that are not given stay.
    let only_ports = AsyncConfig { port_status: [2, 1], given: 0b1100, ..AsyncConfig::default() };
    c.silent(&mut s, &Message::SetAsync(only_ports));
    let Message::GetAsyncReply(m) = c.one(&mut s, &Message::GetAsyncRequest) else { panic!() };
    assert_eq!(m, AsyncConfig { port_status: [2, 1], ..expected });
    let bad = AsyncConfig { packet_in: [0x40, 0], given: 0b10, ..AsyncConfig::default() };
    assert_eq!(c.refused(&mut s, &Message::SetAsync(bad)), ErrorKind::AcfcInvalid);
}

#[test]
fn a_demoted_controller_gets_a_role_status_since_1_3() {
    let master = |generation_id| {
        Message::RoleRequest(Role { format: Format::Standard, role: ControllerRole::Master, generation_id })
    };
    for version in [Version::V12, Version::V13, Version::V14, Version::V15] {
        let mut s = Switch::new();
        let (mut a, mut b) = (s.controller(version), s.controller(version));
        a.one(&mut s, &master(3));
        b.one(&mut s, &master(4));
        let status =
            RoleStatus { role: ControllerRole::Slave, reason: RoleReason::MasterRequest, generation_id: 4 };
        let told = if version >= Version::V13 { vec![Message::RoleStatus(status)] } else { vec![] };
        assert_eq!((a.events(&mut s), b.events(&mut s)), (told, vec![]), "{version}");
    }
}

#[test]
fn tables_are_described_since_1_4() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    let Message::TableDescReply(tables) = c.one(&mut s, &Message::TableDescRequest) else { panic!() };
    let first = TableMod { table: TableId(0), config: 0, eviction: Some(7), vacancy: None };
    assert_eq!((tables.entries.len(), tables.entries[0]), (254, first));
    c.silent(&mut s, &Message::TableMod(first));
    let evict = TableMod { config: table_config::EVICTION, ..first };
    c.silent(&mut s, &Message::TableMod(evict));
    let Message::TableDescReply(desc) = c.one(&mut s, &Message::TableDescRequest) else { panic!("no reply") };
    assert_eq!((desc.entries[0], desc.entries[1].config), (evict, 0));
    // The bit has no meaning before.
    let evict = Message::TableMod(TableMod { eviction: None, ..evict });
    s.service(Version::V13).silent(&mut s, &evict);
}

fn packet_out(metadata: flow::Match, output: OfPort) -> PacketOut {
    let output = ofp_actions::Output { port: output, max_len_bytes: 0 };
    PacketOut {
        buffer_id: NO_BUFFER,
        in_port: OfPort(1),
        metadata: Box::new(metadata),
        actions: vec![output.into()],
        data: vec![0xaa; 60],
    }
}

/// The outputs of the packets sent since the last call.
fn sent(s: &Switch) -> Vec<Vec<DpAction>> {
    let outputs =
        |e: dpif::Execute| e.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).cloned().collect();
    s.datapath.executed.lock().unwrap().drain(..).map(outputs).collect()
}

fn to(port: u32) -> DpAction {
    DpAction::Output(dpif::actions::Output(DpPort(port)))
}

#[test]
fn a_packet_out_has_pipeline_fields_since_1_5() {
    use flow::fields::FieldId;
    let mut s = Switch::new();
    let mut c = s.service(Version::V15);
    c.add(&mut s, "metadata=5,reg3=7,actions=2");
    let any = flow::Match::catchall();
    let given = any.with(FieldId::Metadata, 5).with(FieldId::Reg3, 7);
    c.silent(&mut s, &Message::PacketOut(packet_out(any, OfPort::TABLE)));
    c.silent(&mut s, &Message::PacketOut(packet_out(given, OfPort::TABLE)));
    assert_eq!(sent(&s), [vec![], vec![to(2)]]);
    let header = Message::PacketOut(packet_out(any.with(FieldId::EthType, 0x800), OfPort::TABLE));
    assert_eq!(c.refused(&mut s, &header), ErrorKind::BrcPipelineFieldsOnly);
    // As OVS 3.5 answers.
    c.add(&mut s, "table=0,tun_gbp_id=9,tun_gbp_flags=8,actions=2");
    let tunnel = any.with(FieldId::TunGbpId, 9).with(FieldId::TunGbpFlags, 8);
    c.silent(&mut s, &Message::PacketOut(packet_out(tunnel, OfPort::TABLE)));
    assert_eq!(sent(&s), [vec![to(2)]]);
    for field in [FieldId::PktMark, FieldId::CtState, FieldId::CtZone, FieldId::CtMark, FieldId::CtLabel] {
        let other = Message::PacketOut(packet_out(any.with(field, 1), OfPort::TABLE));
        assert_eq!(c.refused(&mut s, &other), ErrorKind::BrcPipelineFieldsOnly, "{field:?}");
    }
}

#[test]
fn packets_of_a_bundle_are_sent_when_it_is_committed() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let control = |ty| Message::BundleControl(BundleControl { bundle_id: 1, ty, flags: 3 });
        let add = |message: Message| {
            Message::BundleAdd(BundleAdd { bundle_id: 1, flags: 3, message: Box::new(message) })
        };
        let out = |port| Message::PacketOut(packet_out(flow::Match::catchall(), port));
        c.one(&mut s, &control(BundleControlType::OpenRequest));
        c.silent(&mut s, &add(out(OfPort::TABLE)));
        c.silent(&mut s, &add(Message::FlowMod(standard(TextCommand::Add, "actions=2"))));
        c.silent(&mut s, &add(out(OfPort::TABLE)));
        c.silent(&mut s, &add(out(OfPort(1))));
        // A faulty packet-out is refused when it is added.
        assert_eq!(c.refused(&mut s, &add(out(OfPort(0xffff_ff01)))), ErrorKind::BacBadOutPort);
        assert_eq!(sent(&s), Vec::<Vec<DpAction>>::new());
        c.one(&mut s, &control(BundleControlType::CommitRequest));
        assert_eq!(sent(&s), [vec![], vec![to(2)], vec![]], "{version}: with the rules before them");
        // A failed bundle sends none.
        c.one(&mut s, &control(BundleControlType::OpenRequest));
        c.silent(&mut s, &add(out(OfPort(2))));
        let overlap = standard(TextCommand::Add, "check_overlap,tcp,actions=2");
        c.silent(&mut s, &add(Message::FlowMod(overlap)));
        assert_eq!(c.refused(&mut s, &control(BundleControlType::CommitRequest)), ErrorKind::BfcMsgFailed);
        assert_eq!(sent(&s), Vec::<Vec<DpAction>>::new());
    }
}
