//! Random rules: matches and actions over the addresses of [`crate::frames`], valid by OpenFlow's rules, and
//! the fixed rules for the bundle check.

use crate::frames::{BUNDLE_MAC, BUNDLE_PORT, HOSTS, ipv4, ipv6, mac};
use crate::rng::Rng;
use flow::SubField;
use flow::ct_state::{DNAT, EST, INV, NEW, RPL, SNAT, TRK};
use flow::fields::FieldId as F;
use flow::{MacAddr, Match, OfPort, TableId};
use ofp_actions::{
    Action, ClearActions, Commit, ControllerAction, Ct, CtClear, DebugRecirc, DebugSlow, DecTtl, Exit,
    FinTimeout, GotoTable, LearnAction, LearnDest, LearnSource, LearnSpec, Meter, Move, Nat, NatAddresses,
    NatRange, NatSelection, NatSide, Output, OutputReg, PacketInReason, PushVlan, Resubmit, SetEthDst,
    SetField, SetIpDscp, SetIpTtl, SetIpv4Src, SetL4Dst, SetStyle, SetVlanPcp, SetVlanVid, StackPop,
    StackPush, StripVlan, WriteActions, WriteMetadata, Zone,
};
use ofproto::rule::{Rule, RuleStats, RuleTimeouts};
use openflow::msg::flow_mod::FlowModFlags;
use packet::headers as h;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Tables of random rules.
pub(crate) const RANDOM_TABLES: u8 = 5;
/// Table of learned rules.
pub(crate) const LEARN_TABLE: TableId = TableId(20);
/// Cookie of learned rules with a limit.
pub(crate) const LIMITED_COOKIE: u64 = 1;
/// Limit of such rules.
pub(crate) const LEARN_LIMIT: u32 = 4;
/// Tables of the two rules that a bundle changes together.
pub(crate) const BUNDLE_TABLES: [TableId; 2] = [TableId(60), TableId(61)];
/// Tables of tracked packets, before and after a commit.
pub(crate) const TRACKED_TABLES: [TableId; 2] = [TableId(30), TableId(31)];
/// Meters available to rules.
pub(crate) const METERS: u32 = 2;

/// Limits of random rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Packets of a flow must leave in order: no action may divert single packets.
    pub(crate) ordered: bool,
    /// Rules track connections.
    pub(crate) tracks: bool,
    /// Some connections get a helper.
    pub(crate) helps: bool,
    /// Highest OpenFlow port.
    pub(crate) ports: u32,
}

fn mac_number(host: u64) -> u128 {
    MacAddr(mac(host)).to_u64().into()
}

fn prefix(bits: u64) -> u128 {
    (u64::from(u32::MAX) << (32 - bits) & u64::from(u32::MAX)).into()
}

/// A match with its prerequisites.
pub(crate) fn random_match(rng: &mut Rng, profile: &Profile) -> Match {
    let mut m = Match::catchall();
    if rng.one_in(3) {
        m.set(F::InPort, rng.range(1, profile.ports.into()).into());
    }
    if rng.one_in(4) {
        m.set(F::EthDst, mac_number(rng.below(HOSTS)));
    }
    if rng.one_in(8) {
        m.set_masked(F::EthSrc, mac_number(rng.below(HOSTS)), 0x3);
    }
    match rng.below(12) {
        0 => drop(m.set(F::DlVlan, rng.below(4).into()).set(F::EthType, 0x800)),
        1 => drop(m.set_masked(F::VlanTci, 0x1000, 0x1000)),
        2 => drop(m.set(F::VlanTci, 0)),
        3 => drop(m.set(F::DlVlanPcp, (rng.below(3) * 2).into())),
        _ => {}
    }
    if rng.one_in(10) {
        m.set(F::Reg0, rng.below(3).into());
    }
    if rng.one_in(12) {
        m.set_masked(F::Metadata, rng.below(4).into(), 3);
    }
    if profile.tracks && rng.one_in(4) {
        match_connection(rng, &mut m);
    }
    match rng.below(8) {
        0..=2 => match_ipv4(rng, &mut m),
        3 => match_ipv6(rng, &mut m),
        4 => match_arp(rng, &mut m),
        _ => {}
    }
    m
}

