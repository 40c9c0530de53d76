//! Arguments of dumps.

use super::*;
use dpif::OffloadLatency;
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
        ("type=foo", "Failed to parse type (foo) (Invalid argument)"),
        ("pmd=x", "pmd=x: give the number of a core, or -1 for the main thread"),
        ("pmd=99999", "pmd=99999: give the number of a core, or -1 for the main thread"),
        ("a b", "b: a datapath is given already"),
        ("filter=tcp filter=udp", "filter=udp: a filter is given already"),
    ] {
        assert_eq!(wanted(line), Err(error.to_string()), "{line}");
    }
}

#[test]
fn types_of_flows_follow_their_offload() {
    let states = [
        Offloaded::No,
        Offloaded::Partial,
        Offloaded::Full(OffloadLayer::Tc),
        Offloaded::Full(OffloadLayer::Dpdk),
    ];
    for (text, expected) in [
        ("all", [true; 4]),
        ("ovs", [true, true, false, false]),
        ("non-offloaded", [true, false, false, false]),
        ("partially-offloaded", [false, true, false, false]),
        ("offloaded", [false, false, true, true]),
        ("tc", [false, false, true, false]),
        ("dpdk", [false, false, false, true]),
        ("dpdk,non-offloaded", [true, false, false, true]),
    ] {
        let kinds = Kinds::parse(text).unwrap();
        assert_eq!(states.map(|state| kinds.has(state)), expected, "{text}");
    }
    assert_eq!(Kinds::parse("ovs,bogus").unwrap_err(), "Failed to parse type (bogus) (Invalid argument)");
}

#[test]
fn offload_statistics_have_the_layout_of_the_stock_switch() {
    let latency =
        OffloadLatency { mean_us: 5227, deviation_us: 2996, recent_us: 5208, recent_deviation_us: 2924 };
    let stats = OffloadStats { latency, ..OffloadStats::default() };
    let expected = "\
HW Offload stats:
     Total                 Enqueued offloads:      0
     Total                 Inserted offloads:      0
     Total   Cumulative Average latency (us):   5227
     Total    Cumulative Latency stddev (us):   2996
     Total  Exponential Average latency (us):   5208
     Total   Exponential Latency stddev (us):   2924
     [  0]                 Enqueued offloads:      0
     [  0]                 Inserted offloads:      0
     [  0]   Cumulative Average latency (us):   5227
     [  0]    Cumulative Latency stddev (us):   2996
     [  0]  Exponential Average latency (us):   5208
     [  0]   Exponential Latency stddev (us):   2924
";
    assert_eq!(offload_text(&stats), expected);
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
        offloaded: dpif::Offloaded::No,
    };
    let passes = |text: &str| could_match(&parse_match(text, &flow::text::NoPortNames).unwrap(), &flow);
    // The protocol is not part of the flow: packets of any may match.
    assert!(passes("ip") && passes("tcp") && passes("udp") && passes("in_port=1"));
    assert!(!passes("arp") && !passes("in_port=2"));
}
