//! Generated values: encoding and decoding is the identity.

use crate::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use crate::msg::flow_stats::{AggregateStats, FlowStats};
use crate::msg::port::PortStats;
use crate::{
    Format, GROUP_ANY, Message, Multi, NO_BUFFER, Options, Version, decode_with, encode, encode_with, fuzz,
};
use flow::SubField;
use flow::fields::{ALL_FIELDS, FieldId};
use flow::{MacAddr, Match, OfPort, TableId};
use ofp_actions::*;
use ofp_wire::nxm::has_header;
use proptest::prelude::*;

const ALL: [Version; 6] =
    [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

const OPTIONS: Options = Options { table_id_in_command: true, ..Options::DEFAULT };

/// A match from raw numbers: includes each field whose number selects it and that exists by then.
fn match_of(numbers: &[(u8, u128, u128)], base: u8) -> Match {
    let mut m = Match::catchall();
    let (eth_type, proto) = [
        (0, 0),
        (0x800, 6),
        (0x800, 17),
        (0x86dd, 132),
        (0x86dd, 58),
        (0x806, 0),
        (0x800, 1),
        (0x8847, 0),
        (0x894f, 0),
    ][usize::from(base % 9)];
    if eth_type != 0 {
        m.set(FieldId::EthType, eth_type);
    }
    for (field, (pick, value, mask)) in ALL_FIELDS.iter().copied().zip(numbers) {
        let full = if field == FieldId::NwTos { 0xfc } else { field.full_mask() };
        if field == FieldId::NwProto && proto != 0 {
            m.set(field, proto);
            continue;
        }
        let skip = matches!(field, FieldId::InPort | FieldId::DlVlan | FieldId::DlVlanPcp | FieldId::EthType);
        let exists = field.prereq_holds(m.flow(), Some(&m.mask().0)) && fits_type(field, eth_type);
        if pick % 3 != 0 || skip || !has_header(field) || !exists || m.get(field).1 != 0 {
            continue;
        }
        let mask = if field.def().maskable && pick % 2 == 0 { mask & full } else { full };
        let value = match field {
            FieldId::InPortOxm => value % 0xff00,
            FieldId::PacketType => 0,
            FieldId::Icmpv6Type => 135 + value % 2,
            FieldId::Icmpv6Code => 0,
            FieldId::NshTtl => value % 64,
            FieldId::NshMdtype => 1,
            // Without a tag, OXM tells no priority: the mask that comes back lacks it.
            FieldId::VlanTci if value & full == 0 => 1,
            _ => *value,
        };
        if mask != 0 {
            m.set_masked(field, value & mask, mask);
        }
    }
    if m.has_ethernet() {
        // A field of Ethernet implies the packet type, which is not told again.
        m.set_masked(FieldId::PacketType, 0, 0);
    }
    m
}

/// Whether rules of this EtherType may have the field: a connection's addresses are of the rule's own protocol.
fn fits_type(field: FieldId, eth_type: u128) -> bool {
    match field {
        FieldId::CtNwSrc | FieldId::CtNwDst => eth_type == 0x800,
        FieldId::CtIpv6Src | FieldId::CtIpv6Dst => eth_type == 0x86dd,
        _ => true,
    }
}

fn any_match() -> impl Strategy<Value = Match> {
    let numbers = prop::collection::vec((any::<u8>(), any::<u128>(), any::<u128>()), ALL_FIELDS.len());
    (numbers, any::<u8>()).prop_map(|(n, base)| match_of(&n, base))
}

/// A range of bits of a field with a header, at most `max_bits` long. Excludes the ARP opcode, which has more
/// bits on the wire than in a flow.
fn range(max_bits: u16) -> impl Strategy<Value = SubField> {
    let fields: Vec<FieldId> = ALL_FIELDS
        .iter()
        .filter(|f| f.metadata_index().is_none())
        .copied()
        .filter(|f| has_header(*f) && f.def().writable && *f != FieldId::ArpOp)
        // Only a `ct` writes those of a connection.
        .filter(|f| !matches!(f, FieldId::CtMark | FieldId::CtLabel))
        .collect();
    (prop::sample::select(fields), any::<u16>(), any::<u16>()).prop_map(move |(field, a, b)| {
        let field = match field {
            FieldId::DlVlan => FieldId::VlanVid,
            FieldId::DlVlanPcp => FieldId::VlanPcp,
            f => f,
        };
        let bits = field.def().bits;
        let offset_bits = a % bits;
        SubField { field, offset_bits, len_bits: 1 + b % (bits - offset_bits).min(max_bits) }
    })
}

fn load() -> impl Strategy<Value = Action> {
    // Fields with a long header have another notation on the wire.
    let is_short = |s: &SubField| !ofp_wire::nxm::has_long_nx_header(s.field);
    (range(64).prop_filter("a short header", is_short), any::<u128>()).prop_map(|(s, v)| {
        let mask = s.field_mask();
        let value = valid(s.field, v) & mask;
        Action::SetField(SetField { field: s.field, value, mask, style: SetStyle::Load })
    })
}

fn learn() -> impl Strategy<Value = Action> {
    let spec = (range(128), any::<u128>(), 0..4u8).prop_map(|(s, v, kind)| {
        let len_bits = s.len_bits;
        let v = if len_bits < 128 { v & ((1 << len_bits) - 1) } else { v };
        let (source, dest) = match kind {
            0 => (LearnSource::Immediate(v), LearnDest::Match(s)),
            1 => (LearnSource::Immediate(v), LearnDest::Load(s)),
            2 => (LearnSource::Field(s), LearnDest::Match(s)),
            _ => (LearnSource::Field(s), LearnDest::Output),
        };
        LearnSpec { source, dest, len_bits }
    });
    let numbers = (any::<[u16; 5]>(), any::<u64>(), 0..254u8, any::<[bool; 3]>(), any::<u32>());
    (numbers, range(1), prop::collection::vec(spec, 0..5)).prop_map(
        |((n, cookie, table, flags, limit), dst, specs)| {
            Action::Learn(Box::new(LearnAction {
                idle_timeout_s: n[0],
                hard_timeout_s: n[1],
                priority: n[2],
                cookie,
                table: TableId(table),
                send_flow_rem: flags[0],
                delete_learned: flags[1],
                fin_idle_timeout_s: n[3],
                fin_hard_timeout_s: n[4],
                limit: if limit % 2 == 0 { 0 } else { limit },
                result_dst: flags[2].then_some(dst),
                specs,
            }))
        },
    )
}

fn controller() -> impl Strategy<Value = Action> {
    let reason = prop::sample::select(vec![
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
    ]);
    let userdata = prop::collection::vec(any::<u8>(), 0..12);
    (any::<u16>(), 0..3u16, reason, userdata, any::<bool>(), prop::option::of(any::<u32>())).prop_map(
        |(max_len_bytes, controller_id, reason, userdata, pause, meter_id)| {
            Action::Controller(Box::new(ControllerAction {
                max_len_bytes,
                controller_id,
                reason,
                userdata,
                pause,
                meter_id: meter_id.filter(|id| *id != 0),
            }))
        },
    )
}

/// Actions that survive in all versions.
fn common_action() -> impl Strategy<Value = Action> {
    let table = prop::option::of((0..255u8).prop_map(TableId));
    // Reserved ports to which packets can be sent; the controller has its own action.
    const RESERVED: [OfPort; 6] =
        [OfPort::IN_PORT, OfPort::TABLE, OfPort::NORMAL, OfPort::FLOOD, OfPort::ALL, OfPort::LOCAL];
    let port = || prop_oneof![(0..0xff00u32).prop_map(OfPort), prop::sample::select(&RESERVED[..])];
    let plain = prop_oneof![
        any::<u32>().prop_map(|id| Action::Group(Group(id))),
        (any::<u32>(), 0..64u8, 2..65u8).prop_map(|(id, clause, n_clauses)| {
            Action::Conjunction(Conjunction { id, clause: clause % n_clauses, n_clauses })
        }),
        (port(), any::<u16>())
            .prop_map(|(port, max_len_bytes)| Action::Output(Output { port, max_len_bytes })),
        (range(64), any::<u16>())
            .prop_map(|(source, max_len_bytes)| Action::OutputReg(OutputReg { source, max_len_bytes })),
        (port(), 14..u32::MAX)
            .prop_map(|(port, max_len_bytes)| Action::OutputTrunc(OutputTrunc { port, max_len_bytes })),
        controller(),
        any::<u32>().prop_map(|v| Action::SetQueue(SetQueue(v))),
        Just(Action::PopQueue(PopQueue)),
        load(),
        range(32).prop_map(|source| Action::Move(Move {
            source,
            dest: SubField { field: FieldId::Reg3, offset_bits: 0, len_bits: source.len_bits },
            is_onf: false,
        })),
        range(128).prop_map(|v| Action::StackPush(StackPush(v))),
        range(128).prop_map(|v| Action::StackPop(StackPop(v))),
        prop::collection::vec(any::<u16>(), 0..4)
            .prop_map(|controllers| Action::DecTtl(DecTtl { controllers })),
        (port(), table).prop_map(|(in_port, table)| Action::Resubmit(Resubmit { in_port, table, ct: false })),
        learn(),
        any::<[u16; 2]>().prop_map(|[idle_timeout_s, hard_timeout_s]| Action::FinTimeout(FinTimeout {
            idle_timeout_s,
            hard_timeout_s
        })),
        (0..3usize, any::<u8>()).prop_map(|(n, b)| Action::Note(Note(vec![b; 6 + 8 * n]))),
        Just(Action::Exit(Exit)),
        Just(Action::DebugRecirc(DebugRecirc)),
        Just(Action::DebugSlow(DebugSlow)),
        Just(Action::StripVlan(StripVlan { pop: false })),
    ];
    plain.prop_recursive(3, 12, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4)
            .prop_filter("a conjunction stands alone", |l| {
                !l.iter().any(|a| matches!(a, Action::Conjunction(_)))
            });
        prop_oneof![6 => inner, 1 => list.prop_map(|list| Action::Clone(CloneList(list)))]
    })
}