fn match_connection(rng: &mut Rng, m: &mut Match) {
    const STATES: [(u32, u32); 8] = [
        (0, TRK),
        (TRK | NEW, TRK | NEW),
        (TRK | EST, TRK | EST),
        (TRK | EST, TRK | EST | RPL),
        (TRK | RPL, TRK | RPL),
        (TRK | INV, TRK | INV),
        (TRK | SNAT, TRK | SNAT),
        (TRK, TRK | DNAT | INV),
    ];
    let (state, mask) = *rng.pick(&STATES);
    m.set_masked(F::CtState, state.into(), mask.into());
    match rng.below(6) {
        0 => drop(m.set(F::CtZone, rng.below(3).into())),
        1 => drop(m.set_masked(F::CtMark, rng.below(4).into(), 3)),
        2 => drop(m.set_masked(F::CtLabel, u128::from(rng.below(2)) << 96, 1 << 96)),
        _ => {}
    }
}

fn match_ipv4(rng: &mut Rng, m: &mut Match) {
    m.set(F::EthType, h::ETH_TYPE_IP.into());
    if rng.one_in(2) {
        let mask = prefix(*rng.pick(&[8, 16, 24, 32]));
        m.set_masked(F::IpDst, ipv4(rng.below(HOSTS)).into(), mask);
    }
    if rng.one_in(3) {
        let mask = prefix(*rng.pick(&[12, 16, 24, 32]));
        m.set_masked(F::IpSrc, ipv4(rng.below(HOSTS)).into(), mask);
    }
    match rng.below(12) {
        0 => drop(m.set(F::NwTtl, *rng.pick(&[1, 2, 64]))),
        1 => drop(m.set(F::IpDscp, 4)),
        2 => drop(m.set_masked(F::IpFrag, rng.below(4).into(), 3)),
        3 => drop(m.set(F::NwEcn, 2)),
        _ => {}
    }
    match_ports(rng, m);
}

fn match_ports(rng: &mut Rng, m: &mut Match) {
    let (proto, src, dst) =
        *rng.pick(&[(6, F::TcpSrc, F::TcpDst), (17, F::UdpSrc, F::UdpDst), (132, F::SctpSrc, F::SctpDst)]);
    if rng.one_in(3) {
        return;
    }
    m.set(F::NwProto, proto);
    if rng.one_in(2) {
        m.set_masked(dst, rng.range(1, 4).into(), *rng.pick(&[0xffff, 0xfffe, 0xff00]));
    }
    if rng.one_in(3) {
        m.set(src, rng.range(1, 4).into());
    }
    if proto == 6 && rng.one_in(3) {
        m.set_masked(F::TcpFlags, *rng.pick(&[2, 0x10]), *rng.pick(&[0xfff, 0x12]));
    }
}

fn match_ipv6(rng: &mut Rng, m: &mut Match) {
    m.set(F::EthType, h::ETH_TYPE_IPV6.into());
    if rng.one_in(2) {
        let mask = u128::MAX << *rng.pick(&[0, 32, 64, 96]);
        m.set_masked(F::Ipv6Dst, u128::from_be_bytes(ipv6(rng.below(HOSTS))), mask);
    }
    match rng.below(4) {
        0 => {
            m.set(F::NwProto, 58).set(F::Icmpv6Type, 135).set(F::Icmpv6Code, 0);
            if rng.one_in(3) {
                m.set(F::NdReserved, rng.below(2).into());
            }
            if rng.one_in(3) {
                m.set(F::NdOptionsType, rng.below(3).into());
            }
            if rng.one_in(2) {
                m.set(F::NdTarget, u128::from_be_bytes(ipv6(rng.below(HOSTS))));
            }
        }
        1 => drop(m.set(F::Ipv6Label, rng.below(2).into())),
        _ => match_ports(rng, m),
    }
}

fn match_arp(rng: &mut Rng, m: &mut Match) {
    m.set(F::EthType, h::ETH_TYPE_ARP.into());
    if rng.one_in(2) {
        m.set(F::ArpOp, rng.range(1, 2).into());
    }
    if rng.one_in(2) {
        m.set(F::ArpTpa, ipv4(rng.below(HOSTS)).into());
    }
    if rng.one_in(3) {
        m.set(F::ArpSha, mac_number(rng.below(HOSTS)));
    }
}

fn output(port: OfPort) -> Action {
    Action::Output(Output { port, max_len_bytes: 0 })
}

fn set(field: F, value: u128) -> Action {
    Action::SetField(SetField { field, value, mask: field.full_mask(), style: SetStyle::SetField })
}

