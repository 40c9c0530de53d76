//! Consistency of actions with matches and limits.

use crate::*;
use flow::fields::FieldId;
use flow::{Match, OfPort, SubField, TableId};
use ofp_wire::{ErrorKind, Version};

fn check(m: &Match, actions: &[Action], version: Version) -> Result<(), ErrorKind> {
    let cx = CheckContext {
        version,
        max_ports: 0xff00,
        n_tables: 254,
        table: Some(TableId(3)),
        debug_actions: version == Version::V13,
    };
    check_actions(actions, m, &cx)
}

fn set(field: FieldId, value: u128) -> Action {
    Action::SetField(SetField { field, value, mask: field.full_mask(), style: SetStyle::SetField })
}

fn fin_timeout() -> Action {
    Action::FinTimeout(FinTimeout { idle_timeout_s: 5, hard_timeout_s: 0 })
}

fn output(n: u32) -> Action {
    Action::Output(Output { port: OfPort(n), max_len_bytes: 0 })
}

fn controller(pause: bool, meter_id: Option<u32>) -> Action {
    Action::Controller(Box::new(ControllerAction {
        max_len_bytes: 100,
        controller_id: 1,
        reason: PacketInReason::Action,
        userdata: vec![1, 2],
        pause,
        meter_id,
    }))
}

fn learn(specs: Vec<LearnSpec>) -> Action {
    Action::Learn(Box::new(LearnAction {
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 1,
        cookie: 0,
        table: TableId(1),
        send_flow_rem: false,
        delete_learned: false,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        limit: 0,
        result_dst: None,
        specs,
    }))
}

#[test]
fn actions_are_held_against_the_match_and_the_limits() {
    use ErrorKind::*;
    let any = Match::catchall();
    let ip = any.with(FieldId::EthType, 0x800);
    let tcp = ip.with(FieldId::NwProto, 6);
    let whole = SubField::whole;
    let immediate = |field, value| LearnSpec {
        source: LearnSource::Immediate(value),
        dest: LearnDest::Match(whole(field)),
        len_bits: whole(field).len_bits,
    };
    let rows: Vec<Row<'_>> = vec![
        (&any, vec![output(1), output(OfPort::LOCAL.0), output(OfPort::IN_PORT.0)], None, None),
        (&any, vec![output(0xff01)], Some(BacBadOutPort), Some(BacBadOutPort)),
        (&any, vec![controller(false, Some(99))], None, None),
        (&any, vec![controller(true, None)], None, None),
        (&any, vec![output(OfPort::NONE.0)], Some(BacBadOutPort), Some(BacBadOutPort)),
        (&ip, vec![set(FieldId::IpDst, 5)], None, None),
        (&any, vec![set(FieldId::IpDst, 5)], Some(BacMatchInconsistent), Some(BacMatchInconsistent)),
        (&any, vec![Action::SetIpv4Dst(SetIpv4Dst(5))], None, Some(BacMatchInconsistent)),
        (&any, vec![Action::DecTtl(DecTtl { controllers: vec![0] })], None, Some(BacMatchInconsistent)),
        (&ip, vec![Action::SetL4Dst(SetL4Dst(5))], None, Some(BacMatchInconsistent)),
        (&ip, vec![fin_timeout()], None, Some(BacMatchInconsistent)),
        (&tcp, vec![fin_timeout()], None, None),
        (&tcp, vec![Action::SetL4Dst(SetL4Dst(5)), set(FieldId::TcpDst, 5)], None, None),
        (&any, vec![Action::StripVlan(StripVlan { pop: false })], None, Some(BacMatchInconsistent)),
        (
            &any,
            vec![
                Action::PushVlan(PushVlan(0x8100)),
                set(FieldId::VlanPcp, 3),
                Action::StripVlan(StripVlan { pop: false }),
            ],
            None,
            None,
        ),
        (&any, vec![set(FieldId::VlanPcp, 3)], Some(BacMatchInconsistent), Some(BacMatchInconsistent)),
        (&any, vec![set(FieldId::EthType, 3)], Some(BacBadSetArgument), Some(BacBadSetArgument)),
        (
            &any,
            vec![Action::StackPop(StackPop(whole(FieldId::DpHash)))],
            Some(BacBadSetArgument),
            Some(BacBadSetArgument),
        ),
        (&any, vec![Action::Meter(Meter(1)), output(1)], None, None),
        (&any, vec![Action::GotoTable(GotoTable(TableId(4)))], None, None),
        (&any, vec![Action::GotoTable(GotoTable(TableId(3)))], Some(BicBadTableId), Some(BicBadTableId)),
        (&any, vec![Action::GotoTable(GotoTable(TableId(254)))], Some(BicBadTableId), Some(BicBadTableId)),
        (
            &any,
            vec![Action::WriteActions(WriteActions(vec![output(0xff01)]))],
            Some(BacBadOutPort),
            Some(BacBadOutPort),
        ),
        (
            &any,
            vec![Action::WriteActions(WriteActions(vec![Action::WriteActions(WriteActions(vec![]))]))],
            Some(BacTooMany),
            Some(BacTooMany),
        ),
        (
            &any,
            vec![learn(vec![immediate(FieldId::EthType, 0x800), immediate(FieldId::NwProto, 6)])],
            None,
            None,
        ),
        (
            &any,
            vec![learn(vec![immediate(FieldId::NwProto, 6)])],
            Some(BacMatchInconsistent),
            Some(BacMatchInconsistent),
        ),
    ];
    check_rows(rows);
}