fn action10() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => common_action(),
        1 => any::<[u8; 6]>().prop_map(|m| Action::SetEthSrc(SetEthSrc(MacAddr(m)))),
        1 => any::<[u8; 6]>().prop_map(|m| Action::SetEthDst(SetEthDst(MacAddr(m)))),
        1 => any::<u32>().prop_map(|v| Action::SetIpv4Src(SetIpv4Src(v))),
        1 => any::<u32>().prop_map(|v| Action::SetIpv4Dst(SetIpv4Dst(v))),
        1 => (0..4096u16).prop_map(|v| Action::SetVlanVid(SetVlanVid { vid: v, push: true })),
        1 => (0..8u8).prop_map(|v| Action::SetVlanPcp(SetVlanPcp { pcp: v, push: true })),
        1 => any::<u8>().prop_map(|t| Action::SetIpDscp(SetIpDscp(t & 0xfc))),
        1 => any::<u16>().prop_map(|v| Action::SetL4Src(SetL4Src(v))),
        1 => any::<u16>().prop_map(|v| Action::SetL4Dst(SetL4Dst(v))),
        1 => (0..0xff00u16, any::<u32>()).prop_map(|(p, queue)| Action::Enqueue(Enqueue { port: OfPort(p.into()), queue })),
        1 => any::<u32>().prop_map(|id| Action::SetTunnel(SetTunnel { id: id.into(), wide: false })),
        1 => any::<u64>().prop_map(|id| Action::SetTunnel(SetTunnel { id, wide: true })),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(v, mask)| Action::WriteMetadata(WriteMetadata { value: v & mask, mask })),
    ]
}

