use super::*;
use std::collections::BTreeMap;

/// The type with a name.
fn named(name: &str) -> InterfaceType {
    *InterfaceType::all().iter().find(|t| t.names().contains(&name)).expect("there is that type")
}

fn parse(
    served_by: InterfaceType,
    type_name: &str,
    options: &[(&str, &str)],
) -> Result<ParsedOptions, String> {
    let options: BTreeMap<_, _> = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    served_by.parse("p1", type_name, &options)
}

fn read(served_by: InterfaceType, type_name: &str, options: &[(&str, &str)]) -> Result<PortOptions, String> {
    let parsed = parse(served_by, type_name, options)?;
    assert_eq!(parsed.notices, []);
    Ok(parsed.options)
}

#[test]
fn each_type_reads_its_options_and_no_others() {
    let all = [
        ("n_rxq", " 4 "),
        ("merge_udp", "false"),
        ("xdp-mode", "native"),
        ("use-need-wakeup", "false"),
        ("rx_pcap", "/rx"),
        ("tx_pcap", "/tx"),
        ("infinite_rx", "true"),
        ("numa_id", "1"),
        ("ifindex", "7"),
        ("unheard-of", "x"),
    ];
    let dummy = |type_name: &str| DummyPort {
        n_rxq: 4,
        numa_id: 1,
        ifindex: Some(7),
        tx_pcap: Some("/tx".into()),
        ..DummyPort::new(type_name)
    };
    let afxdp = AfxdpPort { mode: XdpMode::Native, n_rxq: 4, use_need_wakeup: false };
    let files = PcapPort { rx_pcap: Some("/rx".into()), tx_pcap: Some("/tx".into()), infinite_rx: true };
    let system = PortOptions::System(SystemPort { n_rxq: 4, merge_udp: false });
    for (kind, type_name, expected) in [
        (named("system"), "system", system),
        (named("internal"), "internal", PortOptions::Internal(InternalPort)),
        (named("tap"), "tap", PortOptions::Tap(TapPort)),
        (named("null"), "null", PortOptions::Null(NullPort)),
        (named("afxdp"), "afxdp", PortOptions::Afxdp(afxdp)),
        (named("pcap"), "pcap", PortOptions::Pcap(files)),
        (InterfaceType::DUMMY, "dummy", PortOptions::Dummy(dummy("dummy"))),
        (
            InterfaceType::DUMMY,
            "dummy-pmd",
            PortOptions::Dummy(DummyPort { pmd: true, ..dummy("dummy-pmd") }),
        ),
        // Replacing another type, and in a dummy datapath.
        (InterfaceType::DUMMY, "tap", PortOptions::Dummy(dummy("tap"))),
        (InterfaceType::DUMMY, "internal", PortOptions::Dummy(dummy("dummy-internal"))),
    ] {
        assert_eq!(read(kind, type_name, &all), Ok(expected), "{type_name}");
    }
}

#[test]
fn absent_options_have_defaults() {
    for (kind, expected) in [
        (named("system"), PortOptions::System(SystemPort { n_rxq: 1, merge_udp: true })),
        (named("afxdp"), PortOptions::Afxdp(AfxdpPort::default())),
        (named("pcap"), PortOptions::Pcap(PcapPort::default())),
        (InterfaceType::DUMMY, PortOptions::Dummy(DummyPort::new("x"))),
    ] {
        assert_eq!(read(kind, "x", &[]), Ok(expected.clone()), "{kind:?}");
        assert_eq!(read(kind, "x", &[("n_rxq", "0")]), Ok(expected), "{kind:?}");
    }
}

#[test]
fn an_error_names_key_value_and_what_is_allowed() {
    let device = |why: &str| format!("could not open network device p1 ({why})");
    let switch = |key: &str| device(&format!("option {key}: maybe: neither true nor false"));
    let modes =
        "option xdp-mode: \"warp\" is no xdp-mode: best-effort, native-with-zerocopy, native and generic are";
    for (kind, options, error) in [
        (named("system"), [("merge_udp", "maybe")].as_slice(), switch("merge_udp")),
        (named("afxdp"), &[("use-need-wakeup", "maybe")], switch("use-need-wakeup")),
        (named("afxdp"), &[("xdp-mode", "warp")], device(modes)),
        (named("pcap"), &[("infinite_rx", "maybe")], switch("infinite_rx")),
        (InterfaceType::DUMMY, &[("numa_id", "-1")], device("option numa_id: -1: not a number")),
        (InterfaceType::DUMMY, &[("ifindex", "x")], device("option ifindex: x: not a number")),
        (
            InterfaceType::DUMMY,
            &[("stream", "tcp:127.0.0.1:1"), ("pstream", "ptcp:1")],
            device("options stream and pstream exclude each other"),
        ),
    ] {
        assert_eq!(read(kind, "x", options), Err(error), "{kind:?} {options:?}");
    }
}

