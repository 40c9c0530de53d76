//! Whether a datapath can carry out the connection tracking of matches and actions.
//!
//! OVS checks the actions of a rule's own list only. This check also descends into nested lists, buckets and
//! packet-outs: none is accepted that the datapath would drop.

use dpif::CtCapabilities;
use flow::fields::FieldId;
use flow::{Match, ct_state};
use ofp_actions::{Action, CloneList, Commit, Ct, WriteActions, Zone};
use ofp_wire::ErrorKind;

/// Checks a rule's match.
///
/// # Errors
/// `NXBMC_CT_DATAPATH_SUPPORT`.
pub fn check_match(m: &Match, can: &CtCapabilities) -> Result<(), ErrorKind> {
    let mask = &m.mask().0;
    let of_nat = mask.ct_state & (ct_state::SNAT | ct_state::DNAT) != 0;
    let ports = mask.ct_nw_proto != 0 || mask.ct_tp_src != 0 || mask.ct_tp_dst != 0;
    let v4 = mask.ct_nw_src != 0 || mask.ct_nw_dst != 0;
    let v6 = mask.ct_ipv6_src != [0; 16] || mask.ct_ipv6_dst != [0; 16];
    let lacks = mask.ct_state != 0 && !can.state
        || of_nat && !can.state_nat
        || mask.ct_zone != 0 && !can.zone
        || mask.ct_mark != 0 && !can.mark
        || mask.ct_label != [0; 16] && !can.label
        || ports && !can.orig_tuple && !can.orig_tuple6
        || v4 && !can.orig_tuple
        || v6 && !can.orig_tuple6;
    if lacks { Err(ErrorKind::NxbmcCtDatapathSupport) } else { Ok(()) }
}

/// Checks a list of actions.
///
/// # Errors
/// `NXBAC_CT_DATAPATH_SUPPORT`.
pub fn check_actions(actions: &[Action], can: &CtCapabilities) -> Result<(), ErrorKind> {
    actions.iter().try_for_each(|action| check_action(action, can))
}

fn check_action(action: &Action, can: &CtCapabilities) -> Result<(), ErrorKind> {
    let can_do = if let Action::Ct(ct) = action {
        tracks(ct, can)
    } else if let Action::Resubmit(resubmit) = action {
        !resubmit.ct || can.orig_tuple
    } else if let Action::Clone(CloneList(list)) | Action::WriteActions(WriteActions(list)) = action {
        return check_actions(list, can);
    } else {
        true
    };
    if can_do { Ok(()) } else { Err(ErrorKind::NxbacCtDatapathSupport) }
}

/// Whether the datapath executes a `ct`. Datapaths with `force` are those with the original direction.
fn tracks(ct: &Ct, can: &CtCapabilities) -> bool {
    let has_part = |action: &Action| {
        let field = if let Action::SetField(set) = action {
            set.field
        } else if let Action::Move(copy) = action {
            copy.dest.field
        } else {
            // `nat` is the only other one.
            return can.state_nat;
        };
        (field != FieldId::CtMark || can.mark) && (field != FieldId::CtLabel || can.label)
    };
    can.state
        && (ct.zone == Zone::Number(0) || can.zone)
        && (ct.commit != Commit::Force || can.orig_tuple)
        && ct.actions.iter().all(has_part)
}

#[cfg(test)]
pub(crate) mod tests;
