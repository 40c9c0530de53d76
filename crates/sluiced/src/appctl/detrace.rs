//! `ofproto/detrace`: the rules and groups that a datapath flow comes from, by the effects kept for its statistics.
//!
//! Costs one search by ufid and thread; it walks over no flows.

use super::flows::rule_line;
use super::{Optional, Parsed, Reply, Rows, command, flows};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use dpif::PmdId;
use flow::Ufid;
use flow::text::NoPortNames;
use ofproto::ukey::UkeyState;
use ofproto::xlate::{XlateCache, XlateEffect};
use openflow::text::format_group;
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[&command(
    "ofproto/detrace",
    (Parsed("UFID", ufid), Optional(Parsed("pmd=PMD-ID", thread))),
    "list the OpenFlow rules and groups behind a datapath flow",
    detrace,
)];

/// Number of the thread of flows that are in a datapath without forwarding threads (`OVS_CORE_UNSPEC`).
const CORE_UNSPECIFIED: i64 = i32::MAX as i64;

/// `UFID [pmd=PMD-ID]`; without the latter, of any thread.
fn detrace(plane: &mut ControlPlane, (ufid, pmd): (Ufid, Option<PmdId>)) -> Reply {
    let mut out = String::new();
    for instance in plane.switch.instances().iter() {
        // Threads have the same translation, up to the time of a change.
        let threads = pmd.map_or_else(|| instance.datapath.pmds(), |pmd| vec![pmd]);
        out.extend(threads.into_iter().find_map(|pmd| of_flow(instance, ufid, pmd)));
    }
    out.into()
}

fn ufid(text: &str) -> Result<Ufid, String> {
    flows::ufid(text).map_err(|_| "failed to parse ufid".to_string())
}

/// `pmd=N`: a core; -1: the main thread; 2147483647: none.
pub(super) fn thread(text: &str) -> Result<PmdId, String> {
    let bad = "Invalid pmd argument format. Expecting 'pmd=PMD-ID'";
    match text.strip_prefix("pmd=").and_then(|n| n.parse::<i64>().ok()).ok_or(bad)? {
        -1 => Ok(PmdId::Main),
        CORE_UNSPECIFIED => Ok(PmdId::None),
        n => u16::try_from(n).map(PmdId::Core).map_err(|_| bad.to_string()),
    }
}

/// Rules and groups of a flow, if the thread has it.
fn of_flow(instance: &Instance, ufid: Ufid, pmd: PmdId) -> Option<String> {
    instance.backer.ukeys.with(ufid, pmd, |ukey| match ukey.state {
        UkeyState::Visible | UkeyState::Operational => lines(&ukey.cache),
        UkeyState::Evicting => String::new(),
    })
}

/// A line for each use of a rule or group, in the order of the translation.
fn lines(cache: &XlateCache) -> String {
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    for effect in cache.effects() {
        match effect {
            XlateEffect::Rule(rule) => {
                if rule.cookie != 0 {
                    let _ = write!(out, "cookie={:#x}, ", rule.cookie);
                }
                out += &rule_line(rule, now_ms, &NoPortNames);
            }
            XlateEffect::Group { group, bucket } => {
                let mut desc = group.desc();
                if let Some(chosen) = *bucket {
                    desc.buckets = desc.buckets.get(chosen).cloned().into_iter().collect();
                }
                let _ = writeln!(out, "{}", format_group(&desc, true, &NoPortNames));
            }
            XlateEffect::Table { .. }
            | XlateEffect::Normal { .. }
            | XlateEffect::Longer(_)
            | XlateEffect::Sent(_)
            | XlateEffect::Received(_)
            | XlateEffect::Mirrored(_)
            | XlateEffect::Alive(_)
            | XlateEffect::Bond { .. }
            | XlateEffect::FinTimeout { .. }
            | XlateEffect::Netflow(_)
            | XlateEffect::Neighbour { .. }
            | XlateEffect::Snooped { .. }
            | XlateEffect::Unresolved(_)
            | XlateEffect::Learn { .. } => {}
        }
    }
    if out.is_empty() { "Cache was not found.\n".to_string() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_numbers_of_the_stock_switch() {
        for (text, pmd) in [
            ("pmd=-1", PmdId::Main),
            ("pmd=3", PmdId::Core(3)),
            // As tools ask about flows of the kernel.
            ("pmd=2147483647", PmdId::None),
        ] {
            assert_eq!(thread(text), Ok(pmd));
        }
        for bad in ["3", "pmd=", "pmd=x", "pmd=70000", "pmd=-2"] {
            assert!(thread(bad).unwrap_err().ends_with("Expecting 'pmd=PMD-ID'"), "{bad}");
        }
    }
}