/// A list of actions for a rule of `table`.
pub(crate) fn random_actions(rng: &mut Rng, table: u8, profile: &Profile) -> Vec<Action> {
    let mut actions = Vec::new();
    if rng.one_in(15) {
        actions.push(Action::Meter(Meter(rng.range(1, METERS.into()) as u32)));
    }
    for _ in 0..rng.below(4) {
        actions.push(random_action(rng, table, profile));
    }
    if profile.tracks && rng.one_in(3) {
        actions.push(if rng.one_in(6) { Action::CtClear(CtClear) } else { random_ct(rng, table, profile) });
    }
    match rng.below(6) {
        0 if table + 1 < RANDOM_TABLES => {
            let to = rng.range(u64::from(table) + 1, u64::from(RANDOM_TABLES) - 1);
            actions.push(Action::GotoTable(GotoTable(TableId(to as u8))));
        }
        1 | 2 => actions.push(output(OfPort::NORMAL)),
        3 | 4 => actions.push(output(OfPort(rng.range(1, profile.ports.into()) as u32))),
        _ => {}
    }
    actions
}

fn random_action(rng: &mut Rng, table: u8, profile: &Profile) -> Action {
    match rng.below(20) {
        0 => output(OfPort(rng.range(1, u64::from(profile.ports) + 1) as u32)),
        1 => output(*rng.pick(&[OfPort::IN_PORT, OfPort::FLOOD, OfPort::ALL, OfPort::NORMAL])),
        2..=4 if table + 1 < RANDOM_TABLES => {
            let to = TableId(rng.range(u64::from(table) + 1, u64::from(RANDOM_TABLES) - 1) as u8);
            Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(to), ct: false })
        }
        5 => Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(LEARN_TABLE), ct: false }),
        6 => Action::Learn(Box::new(random_learn(rng))),
        7 => Action::DecTtl(DecTtl { controllers: if profile.ordered { vec![] } else { vec![0] } }),
        8 if !profile.ordered => Action::DebugRecirc(DebugRecirc),
        9 if !profile.ordered && rng.one_in(2) => Action::DebugSlow(DebugSlow),
        9 if !profile.ordered => Action::Controller(Box::new(controller(rng.below(3) as u16))),
        10 => random_vlan_action(rng),
        11 => {
            let mut inner = vec![random_set(rng)];
            if rng.one_in(2) {
                inner.push(output(OfPort(rng.range(1, profile.ports.into()) as u32)));
            }
            Action::WriteActions(WriteActions(inner))
        }
        12 => Action::ClearActions(ClearActions),
        13 if rng.one_in(4) => Action::Exit(Exit),
        17 => Action::FinTimeout(FinTimeout {
            idle_timeout_s: rng.below(3) as u16,
            hard_timeout_s: rng.below(5) as u16,
        }),
        14 => Action::Move(Move {
            source: SubField::whole(F::Reg0),
            dest: SubField::whole(F::Reg1),
            is_onf: false,
        }),
        15 => Action::Move(Move {
            source: SubField { field: F::EthSrc, offset_bits: 0, len_bits: 4 },
            dest: SubField { field: F::Reg0, offset_bits: 0, len_bits: 4 },
            is_onf: false,
        }),
        16 => rng
            .pick(&[
                Action::StackPush(StackPush(SubField { field: F::EthDst, offset_bits: 0, len_bits: 8 })),
                Action::StackPop(StackPop(SubField { field: F::Reg0, offset_bits: 0, len_bits: 8 })),
                Action::OutputReg(OutputReg {
                    source: SubField { field: F::Reg0, offset_bits: 0, len_bits: 16 },
                    max_len_bytes: 0,
                }),
                Action::WriteMetadata(WriteMetadata { value: 2, mask: 3 }),
            ])
            .clone(),
        _ => random_set(rng),
    }
}

/// A `ct` that continues in a later table, or in none.
fn random_ct(rng: &mut Rng, table: u8, profile: &Profile) -> Action {
    let later = (table + 1 < RANDOM_TABLES).then(|| {
        let to = rng.range(u64::from(table) + 1, u64::from(RANDOM_TABLES) - 1);
        TableId(to as u8)
    });
    let commit = *rng.pick(&[Commit::No, Commit::No, Commit::Yes, Commit::Yes, Commit::Force]);
    let mut actions = Vec::new();
    let is_commit = commit != Commit::No;
    match rng.below(4) {
        0 => actions.push(Action::Nat(Box::default())),
        1 if is_commit => actions.push(nat(rng, NatSide::Src)),
        2 if is_commit => actions.push(nat(rng, NatSide::Dst)),
        _ => {}
    }
    if is_commit && rng.one_in(2) {
        actions.push(set(F::CtMark, rng.below(4).into()));
    }
    if is_commit && rng.one_in(3) {
        actions.push(set(F::CtLabel, u128::from(rng.below(2)) << 96));
    }
    let zone = match rng.one_in(4) {
        true => Zone::Field(SubField { field: F::Reg0, offset_bits: 0, len_bits: 16 }),
        false => Zone::Number(rng.below(3) as u16),
    };
    let alg = if is_commit { helper(rng, profile) } else { 0 };
    Action::Ct(Box::new(Ct { commit, zone, table: later, alg, actions }))
}

