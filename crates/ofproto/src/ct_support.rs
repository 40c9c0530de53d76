//! Whether a datapath can carry out matches and actions of connection tracking, and those on reserved bytes and option
//! type of neighbour discovery, which a kernel does not know.
//!
//! OVS checks the actions of a rule's own list only. This check also descends into nested lists, buckets and
//! packet-outs: none is accepted that the datapath would drop.

use dpif::{Capabilities, CtCapabilities};
use flow::fields::FieldId;
use flow::{Match, ct_state};
use ofp_actions::{Action, CloneList, Commit, Ct, WriteActions, Zone};
use ofp_wire::ErrorKind;
use ofp_wire::nxm::exists;

const ND_EXTENSION: [FieldId; 2] = [FieldId::NdReserved, FieldId::NdOptionsType];

/// Checks a rule's match.
///
/// # Errors
/// `NXBMC_CT_DATAPATH_SUPPORT`; `OFPBMC_BAD_FIELD` of neighbour discovery.
pub fn check_match(m: &Match, can: &Capabilities) -> Result<(), ErrorKind> {
    let has = |field: FieldId| m.get(field).1 != 0 && exists(field, m);
    if !can.nd_ext && ND_EXTENSION.into_iter().any(has) {
        return Err(ErrorKind::BmcBadField);
    }
    let (mask, can) = (&m.mask().0, &can.ct);
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
/// `NXBAC_CT_DATAPATH_SUPPORT`; `OFPBAC_BAD_SET_TYPE` of neighbour discovery.
pub fn check_actions(actions: &[Action], can: &Capabilities) -> Result<(), ErrorKind> {
    actions.iter().try_for_each(|action| check_action(action, can))
}

fn check_action(action: &Action, can: &Capabilities) -> Result<(), ErrorKind> {
    let lacks = |field: FieldId| !can.nd_ext && ND_EXTENSION.contains(&field);
    let can_do = if let Action::Ct(ct) = action {
        tracks(ct, &can.ct)
    } else if let Action::Resubmit(resubmit) = action {
        !resubmit.ct || can.ct.orig_tuple
    } else if let Action::SetField(set) = action {
        return if lacks(set.field) { Err(ErrorKind::BacBadSetType) } else { Ok(()) };
    } else if let Action::Move(copy) = action {
        let lacks = lacks(copy.dest.field) || lacks(copy.source.field);
        return if lacks { Err(ErrorKind::BacBadSetType) } else { Ok(()) };
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
        && (ct.alg == 0 || can.helpers)
        && ct.actions.iter().all(has_part)
}

#[cfg(test)]
pub(crate) mod tests;
