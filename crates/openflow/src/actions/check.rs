//! Consistency of a list of actions with the match that it stands with and with the switch's limits.
//!
//! The flow that the list works on is followed: a tag pushed is there for the actions behind it. In OpenFlow 1.0 a legacy
//! action that does not fit the packet does nothing; from 1.1 on it is an error (OpenFlow 1.3 §7.2.4 and §5.9).

use flow::action::{Action, LearnAction, LearnDest, LearnSource, SubField};
use flow::fields::Prereq;
use flow::{Flow, Match, OfPort, TableId, VlanTag};
use ofp_wire::ErrorKind;
use ofp_wire::Res;
use ofp_wire::Version;

/// Lists deeper than this are refused (a list of actions holds action sets, and those hold none).
const MAX_DEPTH: u8 = 2;

/// What actions are held against.
pub struct CheckContext<'a> {
    /// Version of the connection; from 1.1 on legacy actions must fit the match.
    pub version: Version,
    /// Ports have numbers below this.
    pub max_ports: u32,
    /// How many tables there are.
    pub n_tables: u8,
    /// The rule's table; `None` for a packet-out.
    pub table: Option<TableId>,
    /// Whether actions for tests of a switch (`debug_recirc`, `debug_slow`) are known.
    pub debug_actions: bool,
    /// Whether a meter exists.
    pub has_meter: &'a dyn Fn(u32) -> bool,
}

/// Checks `actions` for use with `m`. The error is what to answer with.
pub fn check_actions(actions: &[Action], m: &Match, cx: &CheckContext<'_>) -> Result<(), ErrorKind> {
    let mut flow = *m.flow();
    if !Prereq::Connection.holds(&flow, Some(&m.mask().0)) {
        // It may be tracked and yet belong to no connection.
        flow.ct_state &= !flow::ct_state::TRK;
    }
    check_list(actions, &mut flow, cx, 0)
}

fn check_list(actions: &[Action], flow: &mut Flow, cx: &CheckContext<'_>, depth: u8) -> Res<()> {
    if depth >= MAX_DEPTH {
        return Err(ErrorKind::BacTooMany);
    }
    actions.iter().try_for_each(|a| check_action(a, flow, cx, depth))
}

fn check_action(a: &Action, flow: &mut Flow, cx: &CheckContext<'_>, depth: u8) -> Res<()> {
    // What an action set meets when it is carried out is not known here.
    let lenient = cx.version == Version::V10 || depth > 0;
    let fits = |ok: bool| if ok || lenient { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) };
    let l4 =
        flow.is_ip() && matches!(flow.nw_proto, 6 | 17 | 132) && flow.nw_frag & flow::nw_frag::LATER == 0;
    match a {
        Action::Output { port, .. } => check_port(*port, cx),
        Action::OutputReg { source, .. } | Action::StackPush(source) => check_source(*source, flow),
        Action::Enqueue { port, .. } => {
            let ok = port.0 < cx.max_ports || *port == OfPort::IN_PORT || *port == OfPort::LOCAL;
            if ok { Ok(()) } else { Err(ErrorKind::BacBadOutPort) }
        }
        Action::SetField { field, value, mask, .. } => {
            check_dest(SubField::whole(*field), flow)?;
            let set = field.get(flow) & !mask | value & mask;
            if matches!(field, flow::fields::FieldId::VlanTci | flow::fields::FieldId::VlanVid) {
                field.set(flow, set);
            }
            Ok(())
        }
        Action::Move { source, dest } => {
            check_source(*source, flow)?;
            check_dest(*dest, flow)
        }
        Action::StackPop(dest) => check_dest(*dest, flow),
        Action::SetVlanVid(_) | Action::SetVlanPcp(_) => {
            flow.vlans[0].tci |= VlanTag::PRESENT;
            Ok(())
        }
        Action::PushVlan(tpid) => {
            flow.vlans = [VlanTag { tpid: *tpid, tci: VlanTag::PRESENT }, flow.vlans[0]];
            Ok(())
        }
        Action::StripVlan => {
            fits(flow.vlans[0].is_present())?;
            flow.vlans = [flow.vlans[1], VlanTag::default()];
            Ok(())
        }
        Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => fits(flow.dl_type == 0x0800),
        Action::SetIpDscp(_) | Action::SetIpEcn(_) | Action::SetIpTtl(_) | Action::DecTtl { .. } => {
            fits(flow.is_ip())
        }
        Action::SetL4Src(_) | Action::SetL4Dst(_) => fits(l4),
        Action::FinTimeout { .. } => fits(flow.is_ip() && flow.nw_proto == 6),
        Action::Learn(l) => check_learn(l, flow, cx),
        // A meter that is not there limits nothing, as in OVS; to freeze for a controller is not known here.
        Action::Controller(c) if c.pause => Err(ErrorKind::BpcBadType),
        Action::Meter(id) => check_meter(*id, cx),
        Action::DebugRecirc | Action::DebugSlow if !cx.debug_actions => Err(ErrorKind::BacBadExpType),
        Action::WriteActions(set) => check_list(set, &mut flow.clone(), cx, depth + 1),
        Action::GotoTable(to) => check_goto(*to, cx),
        _ => Ok(()),
    }
}

fn check_port(port: OfPort, cx: &CheckContext<'_>) -> Res<()> {
    let special = [
        OfPort::IN_PORT,
        OfPort::TABLE,
        OfPort::NORMAL,
        OfPort::FLOOD,
        OfPort::ALL,
        OfPort::CONTROLLER,
        OfPort::LOCAL,
    ];
    if port.0 < cx.max_ports || special.contains(&port) { Ok(()) } else { Err(ErrorKind::BacBadOutPort) }
}

fn check_meter(id: u32, cx: &CheckContext<'_>) -> Res<()> {
    if (cx.has_meter)(id) { Ok(()) } else { Err(ErrorKind::MmfcInvalidMeter) }
}

fn check_goto(to: TableId, cx: &CheckContext<'_>) -> Res<()> {
    let ahead = cx.table.is_none_or(|from| from == TableId::ALL || to > from);
    if ahead && to.0 < cx.n_tables { Ok(()) } else { Err(ErrorKind::BicBadTableId) }
}

fn check_source(s: SubField, flow: &Flow) -> Res<()> {
    if !s.is_valid() {
        return Err(ErrorKind::BacBadSetLen);
    }
    if s.field.prereq_holds(flow, None) { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) }
}

fn check_dest(s: SubField, flow: &Flow) -> Res<()> {
    check_source(s, flow)?;
    if s.field.def().writable { Ok(()) } else { Err(ErrorKind::BacBadSetArgument) }
}

fn check_learn(l: &LearnAction, flow: &Flow, cx: &CheckContext<'_>) -> Res<()> {
    if l.table.0 >= cx.n_tables {
        return Err(ErrorKind::BacBadArgument);
    }
    if let Some(dst) = l.result_dst {
        check_dest(dst, flow)?;
    }
    let mut learned = Match::catchall();
    for spec in &l.specs {
        if let LearnSource::Field(s) = spec.source {
            check_source(s, flow)?;
        }
        match spec.dest {
            LearnDest::Match(d) => {
                check_source(d, learned.flow())?;
                if let LearnSource::Immediate(value) = spec.source {
                    let (was, mask) = learned.get(d.field);
                    let bits = d.field_mask();
                    let value = was & !bits | value << d.offset_bits & bits;
                    learned.set_masked(d.field, value, mask | bits);
                }
            }
            LearnDest::Load(d) => check_dest(d, learned.flow())?,
            LearnDest::Output => {}
        }
    }
    Ok(())
}