/// The port of a helper, or 0.
fn helper(rng: &mut Rng, profile: &Profile) -> u16 {
    if profile.helps { *rng.pick(&[0, 21, 21, 69]) } else { 0 }
}

/// A translation to few tuples, some of them of hosts.
fn nat(rng: &mut Rng, side: NatSide) -> Action {
    let first = Ipv4Addr::from(ipv4(rng.below(HOSTS)));
    let [a, b, c, d] = first.octets();
    let last = rng.one_in(2).then(|| Ipv4Addr::new(a, b, c, d + 1));
    let ports = rng.one_in(2).then(|| (1, Some(rng.range(1, 4) as u16)));
    let range = NatRange { addresses: NatAddresses::V4(first, last), ports };
    let selection = *rng.pick(&[None, Some(NatSelection::Hash), Some(NatSelection::Random)]);
    Action::Nat(Box::new(Nat { side: Some(side), range: Some(range), persistent: rng.one_in(2), selection }))
}

/// Rules above all random ones: IPv4 of some hosts goes through the tracker first, new connections are committed with a
/// translation, and all tracked packets go on to the random rules.
pub(crate) fn tracking_rules(rng: &mut Rng, profile: &Profile, now_ms: u64) -> Vec<Rule> {
    let resubmit = |table| {
        Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(TableId(table)), ct: false })
    };
    let zone = Zone::Number(1);
    let (known, committed) = (TRACKED_TABLES[0], TRACKED_TABLES[1]);
    let mut some_hosts = Match::catchall().with(F::EthType, h::ETH_TYPE_IP.into());
    some_hosts.set_masked(F::IpDst, ipv4(0).into(), prefix(15));
    let undo = vec![Action::Nat(Box::default())];
    let track = Ct { commit: Commit::No, zone, table: Some(known), alg: 0, actions: undo };
    let mut is_new = Match::catchall().with(F::EthType, h::ETH_TYPE_IP.into());
    is_new.set_masked(F::CtState, (TRK | NEW).into(), (TRK | NEW).into());
    let side = *rng.pick(&[NatSide::Src, NatSide::Dst]);
    let actions = vec![nat(rng, side), set(F::CtMark, 1)];
    let alg = helper(rng, profile);
    let commit = Ct { commit: Commit::Yes, zone, table: Some(committed), alg, actions };
    let on = vec![resubmit(1), output(OfPort::NORMAL)];
    vec![
        rule(TableId(0), 30, some_hosts, vec![Action::Ct(Box::new(track))], now_ms),
        rule(known, 2, is_new, vec![Action::Ct(Box::new(commit))], now_ms),
        rule(known, 1, Match::catchall(), on.clone(), now_ms),
        rule(committed, 1, Match::catchall(), on, now_ms),
    ]
}

fn controller(id: u16) -> ControllerAction {
    ControllerAction {
        max_len_bytes: 128,
        controller_id: id,
        reason: PacketInReason::Action,
        userdata: Vec::new(),
        pause: false,
        meter_id: None,
    }
}

fn random_vlan_action(rng: &mut Rng) -> Action {
    match rng.below(6) {
        0 => Action::StripVlan(StripVlan { pop: false }),
        1 => Action::PushVlan(PushVlan(*rng.pick(&[h::ETH_TYPE_VLAN, h::ETH_TYPE_VLAN_8021AD]))),
        2 => Action::SetVlanVid(SetVlanVid { vid: rng.below(3) as u16 * 5, push: true }),
        3 => Action::SetVlanPcp(SetVlanPcp { pcp: rng.below(8) as u8, push: true }),
        4 => set(F::VlanVid, 0x1000 | u128::from(rng.below(3) * 5)),
        _ => set(F::VlanPcp, rng.below(8).into()),
    }
}