/// The value without bits that are never valid.
fn valid(field: FieldId, value: u128) -> u128 {
    if field == FieldId::NshTtl { value & 63 } else { value }
}

fn set_field() -> impl Strategy<Value = Action> {
    // The input port is not for a set-field.
    let is_settable = |s: &SubField| s.field != FieldId::InPortOxm;
    let range = range(128).prop_filter("a field for set-field", is_settable);
    (range, any::<u128>(), any::<bool>()).prop_map(|(s, value, whole)| {
        let full = if s.field == FieldId::NwTos { 0xfc } else { s.field.full_mask() };
        let mask = if whole { full } else { s.field_mask() & full };
        let mask = if mask == 0 { full } else { mask };
        // A VLAN is set with its presence bit.
        let (value, mask) =
            if s.field == FieldId::VlanVid { (value | 0x1000, mask | 0x1000) } else { (value, mask) };
        // Before OpenFlow 1.5 masks exist in Nicira's form.
        let style = if mask == full { SetStyle::SetField } else { SetStyle::Load2 };
        Action::SetField(SetField { field: s.field, value: valid(s.field, value) & mask, mask, style })
    })
}

/// Actions of OpenFlow 1.1, before set-field.
fn action11() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => common_action(),
        1 => any::<[u8; 6]>().prop_map(|m| SetEthSrc(MacAddr(m)).into()),
        1 => any::<[u8; 6]>().prop_map(|m| SetEthDst(MacAddr(m)).into()),
        1 => any::<u32>().prop_map(|v| SetIpv4Src(v).into()),
        1 => any::<u32>().prop_map(|v| SetIpv4Dst(v).into()),
        1 => (0..4096u16).prop_map(|vid| SetVlanVid { vid, push: false }.into()),
        1 => (0..8u8).prop_map(|pcp| SetVlanPcp { pcp, push: false }.into()),
        1 => any::<u8>().prop_map(|t| SetIpDscp(t & 0xfc).into()),
        1 => (0..4u8).prop_map(|ecn| SetIpEcn(ecn).into()),
        1 => any::<u8>().prop_map(|ttl| SetIpTtl(ttl).into()),
        1 => any::<u16>().prop_map(|v| SetL4Src(v).into()),
        1 => any::<u16>().prop_map(|v| SetL4Dst(v).into()),
        1 => Just(PushVlan(0x88a8).into()),
    ]
}

