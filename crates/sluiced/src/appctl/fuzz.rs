//! Fuzz target of the arguments of commands: any text in, no panic out, and no work that its length does not bound.

use super::flow_files::Change;
use super::flows::Name;
use super::trace_args::{FlowText, TraceArgs};
use super::{conntrack, detrace, dummy, dumps, fdb, flow_files, flows, perf, routes};
use dpif::text::{NumbersOnly, format_actions, parse_actions, parse_key_mask};
use flow::text::{NoPortNames, parse_exact_flow, parse_match};
use routing::Prefix;

/// The arguments of a command, separated by blanks, or by newlines if it has some.
pub fn control_arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let separator = if text.contains('\n') { '\n' } else { ' ' };
    let args: Vec<String> = text.split(separator).map(String::from).collect();
    of_trace(&args);
    if let Ok(wanted) = dumps::Wanted::parse(&args)
        && let Some(filter) = wanted.filter
    {
        let _ = parse_match(&filter, &NoPortNames);
    }
    if let Ok(words) = conntrack::Words::parse(&args, &["-m", "-s"]) {
        assert!(words.rest.len() <= args.len());
        let _ = openflow::text::parse_ct_flush(words.rest.iter().map(String::as_str));
    }
    let _ = (conntrack::limits::removed(&args), perf::log_settings(&args));
    args.iter().for_each(|arg| of_word(arg));
    of_flows(text, &args);
}

/// `ofproto/trace` and `ofproto/trace-packet-out`.
fn of_trace(args: &[String]) {
    for packet_out in [false, true] {
        let Ok(trace) = TraceArgs::parse(args, packet_out) else { continue };
        match trace.flow {
            FlowText::Datapath(_, text) => drop(parse_key_mask(text, &NumbersOnly)),
            FlowText::Bridge(_, text) => drop(parse_exact_flow(text, &NoPortNames)),
        }
        let _ = trace.payload();
    }
}

/// Values of single arguments.
fn of_word(word: &str) {
    let _ = (conntrack::limits::zones(word), conntrack::limits::limit(word));
    if let Ok(vlan) = fdb::vlan(word) {
        assert!(vlan < 4096);
    }
    let _ = (fdb::mac(word), flows::ufid(word), detrace::thread(word));
    if let Some((address, len)) = routes::any_cidr(word)
        && let Some(prefix) = Prefix::new(address, len)
    {
        let again = routes::any_cidr(&prefix.to_string()).and_then(|(ip, len)| Prefix::new(ip, len));
        assert_eq!(again, Some(prefix), "{word:?}");
    }
    let _ = (routes::integer(word), routes::atoi(word));
    for is_ipv4 in [false, true] {
        let _ = (routes::source(word, is_ipv4), routes::gateway(word, is_ipv4));
    }
    crate::dp_features::set_each(word);
}

/// Datapath flows: in a file, by name, and as frames of dummies.
fn of_flows(text: &str, args: &[String]) {
    for line in text.lines() {
        let Some(Ok(line)) = flow_files::line(line, Change::Add) else { continue };
        let _ = Name::parse_with(line.flow, &NumbersOnly, true);
        if let Ok(actions) = parse_actions(line.actions, &NumbersOnly) {
            let printed = format_actions(&actions, &NumbersOnly);
            assert!(parse_actions(&printed, &NumbersOnly).is_ok(), "{line:?}: {printed:?}");
        }
    }
    for packet_types in [false, true] {
        let _ = Name::parse_with(&args[0], &NumbersOnly, packet_types);
    }
    if let Some(frame) = dummy::hexadecimal(&args[0]) {
        assert!(frame.len() * 2 <= args[0].len());
    }
    let len = args.get(1).map(|len| len.parse().ok());
    if let Ok(frame) = dummy::from_flow(&NumbersOnly, &args[0], len) {
        assert!(len.flatten().is_none_or(|len| frame.len() == len), "{args:?}");
    }
}