#[test]
fn a_tunnel_gives_the_datapath_kind_port_and_extension() {
    let options = [("remote_ip", "10.0.0.2"), ("dst_port", "8472"), ("exts", "gbp"), ("key", "5")];
    for (kind, options, dst_port, gbp) in [
        (TunnelKind::Vxlan, &options[..], 8472, true),
        (TunnelKind::Geneve, &options[..2], 8472, false),
        (TunnelKind::Gre, &options[..1], 0, false),
    ] {
        let device = read(named(kind.name()), kind.name(), options).unwrap();
        assert_eq!(device.tunnel(), Some(TunnelPort { kind, dst_port, gbp, l3: false }));
        assert_eq!(device.tunnel_config().expect("a tunnel").kind, kind);
    }
}

#[test]
fn a_dummy_connects_or_listens() {
    for (option, expected) in [
        ("stream", DummyStream::Active("unix:/x".into())),
        ("pstream", DummyStream::Passive("unix:/x".into())),
    ] {
        let device = read(InterfaceType::DUMMY, "dummy", &[(option, "unix:/x")]).unwrap();
        assert_eq!(device.stream(), Some(&expected));
    }
}

#[test]
fn a_tunnel_reports_keys_of_others() {
    let tunnel = [("remote_ip", "10.0.0.2"), ("n_rxq", "2")];
    let parsed = parse(named("gre"), "gre", &tunnel).unwrap();
    let message = "p1: unknown gre argument 'n_rxq'".into();
    assert_eq!(parsed.notices, [OptionNotice { key: "n_rxq".into(), message }]);
}

#[test]
fn a_type_reads_all_of_its_keys() {
    let values = [
        ("n_rxq", "2"),
        ("n_txq", "2"),
        ("merge_udp", "false"),
        ("xdp-mode", "native"),
        ("use-need-wakeup", "false"),
        ("infinite_rx", "true"),
        ("numa_id", "1"),
        ("ifindex", "1"),
    ];
    let value = |key: &str| values.iter().find(|(k, _)| *k == key).map_or("x", |(_, value)| value);
    for row in InterfaceType::all().iter().filter(|row| row.names() != TunnelKind::NAMES) {
        let name = row.names()[0];
        // A patch needs its only one.
        for key in row.keys().iter().filter(|key| !["peer"].contains(key)) {
            let without = parse(*row, name, &[]).unwrap();
            let with = parse(*row, name, &[(key, value(key))]).unwrap();
            assert_ne!(with.options, without.options, "{name} {key}");
            assert_eq!(with.notices, [], "{name} {key}");
        }
    }
}

#[test]
fn names_are_unique_and_stand_for_their_values() {
    let mut names: Vec<_> = InterfaceType::all().iter().flat_map(|row| row.names()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    for kind in TunnelKind::ALL {
        assert_eq!(TunnelKind::of_name(kind.name()), Some(kind));
    }
    for mode in XdpMode::ALL {
        let parsed = read(named("afxdp"), "afxdp", &[("xdp-mode", mode.name())]);
        assert_eq!(parsed, Ok(AfxdpPort { mode, ..AfxdpPort::default() }.into()));
    }
}

#[test]
fn changed_options_keep_a_port_or_reopen_it() {
    let option = |type_name: &str, options: &[(&str, &str)]| {
        let remote = [("remote_ip", "10.0.0.2")];
        let needed: &[_] = if TunnelKind::of_name(type_name).is_some() { &remote } else { &[] };
        parse(named(type_name), type_name, &[needed, options].concat()).unwrap().options
    };
    for (type_name, options, expected) in [
        ("system", &[("n_rxq", "2")][..], OptionChange::ReopenQueues),
        ("system", &[("merge_udp", "false")], OptionChange::Reopen),
        ("system", &[("merge_udp", "false"), ("n_rxq", "2")], OptionChange::Reopen),
        ("system", &[("xdp-mode", "native")], OptionChange::Keep),
        ("afxdp", &[("n_rxq", "2")], OptionChange::Reopen),
        ("dummy", &[("stream", "unix:/x")], OptionChange::Reopen),
        ("pcap", &[("tx_pcap", "/x")], OptionChange::Reopen),
        ("tap", &[("n_rxq", "2")], OptionChange::Keep),
        ("vxlan", &[("key", "5"), ("ttl", "3")], OptionChange::Keep),
        ("vxlan", &[("dst_port", "8472")], OptionChange::Reopen),
        ("vxlan", &[("exts", "gpe")], OptionChange::Reopen),
        ("gre", &[("packet_type", "ptap")], OptionChange::Reopen),
    ] {
        let (before, after) = (option(type_name, &[]), option(type_name, options));
        assert_eq!(before.change(&after), expected, "{type_name} {options:?}");
        assert_eq!(after.change(&after), OptionChange::Keep, "{type_name} {options:?}");
    }
    assert_eq!(option("tap", &[]).change(&option("internal", &[])), OptionChange::Reopen);
}