/// Whether a load is a valid set-field, as which OpenFlow 1.5 sends it.
fn is_valid_set_field(action: &Action) -> bool {
    let special = [FieldId::VlanVid, FieldId::NwTos, FieldId::InPortOxm];
    match action {
        Action::SetField(set) => set.style != SetStyle::Load || !special.contains(&set.field),
        Action::WriteActions(WriteActions(list)) | Action::Clone(CloneList(list)) => {
            list.iter().all(is_valid_set_field)
        }
        _ => true,
    }
}

/// The form of an action received in a version: OpenFlow 1.5 has set-fields alone.
fn received(action: &mut Action, version: Version) {
    match action {
        Action::SetField(set) if version >= Version::V15 => set.style = SetStyle::SetField,
        Action::WriteActions(WriteActions(list)) | Action::Clone(CloneList(list)) => {
            list.iter_mut().for_each(|a| received(a, version));
        }
        Action::StripVlan(strip) => strip.pop = version > Version::V10,
        _ => {}
    }
}

fn action13() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => common_action(),
        3 => set_field(),
        1 => Just(Action::PushVlan(PushVlan(0x88a8))),
        1 => any::<u8>().prop_map(|v| Action::SetIpTtl(SetIpTtl(v))),
        1 => (0..0xff00u32, any::<u16>()).prop_map(|(p, n)| Action::Output(Output { port: OfPort(p), max_len_bytes: n })),
    ]
}

fn instructions() -> impl Strategy<Value = Vec<Action>> {
    let again = (0..255u8).prop_map(|t| {
        Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(TableId(t)), ct: false })
    });
    let set = prop::collection::vec(prop_oneof![3 => set_field(), 1 => again], 0..3);
    (
        prop::option::of(any::<u32>()),
        prop::collection::vec(action13(), 0..6),
        any::<bool>(),
        prop::option::of(set),
        prop::option::of((any::<u64>(), any::<u64>())),
        prop::option::of(any::<u8>()),
    )
        .prop_map(|(meter, mut list, clear, set, metadata, goto)| {
            if let Some(id) = meter {
                list.insert(0, Action::Meter(Meter(id)));
            }
            if clear {
                list.push(Action::ClearActions(ClearActions));
            }
            list.extend(set.map(|v| Action::WriteActions(WriteActions(v))));
            list.extend(
                metadata.map(|(v, mask)| Action::WriteMetadata(WriteMetadata { value: v & mask, mask })),
            );
            list.extend(goto.map(|t| Action::GotoTable(GotoTable(TableId(t)))));
            list
        })
}

fn flow_mod(
    m: Match,
    actions: Vec<Action>,
    n: [u16; 4],
    cookie: u64,
    command: u8,
    format: Format,
) -> FlowMod {
    let command = FlowModCommand::from_wire(command % 5).unwrap();
    FlowMod {
        format,
        command,
        table: TableId(n[0] as u8),
        cookie: 0,
        cookie_mask: 0,
        new_cookie: cookie,
        idle_timeout_s: n[1],
        hard_timeout_s: n[2],
        priority: n[3],
        buffer_id: NO_BUFFER,
        out_port: if command.deletes() { OfPort(5) } else { OfPort::NONE },
        out_group: GROUP_ANY,
        flags: FlowModFlags::SEND_FLOW_REM,
        importance: 0,
        matching: m.into(),
        actions,
    }
}

