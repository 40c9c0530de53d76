//! Commands about tracked connections; about the tracker's limits ([`limits`]), other settings ([`settings`]), reassembly
//! of fragments ([`fragments`]), buckets and expectations ([`views`]).
//!
//! The kernel's connections are those of the network namespace, including other programs'. A thread does work that
//! may take long with many connections, so that the main loop continues. A datapath without a tracker shows none.

pub(super) mod fragments;
pub(super) mod limits;
pub(super) mod settings;
pub(super) mod views;

use super::datapath::datapath;
use super::{Form, Reply, Rows, Wait, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::work::{PART_BYTES, Requester, Work};
use connmgr::selected_connections;
use dpif::Provider;
use dpif::text::{ConnectionFormat, format_flush, format_protocol, tcp_state_name, write_connection};
use dpif::{Connection, ConnectionSink, CtMatch, CtProtocol, DpifError, TcpState};
use openflow::text::parse_ct_flush;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;
use vlog::date;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/ct-stats-show",
        Form("[-m] [dp] [zone=N]", 0, 4, counted),
        "count the connections by protocol, with -m also by TCP state",
        stats,
    ),
    &command(
        "dpctl/dump-conntrack",
        Form("[-m] [-s] [dp] [zone=N]", 0, 4, |words| {
            Words::parse(words, &["-m", "--more", "-s", "--statistics"])?.no_more()
        }),
        "list the tracked connections",
        dump,
    ),
    &command(
        "dpctl/flush-conntrack",
        Form(
            "[dp] [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]",
            0,
            6,
            Flushed::parse,
        ),
        "remove the selected connections, by default all",
        flush,
    ),
];

/// The arguments of a command.
#[derive(Default)]
pub(super) struct Words {
    verbose: bool,
    statistics: bool,
    datapath: Option<String>,
    zone: Option<u16>,
    /// Remaining arguments.
    pub(super) rest: Vec<String>,
}

impl Words {
    /// Parses the arguments of a command with these options. The datapath comes first, if named: an argument without
    /// a value.
    pub(super) fn parse(args: &[String], options: &[&str]) -> Result<Words, String> {
        let mut words = Words::default();
        for arg in args {
            if arg.starts_with('-') {
                match arg.as_str() {
                    known if !options.contains(&known) => return Err(format!("Unrecognized option {arg}")),
                    "-s" | "--statistics" => words.statistics = true,
                    _ => words.verbose = true,
                }
            } else if let Some(zone) = arg.strip_prefix("zone=") {
                let zone = number(zone).ok_or_else(|| invalid("failed to parse zone"))?;
                if words.zone.replace(zone).is_some() {
                    return Err(format!("{arg}: a zone is given already"));
                }
            } else if !arg.contains('=')
                && !arg.is_empty()
                && words.datapath.is_none()
                && words.rest.is_empty()
            {
                words.datapath = Some(arg.clone());
            } else {
                words.rest.push(arg.clone());
            }
        }
        Ok(words)
    }

    /// Rejects remaining arguments.
    fn no_more(self) -> Result<Words, String> {
        match self.rest.first() {
            Some(word) => Err(invalid(&format!("invalid argument {word}"))),
            None => Ok(self),
        }
    }
}

/// A number of digits only.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Invalid arguments, in the words of the stock tool.
fn invalid(why: &str) -> String {
    format!("{why} (Invalid argument)")
}

/// A datapath's tracker, usable on any thread.
struct Tracker(Arc<dyn Provider>);

impl Tracker {
    fn of(instance: &Instance) -> Option<Tracker> {
        instance.datapath.connections().map(|_| Tracker(instance.datapath.clone()))
    }

    fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), String> {
        self.0.connections().map_or(Ok(()), |c| c.list(zone, sink)).map_err(|e| e.to_string())
    }
}