/// Match, actions, outcome in OpenFlow 1.0, outcome in 1.3.
type Row<'a> = (&'a Match, Vec<Action>, Option<ErrorKind>, Option<ErrorKind>);

fn check_rows(rows: Vec<Row<'_>>) {
    for (m, actions, v10, v13) in rows {
        assert_eq!(check(m, &actions, Version::V10).err(), v10, "1.0: {actions:?}");
        assert_eq!(check(m, &actions, Version::V13).err(), v13, "1.3: {actions:?}");
    }
}

#[test]
fn actions_follow_the_tags_of_the_packet_and_action_sets_need_not() {
    use ErrorKind::*;
    let any = Match::catchall();
    check_rows(vec![
        // Popping a tag uncovers the one pushed before.
        (
            &any,
            vec![
                Action::PushVlan(PushVlan(0x8100)),
                Action::PushVlan(PushVlan(0x8100)),
                Action::StripVlan(StripVlan { pop: false }),
                Action::StripVlan(StripVlan { pop: false }),
            ],
            None,
            None,
        ),
        (
            &any,
            vec![
                Action::PushVlan(PushVlan(0x8100)),
                Action::StripVlan(StripVlan { pop: false }),
                Action::StripVlan(StripVlan { pop: false }),
            ],
            None,
            Some(BacMatchInconsistent),
        ),
        // The packet of an action set is unknown; its fields are checked all the same.
        (
            &any,
            vec![Action::WriteActions(WriteActions(vec![
                Action::StripVlan(StripVlan { pop: false }),
                Action::StripVlan(StripVlan { pop: false }),
                Action::DecTtl(DecTtl { controllers: vec![0] }),
            ]))],
            None,
            None,
        ),
        (
            &any,
            vec![Action::WriteActions(WriteActions(vec![set(FieldId::IpDst, 5)]))],
            Some(BacMatchInconsistent),
            Some(BacMatchInconsistent),
        ),
        // Permitted with test actions enabled: here on connections of 1.3.
        (&any, vec![Action::DebugRecirc(DebugRecirc)], Some(BacBadExpType), None),
        (
            &any,
            vec![Action::WriteActions(WriteActions(vec![Action::DebugSlow(DebugSlow)]))],
            Some(BacBadExpType),
            None,
        ),
    ]);
}

#[test]
fn clones_are_checked_within_and_nest_to_a_bound() {
    let read = |depth: usize| {
        // Each clone is a header of 16 bytes around the next.
        let mut bytes = Vec::new();
        for left in (1..=depth).rev() {
            let len = u16::try_from(16 * left).expect("a short list").to_be_bytes();
            bytes.extend([0xff, 0xff, len[0], len[1], 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0]);
        }
        read_actions(&mut ofp_wire::Reader::new(&bytes, Version::V10))
    };
    let deepest = read(99).expect("OVS takes 99 levels in text");
    assert_eq!(check(&Match::catchall(), &deepest, Version::V10), Ok(()));
    assert_eq!(read(100), Err(ErrorKind::BacTooMany));
    let cloned = |actions| vec![Action::Clone(CloneList(actions))];
    // A list within is checked as strictly as the one around it, unlike an action set.
    let strip = vec![Action::StripVlan(StripVlan { pop: false })];
    assert_eq!(check(&Match::catchall(), &cloned(strip), Version::V13), Err(ErrorKind::BacMatchInconsistent));
}

/// Answers of `ovs-ofctl parse-actions OpenFlow10`.
#[test]
fn bytes_of_clones_and_truncated_outputs() {
    for (hex, want) in [
        (
            "ffff003000002320002a000000000000ffff00200000232000160000000000000000000000000001ffffffffffffffff",
            Err(ErrorKind::BicUnsupInst),
        ),
        ("ffff001800002320002a000000000000001d000800000001", Err(ErrorKind::BacBadType)),
        ("ffff001000002320002a000000000001", Ok("clone(drop)")),
        ("ffff001800002320002a0000000000010000000800010000", Ok("clone(output:1)")),
        ("ffff001000002320002700010000000d", Err(ErrorKind::BacBadArgument)),
        ("ffff0010000023200027fffd0000000e", Ok("output(port=CONTROLLER,max_len=14)")),
        (
            "ffff002800002320002a000000000000ffff00100000232000220002000000010000000800010000",
            Err(ErrorKind::NxbacBadConjunction),
        ),
    ] {
        let bytes = crate::text::arguments::hex_bytes(hex).expect(hex);
        let got = read_actions(&mut ofp_wire::Reader::new(&bytes, Version::V10));
        let got = got.map(|a| crate::text::format_actions(&a, &flow::text::NoPortNames));
        assert_eq!(got.as_deref(), want.as_ref().map(|s| *s), "{hex}");
    }
}
