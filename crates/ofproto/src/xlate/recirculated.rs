//! The parts of a trace after its first translation: tracked copies of the packet, in the order of their `ct`.
//!
//! Bounds: [`PARTS_MAX`] parts, and as many copies that wait.

use super::Fork;
use flow::text::format_ct_state;
use flow::{Flow, ct_state};
use ofp_actions::{Nat, NatAddresses, NatSide};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// Maximum recirculations of a trace.
pub const PARTS_MAX: usize = 4096;

/// Copies that remain to be traced.
#[derive(Debug, Default)]
pub struct Recirculations {
    waiting: VecDeque<Fork>,
    /// States of the next copies (`--ct-next`).
    states: VecDeque<u32>,
    done: usize,
    /// Copies without a place in `waiting`.
    left_out: usize,
}

impl Recirculations {
    /// None so far. The first copies have these states, later ones that of a new connection.
    pub fn new(states: Vec<u32>) -> Recirculations {
        Recirculations { states: states.into(), ..Recirculations::default() }
    }

    /// Adds the copies of a translation.
    pub fn add(&mut self, forks: Vec<Fork>) {
        for fork in forks {
            if self.waiting.len() < PARTS_MAX {
                self.waiting.push_back(fork);
            } else {
                self.left_out += 1;
            }
        }
    }

    /// The next copy as the tracker leaves it, after its heading; without a copy the text ends the trace.
    pub fn next_part(&mut self) -> (Option<Flow>, String) {
        if self.done >= PARTS_MAX && !self.waiting.is_empty() {
            let n = self.waiting.len() + self.left_out;
            self.waiting.clear();
            let rule = "=".repeat(RULE_CHARS);
            let why = "Trace reached the recirculation limit.  Sopping the trace here.";
            return (None, format!("\n{rule}\n{why}\nQueued but not processed: {n} recirculations.\n"));
        }
        let Some(fork) = self.waiting.pop_front() else { return (None, String::new()) };
        self.done += 1;
        let (state, how) = match self.states.pop_front() {
            Some(state) => (state, format!("with ct_state={}", format_ct_state(state))),
            None => {
                let how = "with default ct_state=trk|new (use --ct-next to customize)";
                (ct_state::TRK | ct_state::NEW, how.to_string())
            }
        };
        let rule = "=".repeat(RULE_CHARS);
        let mut flow = Flow { ct_state: state, ..fork.flow };
        let mut heading = format!("\n{rule}\nrecirc({:#x}) - resume conntrack {how}\n", fork.id.0);
        if let Some(nat) = &fork.nat {
            heading += "Replacing src/dst IP/ports to simulate NAT:\n";
            let _ = writeln!(heading, " Initial flow: {}", addresses(&flow, nat));
            replace(&mut flow, nat);
            let _ = writeln!(heading, " Modified flow: {}", addresses(&flow, nat));
        }
        (Some(flow), format!("{heading}{rule}\n\n"))
    }
}

/// Length of the rule around a heading.
const RULE_CHARS: usize = 79;

/// Addresses and ports, of the address family of the new ones.
fn addresses(flow: &Flow, nat: &Nat) -> String {
    let (src_port, dst_port) = (flow.tp_src, flow.tp_dst);
    match nat.range.map(|range| range.addresses) {
        None => String::new(),
        Some(NatAddresses::V4(..)) => {
            let [src, dst] = [flow.nw_src, flow.nw_dst].map(std::net::Ipv4Addr::from);
            format!("nw_src={src},tp_src={src_port},nw_dst={dst},tp_dst={dst_port}")
        }
        Some(NatAddresses::V6(..)) => {
            let [src, dst] = [flow.ipv6_src, flow.ipv6_dst].map(Ipv6Addr::from);
            format!("ipv6_src=[{src}],tp_src={src_port},ipv6_dst=[{dst}],tp_dst={dst_port}")
        }
    }
}

/// Replaces an address and a port by the first of the range.
fn replace(flow: &mut Flow, nat: &Nat) {
    let (Some(side), Some(range)) = (nat.side, nat.range) else { return };
    let is_src = side == NatSide::Src;
    match range.addresses {
        NatAddresses::V4(first, _) => {
            *(if is_src { &mut flow.nw_src } else { &mut flow.nw_dst }) = first.into();
        }
        NatAddresses::V6(first, _) => {
            *(if is_src { &mut flow.ipv6_src } else { &mut flow.ipv6_dst }) = first.octets();
        }
    }
    if let Some((first, _)) = range.ports {
        *(if is_src { &mut flow.tp_src } else { &mut flow.tp_dst }) = first;
    }
}