/// A datapath's tracker, or the reply without one.
fn later(
    plane: &ControlPlane,
    name: Option<&str>,
    without: &str,
    work: impl FnOnce(&Tracker, &Requester<'_>) -> Result<String, String> + Send + 'static,
) -> Reply {
    let begin = || match Tracker::of(datapath(&plane.switch, name)?) {
        None => Ok(Reply::Text(without.to_string())),
        Some(tracker) => {
            let work = Work::begin(&plane.workers, move |requester| work(&tracker, requester))?;
            Ok(Reply::Later(Wait::Work(work)))
        }
    };
    Reply::or_error(begin())
}

/// The text of a list of connections, sent while the list goes on.
struct Text<'a, 'b> {
    out: String,
    format: ConnectionFormat,
    requester: &'a Requester<'b>,
    has_sent: bool,
    /// The list began anew after a part of it was sent.
    is_torn: bool,
}

impl ConnectionSink for Text<'_, '_> {
    fn restart(&mut self) {
        self.out.clear();
        self.is_torn = self.has_sent;
    }

    fn connection(&mut self, connection: &Connection) -> ControlFlow<()> {
        if self.is_torn || !self.requester.waits() {
            return ControlFlow::Break(());
        }
        let date = |ns: u64| date("%Y-%m-%dT%H:%M:%S.###", ns / 1_000_000);
        write_connection(&mut self.out, connection, self.format, &date);
        self.out.push('\n');
        if self.out.len() < PART_BYTES {
            return ControlFlow::Continue(());
        }
        self.has_sent = true;
        let is_sent = self.requester.send(&self.out);
        self.out.clear();
        if is_sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn dump(plane: &mut ControlPlane, asked: Words) -> Reply {
    let format = ConnectionFormat { verbose: asked.verbose, statistics: asked.statistics };
    let zone = asked.zone;
    later(plane, asked.datapath.as_deref(), "", move |tracker, requester| {
        let mut text = Text { out: String::new(), format, requester, has_sent: false, is_torn: false };
        tracker.list(zone, &mut text)?;
        match text.is_torn {
            false => Ok(text.out),
            true => Err("the connections changed while they were sent: ask again".to_string()),
        }
    })
}

/// Number of connections, by protocol and state.
struct Sums<'a, 'b> {
    protocols: BTreeMap<u8, u64>,
    tcp_states: BTreeMap<TcpState, u64>,
    requester: &'a Requester<'b>,
}

impl ConnectionSink for Sums<'_, '_> {
    fn restart(&mut self) {
        self.protocols.clear();
        self.tcp_states.clear();
    }

    fn connection(&mut self, connection: &Connection) -> ControlFlow<()> {
        *self.protocols.entry(connection.orig.proto).or_default() += 1;
        if let Some(CtProtocol::Tcp(a, b)) = &connection.protocol {
            *self.tcp_states.entry(TcpState::of_both(a.state, b.state)).or_default() += 1;
        }
        if self.requester.waits() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Sums<'_, '_> {
    fn text(&self, verbose: bool) -> String {
        let mut out = format!("Connections Stats:\n    Total: {}\n", self.protocols.values().sum::<u64>());
        for (proto, count) in in_order(&self.protocols) {
            let name = match proto {
                Some(proto) => format_protocol(proto).to_ascii_uppercase(),
                None => "Other".to_string(),
            };
            // Writing to a string cannot fail.
            let _infallible = writeln!(out, "  {name}: {count}");
            if verbose && proto == Some(TCP) {
                out += "    Conn per TCP states:\n";
                for (state, count) in &self.tcp_states {
                    let _infallible = writeln!(out, "\t  [{}]={count}", tcp_state_name(*state));
                }
            }
        }
        out
    }
}

/// TCP's number.
const TCP: u8 = 6;
/// ICMPv6 is counted only in the total, as in stock tools.
const ICMPV6: u8 = 58;
/// Protocols counted separately, in output order.
const COUNTED: [u8; 7] = [TCP, 17, 136, 132, 1, 33, 2];

/// The nonzero counts, in output order; those of other protocols together.
fn in_order(counts: &BTreeMap<u8, u64>) -> Vec<(Option<u8>, u64)> {
    let apart = COUNTED.iter().filter_map(|proto| Some((Some(*proto), *counts.get(proto)?)));
    let is_other = |proto: &u8| !COUNTED.contains(proto) && *proto != ICMPV6;
    let others = counts.iter().filter(|(proto, _)| is_other(proto)).map(|(_, count)| count).sum();
    apart.chain((others > 0).then_some((None, others))).collect()
}

/// Arguments of `ct-stats-show`, which has one more word for `-m`, from older manuals.
fn counted(words: &[String]) -> Result<Words, String> {
    let others: Vec<String> = words.iter().filter(|word| *word != "verbose").cloned().collect();
    let mut asked = Words::parse(&others, &["-m", "--more"])?.no_more()?;
    asked.verbose |= others.len() < words.len();
    Ok(asked)
}

fn stats(plane: &mut ControlPlane, Words { datapath, zone, verbose, .. }: Words) -> Reply {
    let none = "Connections Stats:\n    Total: 0\n";
    later(plane, datapath.as_deref(), none, move |tracker, requester| {
        let mut sums = Sums { protocols: BTreeMap::new(), tcp_states: BTreeMap::new(), requester };
        tracker.list(zone, &mut sums)?;
        Ok(sums.text(verbose))
    })
}

/// `[dp] [zone=N] [mark=X[/M]] [labels=X[/M]] [ct-orig-tuple [ct-reply-tuple]]`
struct Flushed {
    datapath: Option<String>,
    which: CtMatch,
}

impl Flushed {
    fn parse(words: &[String]) -> Result<Flushed, String> {
        if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
            return Err(format!("Unrecognized option {option}"));
        }
        let (datapath, words) = split_name(words);
        let which = parse_ct_flush(words.iter().map(String::as_str)).map_err(|e| invalid(&e))?;
        Ok(Flushed { datapath, which: selected_connections(&which) })
    }
}

fn flush(plane: &mut ControlPlane, Flushed { datapath, which }: Flushed) -> Reply {
    later(plane, datapath.as_deref(), "", move |tracker, _| {
        log::debug!(target: "ct_dpif", "{}: ct_flush: {}", tracker.0.name(), format_flush(&which));
        let flushed = tracker.0.connections().map_or(Ok(()), |c| c.flush(&which));
        flushed.map(|()| String::new()).map_err(|e| failed("failed to flush conntrack", &e))
    })
}

/// The datapath name before other arguments, and those.
fn split_name(args: &[String]) -> (Option<String>, &[String]) {
    match args.split_first() {
        Some((first, rest)) if !first.contains('=') && !first.is_empty() => (Some(first.clone()), rest),
        _ => (None, args),
    }
}

/// A failure by a missing feature, in the words of the stock tool.
fn unsupported(what: &str) -> String {
    format!("{what} (Operation not supported)")
}

/// A failure with its reason in the words of the stock tool, if it has any.
fn failed(what: &str, error: &DpifError) -> String {
    match error {
        DpifError::Unsupported(_) => unsupported(what),
        DpifError::NotFound(_) => format!("{what} (No such file or directory)"),
        DpifError::Exists(_) | DpifError::Full(_) | DpifError::Busy(_) | DpifError::Device(_) => {
            format!("{what} ({error})")
        }
    }
}

#[cfg(test)]
mod tests;
