//! Debug lines of the log about upcalls and flow operations, under the module and in the words of OVS (`dpif`).
//!
//! Without that level each function costs one load per batch.

use dpif::text::{FlowFormat, NumbersOnly, format_actions, format_key_mask};
use dpif::{DpifOp, PutMode, Upcall, UpcallKind};
use flow::{DpPort, FLOW_WORDS, Flow, FlowKey, Mask, OfPort};
use log::Level;

const MODULE: &str = "dpif";

fn is_on() -> bool {
    log::log_enabled!(target: MODULE, Level::Debug)
}

/// Logs upcalls of a datapath: keys, and packets as flows.
pub fn log_upcalls(datapath: &str, upcalls: &[Box<Upcall>]) {
    if !is_on() {
        return;
    }
    for upcall in upcalls {
        let kind = match upcall.kind {
            UpcallKind::Miss => "miss",
            UpcallKind::Action(..) => "action",
        };
        let format = FlowFormat::brief(&NumbersOnly);
        let all = Mask(Flow::from_words([u64::MAX; FLOW_WORDS]));
        let exact = FlowKey::from_mask(&all, &upcall.key);
        let key = format_key_mask(&upcall.key, &exact, &format);
        let DpPort(port) = upcall.key.in_port();
        let packet = flow::text::format_flow(&upcall.key.to_flow(OfPort(port)));
        log::debug!(target: MODULE, "{datapath}: {kind} upcall:\n{key}\n{packet}");
    }
}

/// Logs flows put, changed and deleted.
pub fn log_operations(datapath: &str, ops: &[DpifOp]) {
    if !is_on() {
        return;
    }
    for op in ops {
        if let DpifOp::FlowPut(put) = op {
            let mode = match put.mode {
                PutMode::Create => "create",
                PutMode::Modify => "modify",
            };
            let format = FlowFormat::brief(&NumbersOnly);
            let key = format_key_mask(&put.key, &put.mask, &format);
            let actions = format_actions(&put.actions, &NumbersOnly);
            log::debug!(target: MODULE, "{datapath}: put[{mode}] ufid:{} {key}, actions:{actions}", put.ufid);
        } else if let DpifOp::FlowDel(ufid) = op {
            log::debug!(target: MODULE, "{datapath}: flow_del ufid:{ufid}");
        } else if let DpifOp::FlowFlush = op {
            log::debug!(target: MODULE, "{datapath}: flow_flush success");
        }
    }
}