fn random_set(rng: &mut Rng) -> Action {
    let host = rng.below(HOSTS);
    match rng.below(18) {
        0 => set(F::EthSrc, mac_number(host)),
        1 => Action::SetEthDst(SetEthDst(MacAddr(mac(host)))),
        2 => Action::SetIpv4Src(SetIpv4Src(ipv4(host))),
        3 => set(F::IpDst, ipv4(host).into()),
        4 => set(F::Ipv6Dst, u128::from_be_bytes(ipv6(host))),
        5 => Action::SetIpDscp(SetIpDscp(0x28)),
        6 => Action::SetIpTtl(SetIpTtl(rng.range(1, 3) as u8)),
        7 => Action::SetL4Dst(SetL4Dst(rng.range(1, 4) as u16)),
        8 => set(F::TcpSrc, rng.range(1, 4).into()),
        9 => set(F::UdpDst, rng.range(1, 4).into()),
        10 => set(F::Reg0, rng.below(3).into()),
        11 => set(F::ArpOp, rng.range(1, 2).into()),
        12 => set(F::NdTarget, u128::from_be_bytes(ipv6(host))),
        13 => Action::SetField(SetField { field: F::IpSrc, value: 5, mask: 0xff, style: SetStyle::SetField }),
        14 => set(F::PktMark, rng.below(3).into()),
        15 => set(F::NdReserved, rng.below(2).into()),
        16 => set(F::NdOptionsType, rng.below(3).into()),
        _ => set(F::Icmpv6Type, 136),
    }
}

/// A MAC learner: packets to the source of this one go to its input port.
fn random_learn(rng: &mut Rng) -> LearnAction {
    let cookie = rng.below(2);
    let whole = |field| LearnSource::Field(SubField::whole(field));
    LearnAction {
        idle_timeout_s: rng.below(4) as u16,
        hard_timeout_s: if rng.one_in(3) { rng.range(1, 10) as u16 } else { 0 },
        priority: 100,
        cookie,
        table: LEARN_TABLE,
        send_flow_rem: false,
        delete_learned: false,
        fin_idle_timeout_s: rng.below(3) as u16,
        fin_hard_timeout_s: rng.below(3) as u16,
        limit: if cookie == LIMITED_COOKIE { LEARN_LIMIT } else { 0 },
        result_dst: rng.one_in(3).then_some(SubField { field: F::Reg2, offset_bits: 0, len_bits: 1 }),
        specs: vec![
            LearnSpec {
                source: whole(F::EthSrc),
                dest: LearnDest::Match(SubField::whole(F::EthDst)),
                len_bits: 48,
            },
            LearnSpec { source: whole(F::InPort), dest: LearnDest::Output, len_bits: 16 },
        ],
    }
}

/// A rule created now.
pub(crate) fn rule(table: TableId, priority: i32, m: Match, actions: Vec<Action>, now_ms: u64) -> Rule {
    let stats = RuleStats::default();
    stats.credit(0, 0, now_ms);
    Rule {
        table,
        matching: m.into(),
        priority,
        cookie: 0,
        timeouts: RuleTimeouts::new(0, 0, &actions),
        importance: 0,
        flags: FlowModFlags::empty(),
        actions: actions.into(),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(stats),
    }
}

/// The rules of a version of the bundle: two that must agree, in two tables.
pub(crate) fn bundle_rules(version: u8, now_ms: u64) -> [Rule; 2] {
    let address = u128::from(MacAddr([BUNDLE_MAC, 0, 0, 0, 0, version]).to_u64());
    let first = vec![
        set(F::EthDst, address),
        Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(BUNDLE_TABLES[1]), ct: false }),
    ];
    let second = vec![set(F::EthSrc, address), output(OfPort(1)), output(OfPort(2))];
    [
        rule(BUNDLE_TABLES[0], 1, Match::catchall(), first, now_ms),
        rule(BUNDLE_TABLES[1], 1, Match::catchall(), second, now_ms),
    ]
}

/// The rule that sends marked packets to the bundle's tables, above all random ones.
pub(crate) fn bundle_entry(now_ms: u64) -> Rule {
    let m = Match::catchall()
        .with(F::EthType, h::ETH_TYPE_IP.into())
        .with(F::NwProto, h::IPPROTO_UDP.into())
        .with(F::UdpDst, BUNDLE_PORT.into());
    let to =
        Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(BUNDLE_TABLES[0]), ct: false });
    rule(TableId(0), 60_000, m, vec![to], now_ms)
}

/// The rule below all random rules.
pub(crate) fn fallback(now_ms: u64) -> Rule {
    rule(TableId(0), 0, Match::catchall(), vec![output(OfPort::NORMAL)], now_ms)
}