fn back(message: &Message, version: Version) -> Message {
    let bytes = encode_with(message, version, 3, &OPTIONS).expect("it encodes");
    decode_with(&bytes, &OPTIONS).unwrap_or_else(|e| panic!("{e}: {message:?}")).2
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flow_mods_of_1_0_survive(
        m in any_match(), actions in prop::collection::vec(action10(), 0..6),
        n: [u16; 4], cookie: u64, command: u8, look: (u64, u64),
    ) {
        // Actions that are instructions elsewhere follow the others.
        let mut actions = actions;
        actions.sort_by_key(Action::stage);
        let mut fm = flow_mod(m, actions, n, cookie, command, Format::Nxt);
        if fm.command != FlowModCommand::Add {
            (fm.cookie, fm.cookie_mask) = (look.0 & look.1, look.1);
        }
        let message = Message::FlowMod(fm);
        prop_assert_eq!(back(&message, Version::V10), message);
    }

    #[test]
    fn flow_mods_since_1_2_survive(
        m in any_match(), actions in instructions(), n: [u16; 4], cookie: u64, command: u8, look: (u64, u64),
        importance: u16,
    ) {
        let mut fm = flow_mod(m, actions, n, cookie, command, Format::Standard);
        if fm.command != FlowModCommand::Add {
            fm.new_cookie = u64::MAX;
            (fm.cookie, fm.cookie_mask) = (look.0 & look.1, look.1);
        }
        for version in [Version::V12, Version::V13, Version::V14, Version::V15] {
            let mut fm = fm.clone();
            if version >= Version::V14 {
                fm.importance = importance;
            }
            if version < Version::V13 {
                fm.actions.retain(|a| !matches!(a, Action::Meter(_)));
            }
            if version >= Version::V15 {
                fm.actions.retain(is_valid_set_field);
            }
            let sent = Message::FlowMod(fm.clone());
            fm.actions.iter_mut().for_each(|a| received(a, version));
            prop_assert_eq!(back(&sent, version), Message::FlowMod(fm));
        }
    }

    #[test]
    fn flow_mods_of_1_1_survive(
        m in any_match(), actions in prop::collection::vec(action11(), 0..6),
        n: [u16; 4], cookie: u64, command: u8, look: (u64, u64),
    ) {
        let mut fm = flow_mod(m, actions, n, cookie, command, Format::Standard);
        if fm.command != FlowModCommand::Add {
            fm.new_cookie = u64::MAX;
            (fm.cookie, fm.cookie_mask) = (look.0 & look.1, look.1 | 1);
            fm.cookie &= fm.cookie_mask;
        }
        fm.actions.iter_mut().for_each(|a| received(a, Version::V11));
        let message = Message::FlowMod(fm);
        prop_assert_eq!(back(&message, Version::V11), message);
    }

    #[test]
    fn statistics_and_removals_of_rules_survive(m in any_match(), numbers: [u32; 4], counts: [u64; 3], bits: [u16; 4]) {
        for version in ALL {
            let since = |first: Version, n: u16| if version >= first { n } else { 0 };
            let (fixed, old) = (version == Version::V10, version < Version::V12);
            let matching = if fixed { Match::catchall() } else { m };
            let stats = FlowStats {
                table: TableId(numbers[0] as u8),
                duration_s: numbers[1],
                duration_ns: numbers[2],
                priority: bits[0],
                idle_timeout_s: bits[1],
                hard_timeout_s: bits[2],
                idle_age_s: (version >= Version::V15).then_some(numbers[3]),
                hard_age_s: None,
                flags: FlowModFlags::from_bits_truncate(since(Version::V13, bits[3]) as u8),
                importance: since(Version::V14, bits[3]),
                cookie: counts[0],
                packet_count: counts[1],
                byte_count: counts[2],
                matching: matching.into(),
                actions: [].into(),
            };
            let message = Message::FlowStatsReply(Multi::all(vec![stats]));
            prop_assert_eq!(back(&message, version), message);
            let removed = FlowRemoved {
                format: Format::Standard,
                // OpenFlow 1.1 has the fixed structure here.
                matching: Box::new(if old { Match::catchall() } else { m }),
                cookie: counts[0],
                priority: bits[0],
                reason: FlowRemovedReason::HardTimeout,
                table: if fixed { TableId::ALL } else { TableId(numbers[0] as u8) },
                duration_s: numbers[1],
                duration_ns: numbers[2],
                idle_timeout_s: bits[1],
                hard_timeout_s: since(Version::V12, bits[2]),
                packet_count: counts[1],
                byte_count: counts[2],
            };
            prop_assert_eq!(back(&Message::FlowRemoved(removed.clone()), version), Message::FlowRemoved(removed));
            let sums = AggregateStats {
                format: Format::Standard,
                packet_count: counts[1],
                byte_count: counts[2],
                flow_count: numbers[0],
            };
            prop_assert_eq!(back(&Message::AggregateReply(sums), version), Message::AggregateReply(sums));
        }
    }

    #[test]
    fn fixed_matches_survive_when_they_fit(m in any_match()) {
        let mut fm = flow_mod(m, Vec::new(), [1; 4], 1, 0, Format::Standard);
        let fits = crate::match_fits_10(&fm.matching.unpack());
        let Message::FlowMod(got) = back(&Message::FlowMod(fm.clone()), Version::V10) else { unreachable!() };
        prop_assert_eq!(got.matching == fm.matching, fits);
        // A match decoded from the structure always fits.
        fm.matching = got.matching;
        prop_assert!(crate::match_fits_10(&fm.matching.unpack()));
    }

    #[test]
    fn random_bytes_never_break_the_codec(mut bytes in prop::collection::vec(any::<u8>(), 8..300), ty in 0..35u8, v in 1..=6u8) {
        let len = (bytes.len() as u16).to_be_bytes();
        bytes[..4].copy_from_slice(&[v, ty, len[0], len[1]]);
        fuzz::decode_message(&bytes);
        fuzz::roundtrip_match(&bytes[8..]);
        ofp_actions::fuzz::read_actions(&bytes[8..]);
        fuzz::session(&bytes);
    }
}

