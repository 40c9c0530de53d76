use super::*;

fn read(kind: InterfaceKind, type_name: &str, options: &[(&str, &str)]) -> Result<DeviceOptions, String> {
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let (options, ignored) = parse("p1", type_name, kind, &options)?;
    assert_eq!(ignored, []);
    Ok(options.device().expect("a device").clone())
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
    let afxdp = AfxdpPort { xdp_mode: XdpMode::Native, n_rxq: 4, use_need_wakeup: false };
    let files = PcapPort { rx_pcap: Some("/rx".into()), tx_pcap: Some("/tx".into()), infinite_rx: true };
    let system = PortOptions::System(SystemPort { n_rxq: 4, merge_udp: false });
    for (kind, type_name, expected) in [
        (InterfaceKind::System, "system", system),
        (InterfaceKind::Internal, "internal", PortOptions::Internal),
        (InterfaceKind::Tap, "tap", PortOptions::Tap),
        (InterfaceKind::Null, "null", PortOptions::Null),
        (InterfaceKind::Afxdp, "afxdp", PortOptions::Afxdp(afxdp)),
        (InterfaceKind::Pcap, "pcap", PortOptions::Pcap(files)),
        (InterfaceKind::Dummy, "dummy", PortOptions::Dummy(dummy("dummy"))),
        (
            InterfaceKind::Dummy,
            "dummy-pmd",
            PortOptions::Dummy(DummyPort { pmd: true, ..dummy("dummy-pmd") }),
        ),
        // Replacing another type, and in a dummy datapath.
        (InterfaceKind::Dummy, "tap", PortOptions::Dummy(dummy("tap"))),
        (InterfaceKind::Dummy, "internal", PortOptions::Dummy(dummy("dummy-internal"))),
    ] {
        assert_eq!(read(kind, type_name, &all), Ok(expected.into()), "{type_name}");
    }
}

#[test]
fn absent_options_have_defaults() {
    for (kind, expected) in [
        (InterfaceKind::System, PortOptions::System(SystemPort { n_rxq: 1, merge_udp: true })),
        (InterfaceKind::Afxdp, PortOptions::Afxdp(AfxdpPort::default())),
        (InterfaceKind::Pcap, PortOptions::Pcap(PcapPort::default())),
        (InterfaceKind::Dummy, PortOptions::Dummy(DummyPort::new("x"))),
    ] {
        assert_eq!(read(kind, "x", &[]), Ok(expected.clone().into()), "{kind:?}");
        assert_eq!(read(kind, "x", &[("n_rxq", "0")]), Ok(expected.into()), "{kind:?}");
    }
}

#[test]
fn an_error_names_key_value_and_what_is_allowed() {
    let device = |why: &str| format!("could not open network device p1 ({why})");
    let switch = |key: &str| device(&format!("option {key}: maybe: neither true nor false"));
    let modes =
        "option xdp-mode: \"warp\" is no xdp-mode: best-effort, native-with-zerocopy, native and generic are";
    for (kind, options, error) in [
        (InterfaceKind::System, [("merge_udp", "maybe")].as_slice(), switch("merge_udp")),
        (InterfaceKind::Afxdp, &[("use-need-wakeup", "maybe")], switch("use-need-wakeup")),
        (InterfaceKind::Afxdp, &[("xdp-mode", "warp")], device(modes)),
        (InterfaceKind::Pcap, &[("infinite_rx", "maybe")], switch("infinite_rx")),
        (InterfaceKind::Dummy, &[("numa_id", "-1")], device("option numa_id: -1: not a number")),
        (InterfaceKind::Dummy, &[("ifindex", "x")], device("option ifindex: x: not a number")),
        (
            InterfaceKind::Dummy,
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
        (dpif::TunnelKind::Vxlan, &options[..], 8472, true),
        (dpif::TunnelKind::Geneve, &options[..2], 8472, false),
        (dpif::TunnelKind::Gre, &options[..1], 0, false),
    ] {
        let device = read(InterfaceKind::Tunnel(kind), kind.name(), options).unwrap();
        assert_eq!(device.port, PortOptions::Tunnel(TunnelPort { kind, dst_port, gbp, l3: false }));
        assert_eq!(device.tunnel.expect("a tunnel").kind, kind);
    }
}

#[test]
fn a_dummy_connects_or_listens() {
    for (option, expected) in [
        ("stream", DummyStream::Active("unix:/x".into())),
        ("pstream", DummyStream::Passive("unix:/x".into())),
    ] {
        let device = read(InterfaceKind::Dummy, "dummy", &[(option, "unix:/x")]).unwrap();
        assert_eq!(device.stream, Some(expected));
    }
}
