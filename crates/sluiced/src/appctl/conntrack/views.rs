//! Buckets of the table of connections, and expectations of helpers.

use super::super::{Form, Reply, Rows, command};
use super::{Words, failed, invalid, later, number, split_name};
use crate::control_plane::ControlPlane;
use dpif::text::write_expectation;
use dpif::{Connections, DpifError};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// The commands of this module.
pub(in crate::appctl) const ROWS: Rows = &[
    &command(
        "dpctl/ct-bkts",
        Form("[dp] [gt=N]", 0, 2, Crowded::parse),
        "show the number of connections in each bucket of the table",
        buckets,
    ),
    &command(
        "dpctl/dump-conntrack-exp",
        Form("[dp] [zone=N]", 0, 2, |words| Words::parse(words, &[])?.no_more()),
        "list the connections that helpers expect",
        expectations,
    ),
];

/// Buckets in a row of the table.
const IN_A_ROW: usize = 8;
/// The table of a datapath without connections.
const NO_BUCKETS: &str = "Total Buckets: 1\nCurrent Connections: 0\n\n";

/// The reply to `dpctl/ct-bkts`: buckets with at most `threshold` connections are dots.
fn buckets_shown(tracker: &dyn Connections, threshold: u32) -> Result<String, String> {
    let buckets = match tracker.buckets() {
        Ok(buckets) => buckets,
        Err(DpifError::Unsupported(_)) => {
            return Ok("Command is available for UserSpace ConnTracker only.\n".to_string());
        }
        Err(e) => return Err(failed("starting conntrack dump", &e)),
    };
    let connections: u64 = buckets.iter().copied().map(u64::from).sum();
    let mut out = format!("Total Buckets: {}\nCurrent Connections: {connections}\n\n", buckets.len());
    if connections > 0 {
        let rule = format!("+{}+{}+\n", "-".repeat(11), "-".repeat(41));
        out += &format!("{rule}|  Buckets  |         Connections per Buckets         |\n{}", rule.trim_end());
        for (n, count) in buckets.iter().enumerate() {
            // Writing to a string cannot fail.
            if n % IN_A_ROW == 0 {
                let _infallible = write!(out, "\n {n:3}..{:3}   | ", n + IN_A_ROW - 1);
            }
            let _infallible =
                if *count > threshold { write!(out, "{count:5}") } else { write!(out, "{:>5}", ".") };
        }
        out += "\n\n";
    }
    Ok(out)
}

/// `[dp] [gt=N]`: buckets with more connections.
struct Crowded {
    datapath: Option<String>,
    threshold: u16,
}

impl Crowded {
    fn parse(words: &[String]) -> Result<Crowded, String> {
        let (datapath, words) = split_name(words);
        let mut threshold = 0;
        for word in words {
            let text =
                word.strip_prefix("gt=").ok_or_else(|| invalid(&format!("invalid argument {word}")))?;
            threshold = number::<u16>(text).ok_or_else(|| invalid("failed to parse threshold"))?;
        }
        Ok(Crowded { datapath, threshold })
    }
}

fn buckets(plane: &mut ControlPlane, Crowded { datapath, threshold }: Crowded) -> Reply {
    later(plane, datapath.as_deref(), NO_BUCKETS, move |tracker, _| {
        let tracker = tracker.0.connections();
        tracker.map_or(Ok(NO_BUCKETS.to_string()), |t| buckets_shown(t, threshold.into()))
    })
}

/// The reply to `dpctl/dump-conntrack-exp`.
fn expectations_shown(
    tracker: &dyn Connections,
    zone: Option<u16>,
    wanted: &dyn Fn() -> bool,
) -> Result<String, String> {
    // Their number is bounded.
    let mut out = String::new();
    let listed = tracker.expectations(zone, &mut |expectation| {
        write_expectation(&mut out, expectation);
        out.push('\n');
        if wanted() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    listed.map_err(|e| failed("starting conntrack expectations dump", &e))?;
    Ok(out)
}

/// `[dp] [zone=N]`
fn expectations(plane: &mut ControlPlane, Words { datapath, zone, .. }: Words) -> Reply {
    later(plane, datapath.as_deref(), "", move |tracker, requester| {
        let wanted = || requester.waits();
        tracker.0.connections().map_or(Ok(String::new()), |t| expectations_shown(t, zone, &wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Scripted;
    use dpif::{CtAddresses, CtTransport, CtTuple, Expectation};

    /// The layout of Open vSwitch 3.1.
    #[test]
    fn buckets_are_a_table() {
        let shown = |buckets: &[u32], threshold: u32| {
            let mut tracker = Scripted::default();
            tracker.buckets = buckets.to_vec();
            buckets_shown(&tracker, threshold).unwrap()
        };
        let head = "+-----------+-----------------------------------------+\n\
                    |  Buckets  |         Connections per Buckets         |\n\
                    +-----------+-----------------------------------------+\n";
        assert_eq!(shown(&[0], 0), NO_BUCKETS);
        assert_eq!(
            shown(&[1], 0),
            format!("Total Buckets: 1\nCurrent Connections: 1\n\n{head}   0..  7   |     1\n\n")
        );
        let rows = "   0..  7   |     .   20    .    .    .    .    .    3\n   8.. 15   | 70000\n\n";
        assert_eq!(
            shown(&[0, 20, 1, 0, 2, 0, 0, 3, 70000], 2),
            format!("Total Buckets: 9\nCurrent Connections: 70026\n\n{head}{rows}")
        );
        let kernel = buckets_shown(&Scripted::plain(), 0);
        assert_eq!(kernel, Ok("Command is available for UserSpace ConnTracker only.\n".to_string()));
    }

    #[test]
    fn expectations_are_listed_by_zone() {
        let tuple = |dst: u16| CtTuple {
            addresses: CtAddresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
            proto: 6,
            transport: CtTransport::Ports { src: 0, dst },
        };
        let expected =
            |zone: u16| Expectation { tuple: tuple(5), parent: tuple(21), zone, mark: 0, labels: 0 };
        let mut tracker = Scripted::default();
        tracker.expectations = vec![expected(0), expected(7)];
        let line = |zone: &str| {
            format!(
                "tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=5){zone},parent=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=21)\n"
            )
        };
        let all = line("") + &line(",zone=7");
        assert_eq!(expectations_shown(&tracker, None, &|| true), Ok(all));
        assert_eq!(expectations_shown(&tracker, Some(7), &|| true), Ok(line(",zone=7")));
        // Nobody waits any more.
        assert_eq!(expectations_shown(&tracker, None, &|| false), Ok(line("")));
        let why = "starting conntrack expectations dump (Operation not supported)";
        assert_eq!(expectations_shown(&Scripted::plain(), None, &|| true), Err(why.to_string()));
    }
}