fn rule(i: u32) -> FlowStats {
    FlowStats {
        table: TableId(0),
        duration_s: i,
        duration_ns: 5,
        priority: 7,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        idle_age_s: None,
        hard_age_s: None,
        flags: FlowModFlags::empty(),
        importance: 0,
        cookie: i.into(),
        packet_count: 1,
        byte_count: 2,
        matching: Match::catchall().with(FieldId::EthType, 0x800).with(FieldId::IpDst, i.into()).into(),
        actions: [Action::Output(Output { port: OfPort(1), max_len_bytes: 0 })].into(),
    }
}

#[test]
fn large_replies_are_split_between_entries() {
    let rules: Vec<FlowStats> = (0..5000).map(rule).collect();
    for version in ALL {
        for format in [Format::Standard, Format::Nxt] {
            let reply = Message::FlowStatsReply(Multi { entries: rules.clone(), more: false, format });
            let bytes = encode(&reply, version, 9).unwrap();
            let frames = fuzz::split_frames(&bytes);
            assert_eq!(frames.iter().map(|f| f.len()).sum::<usize>(), bytes.len());
            assert!(frames.len() > 5);
            let mut got = Vec::new();
            for (i, frame) in frames.iter().enumerate() {
                let Ok((_, 9, Message::FlowStatsReply(part))) = crate::decode(frame) else {
                    panic!("part {i}")
                };
                assert_eq!(part.more, i + 1 < frames.len());
                assert!(frame.len() > 65000 || !part.more, "parts are filled");
                got.extend(part.entries);
            }
            assert_eq!(got, rules);
        }
    }
}

#[test]
fn a_rule_too_large_for_a_message_is_left_out_of_a_reply() {
    let mut huge = rule(1);
    huge.actions = [Action::Note(Note(vec![1; 60_006])), Action::Note(Note(vec![2; 6_006]))].into();
    let reply = Message::FlowStatsReply(Multi::all(vec![rule(0), huge.clone(), rule(2)]));
    let bytes = encode(&reply, Version::V13, 9).unwrap();
    let Message::FlowStatsReply(got) = crate::decode(&bytes).unwrap().2 else { panic!("not a reply") };
    assert_eq!(got.entries, [rule(0), rule(2)]);
    let fm = flow_mod(Match::catchall(), huge.actions.to_vec(), [0; 4], 0, 0, Format::Standard);
    assert!(encode(&Message::FlowMod(fm), Version::V13, 1).is_err());
}

#[test]
fn port_counters_survive_in_all_versions() {
    let stats =
        PortStats { port: OfPort::LOCAL, rx_packets: 1, collisions: u64::MAX, ..PortStats::default() };
    let message = Message::PortStatsReply(Multi::all(vec![stats]));
    for version in ALL {
        assert_eq!(back(&message, version), message);
    }
}
