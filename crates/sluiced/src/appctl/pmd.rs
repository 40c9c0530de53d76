//! Commands about forwarding threads.

use super::datapath::{WithThreads, with_threads};
use super::{Form, Reply, Rows, command};
use crate::control_plane::ControlPlane;
use crate::switch::Switch;
use dpif::PmdId;
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpif-netdev/pmd-stats-clear",
        Form("[-pmd core] [dp]", 0, 3, Filter::parse),
        "reset the statistics of forwarding threads",
        pmd_stats_clear,
    ),
    &command(
        "dpif-netdev/pmd-stats-show",
        Form("[-pmd core] [dp]", 0, 3, Filter::parse),
        "show the statistics of forwarding threads",
        pmd_stats_show,
    ),
];

/// `-pmd N` and a datapath name: selects threads of datapaths.
#[derive(Default)]
struct Filter {
    core: Option<u16>,
    datapath: Option<String>,
}

impl Filter {
    fn parse(words: &[String]) -> Result<Filter, String> {
        let mut filter = Filter::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "-pmd" {
                let n = words.next().and_then(|n| n.parse().ok());
                filter.core = Some(n.ok_or("-pmd needs the number of a core")?);
            } else {
                filter.datapath = Some(word.clone());
            }
        }
        Ok(filter)
    }

    fn datapaths<'a>(&self, switch: &'a Switch) -> Result<Vec<WithThreads<'a>>, String> {
        with_threads(switch, self.datapath.as_deref())
    }
}

fn pmd_stats_show(plane: &mut ControlPlane, filter: Filter) -> Reply {
    let datapaths = match filter.datapaths(&plane.switch) {
        Ok(found) => found,
        Err(e) => return Reply::Error(e),
    };
    let mut out = String::new();
    let mut stats: Vec<_> = datapaths
        .iter()
        .flat_map(|(i, u)| i.pmd_stats().into_iter().map(move |(pmd, s)| (i.name(), u, pmd, s)))
        .collect();
    // The main thread of each datapath last, as in stock switches.
    stats.sort_by_key(|(name, _, pmd, _)| (*name, *pmd == PmdId::Main));
    for (_, datapath, pmd, s) in stats {
        match pmd {
            PmdId::Core(n) if filter.core.is_none_or(|f| f == n) => {
                let _ = writeln!(out, "pmd thread numa_id {} core_id {n}:", datapath.numa(n).0);
            }
            PmdId::Main if filter.core.is_none() => out += "main thread:\n",
            _ => continue,
        }
        pmd_stats(&mut out, &s);
    }
    out.into()
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Statistics of one thread. The flow cache replaces the exact-match and signature caches of stock switches and is
/// shown as `smc hits`.
fn pmd_stats(out: &mut String, s: &dpif::PmdStats) {
    let passes = if s.received == 0 { 0.0 } else { ratio(s.received + s.recirculated, s.received) };
    let rows = [
        ("packets received", s.received.to_string()),
        ("packet recirculations", s.recirculated.to_string()),
        ("avg. datapath passes per packet", format!("{passes:.2}")),
        ("phwol hits", s.mark_hits.to_string()),
        ("mfex opt hits", "0".to_string()),
        ("simple match hits", "0".to_string()),
        ("emc hits", "0".to_string()),
        ("smc hits", s.cache_hits.to_string()),
        ("megaflow hits", s.megaflow_hits.to_string()),
        ("avg. subtable lookups per megaflow hit", format!("{:.2}", s.lookups_per_hit())),
        ("miss with success upcall", s.upcalls.to_string()),
        ("miss with failed upcall", s.lost().to_string()),
        ("avg. packets per output batch", format!("{:.2}", s.packets_per_batch())),
    ];
    for (name, value) in rows {
        let _ = writeln!(out, "  {name}: {value}");
    }
    super::threads::cycles(out, s);
}

fn pmd_stats_clear(plane: &mut ControlPlane, filter: Filter) -> Reply {
    let cleared = filter.datapaths(&plane.switch).map(|datapaths| {
        datapaths.iter().for_each(|(_, datapath)| datapath.clear_stats(filter.core));
        String::new()
    });
    Reply::from(cleared)
}
