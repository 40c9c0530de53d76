//! Arguments of dumps.

use super::*;
use flow::{FlowKey, KeyMask, shape};

fn wanted(line: &str) -> Result<(bool, bool, Option<PmdId>), String> {
    let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    let w = Wanted::parse(&args)?;
    Ok((w.style.verbose, w.style.names.unwrap_or(w.style.verbose), w.pmd))
}

#[test]
fn options_stand_anywhere() {
    for (line, expect) in [
        ("", (false, false, None)),
        ("-m", (true, true, None)),
        ("--more --no-names pmd=-1", (true, false, Some(PmdId::Main))),
        ("dp --names pmd=3 type=ovs filter=tcp", (false, true, Some(PmdId::Core(3)))),
    ] {
        assert_eq!(wanted(line), Ok(expect), "{line}");
    }
    for (line, error) in [
        ("-z", "Unrecognized option -z"),
        ("type=foo", "Failed to parse type (foo)"),
        ("pmd=x", "pmd=x: give the number of a core, or -1 for the main thread"),
        ("pmd=99999", "pmd=99999: give the number of a core, or -1 for the main thread"),
        ("a b", "b: a datapath is given already"),
        ("filter=tcp filter=udp", "filter=udp: a filter is given already"),
    ] {
        assert_eq!(wanted(line), Err(error.to_string()), "{line}");
    }
}

#[test]
fn kinds_of_flows_are_those_of_the_software() {
    assert_eq!(kinds("ovs"), Ok(true));
    assert_eq!(kinds("tc,offloaded"), Ok(false));
    assert_eq!(kinds("tc,all"), Ok(true));
}

#[test]
fn a_filter_passes_flows_that_may_match() {
    let mut key = FlowKey::default();
    key.base.in_port = 1;
    key.base.dl_type = 0x0800;
    key.base.nw_proto = 6;
    key.set_shape();
    let mut mask = KeyMask::default();
    mask.base.in_port = u32::MAX;
    mask.base.dl_type = u16::MAX;
    mask.base.shape = u16::MAX;
    assert!(!key.has(shape::IPV6));
    let flow = FlowRecord {
        ufid: flow::Ufid(1),
        key,
        mask,
        actions: Vec::new().into(),
        stats: dpif::FlowStats::default(),
    };
    let passes =
        |text: &str| could_match(&parse_match_unchecked(text, &flow::text::NoPortNames).unwrap(), &flow);
    // The protocol is not part of the flow: packets of any may match.
    assert!(passes("ip") && passes("tcp") && passes("udp") && passes("in_port=1"));
    assert!(!passes("arp") && !passes("in_port=2"));
}
