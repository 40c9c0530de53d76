use super::*;

fn parse_all(kind: TunnelKind, options: &[(&str, &str)]) -> Result<(TunnelConfig, Vec<String>), String> {
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let (tunnel, ignored) = parse(kind, "t0", &options)?;
    Ok((tunnel, ignored.into_iter().map(|(_, message)| message).collect()))
}

#[test]
fn a_tunnel_needs_its_other_end_and_no_more() {
    for kind in TunnelKind::ALL {
        let remote = if kind == TunnelKind::Srv6 { "fd00::2" } else { "10.0.0.2" };
        let (c, ignored) = parse_all(kind, &[("remote_ip", remote)]).unwrap();
        assert_eq!(ignored, [""; 0]);
        assert_eq!((c.kind, c.dst_port), (kind, kind.usual_port().unwrap_or(0)));
        assert_eq!(c.options().len(), 1, "{c:?}");
        let none = parse_all(kind, &[]).unwrap_err();
        assert_eq!(none, format!("t0: {} type requires valid 'remote_ip' argument", kind.name()));
    }
    let v6 = parse_all(TunnelKind::Geneve, &[("remote_ip", "fd00::2"), ("local_ip", "fd00::1")]).unwrap().0;
    assert_eq!(v6.remote, Endpoint::Address("fd00::2".parse().unwrap()));
}

#[test]
fn options_are_read() {
    let (c, ignored) = parse_all(
        TunnelKind::Vxlan,
        &[
            ("remote_ip", "flow"),
            ("local_ip", "flow"),
            ("key", "5"),
            ("out_key", "flow"),
            ("tos", "0x20"),
            ("ttl", "inherit"),
            ("dst_port", "8472"),
            ("csum", "true"),
            ("df_default", "false"),
            ("egress_pkt_mark", "0x10"),
            ("exts", "gbp"),
            ("packet_type", "legacy_l2"),
        ],
    )
    .unwrap();
    assert_eq!(ignored, [""; 0]);
    let expected = TunnelConfig {
        kind: TunnelKind::Vxlan,
        remote: Endpoint::Flow,
        local: Endpoint::Flow,
        in_key: TunnelKey::Value(5),
        out_key: TunnelKey::Flow,
        tos: Some(0x20),
        ttl: None,
        dont_fragment: false,
        csum: true,
        seq: false,
        dst_port: 8472,
        gbp: true,
        egress_pkt_mark: Some(16),
        of_kind: Default::default(),
    };
    assert_eq!(c, expected);
}

/// As in OVS, index and hardware id are hexadecimal, and errors have these words.
#[test]
fn options_of_kinds_are_read() {
    let parsed = |options: &[(&str, &str)]| {
        parse_all(TunnelKind::Erspan, &[&[("remote_ip", "10.0.0.2")], options].concat())
    };
    for (options, ver, idx, dir, hwid) in [
        (&[][..], Some(0), Some(0), Some(0), Some(0)),
        (&[("erspan_ver", "1"), ("erspan_idx", "10")], Some(1), Some(16), Some(0), Some(0)),
        (
            &[("erspan_ver", "2"), ("erspan_dir", "1"), ("erspan_hwid", "0x3f")],
            Some(2),
            Some(0),
            Some(1),
            Some(63),
        ),
        (&[("erspan_ver", "flow"), ("erspan_idx", "flow")], None, None, Some(0), Some(0)),
    ] {
        let (config, ignored) = parsed(options).unwrap();
        assert_eq!(config.of_kind.erspan, ErspanOptions { ver, idx, dir, hwid }, "{options:?}");
        assert_eq!((ignored.len(), config.options().len()), (0, 1 + options.len()), "{options:?}");
    }
    for (kind, options, expected) in [
        (TunnelKind::Gre, &[("packet_type", "legacy_l3")][..], PacketTypes::Bare),
        (TunnelKind::Gre, &[("packet_type", "ptap")], PacketTypes::Any),
        (TunnelKind::Vxlan, &[("exts", "gpe"), ("packet_type", "legacy_l3")], PacketTypes::Bare),
        (TunnelKind::Geneve, &[("packet_type", "ptap")], PacketTypes::Any),
        (TunnelKind::Gtpu, &[("packet_type", "ptap")], PacketTypes::Any),
    ] {
        let (config, ignored) = parse_all(kind, &[&[("remote_ip", "10.0.0.2")], options].concat()).unwrap();
        assert_eq!((config.of_kind.packet_types, ignored.len()), (expected, 0), "{kind:?}");
        let shown = options.iter().filter(|(name, _)| *name != "exts").count();
        assert_eq!(config.options().len(), 1 + shown, "{kind:?}");
    }
    let error = parsed(&[("erspan_ver", "2"), ("erspan_hwid", "64")]).unwrap_err();
    assert_eq!(error, "t0: invalid erspan hardware ID: 64");
}

#[test]
fn invalid_options_are_refused_or_reported() {
    let with = |kind, key: &str, value: &str| {
        let options: Vec<_> = [("remote_ip", "10.0.0.2")].into_iter().filter(|(k, _)| *k != key).collect();
        parse_all(kind, &[options, vec![(key, value)]].concat())
    };
    for (kind, key, value) in [
        (TunnelKind::Vxlan, "remote_ip", "host.example"),
        (TunnelKind::Vxlan, "remote_ip", "239.0.0.1"),
        (TunnelKind::Vxlan, "remote_ip", "0.0.0.0"),
        (TunnelKind::Vxlan, "local_ip", "fd00::1"),
        (TunnelKind::Vxlan, "local_ip", "here"),
        (TunnelKind::Vxlan, "local_ip", "flow"),
        (TunnelKind::Vxlan, "dst_port", "0"),
        (TunnelKind::Vxlan, "dst_port", "65536"),
        (TunnelKind::Vxlan, "key", "0x1000000"),
        (TunnelKind::Gre, "key", "0x100000000"),
        (TunnelKind::Gre, "in_key", "blue"),
        (TunnelKind::Geneve, "packet_type", "legacy_l3"),
        (TunnelKind::Geneve, "packet_type", "bare"),
        (TunnelKind::Vxlan, "packet_type", "legacy_l3"),
        (TunnelKind::Ip6gre, "packet_type", "legacy_l3"),
        (TunnelKind::Gtpu, "packet_type", "legacy_l2"),
        (TunnelKind::Gtpu, "key", "0x100000000"),
        (TunnelKind::Gre, "psk", "secret"),
        (TunnelKind::Vxlan, "remote_cert", "/etc/peer.pem"),
        (TunnelKind::Geneve, "remote_name", "peer"),
        (TunnelKind::Geneve, "ike_lifetime", "60"),
        (TunnelKind::Srv6, "ttl", "64"),
        (TunnelKind::Erspan, "key", "1024"),
        (TunnelKind::Erspan, "erspan_ver", "3"),
        (TunnelKind::Erspan, "erspan_ver", "0"),
        (TunnelKind::Erspan, "erspan_idx", "0x100000"),
        (TunnelKind::Erspan, "erspan_idx", "x"),
        (TunnelKind::Erspan, "erspan_dir", "2"),
        (TunnelKind::Ip6erspan, "erspan_hwid", "64"),
    ] {
        assert!(with(kind, key, value).is_err(), "{kind:?} {key}={value}");
    }
    for (kind, key, value) in [
        (TunnelKind::Vxlan, "tos", "3"),
        (TunnelKind::Vxlan, "ttl", "0"),
        (TunnelKind::Vxlan, "egress_pkt_mark", "-1"),
        (TunnelKind::Gre, "dst_port", "47"),
        (TunnelKind::Gre, "exts", "gbp"),
        (TunnelKind::Geneve, "peer", "p0"),
        (TunnelKind::Gre, "erspan_ver", "1"),
        (TunnelKind::Erspan, "csum", "true"),
        (TunnelKind::Erspan, "seq", "true"),
        (TunnelKind::Gtpu, "seq", "true"),
        (TunnelKind::Gtpu, "csum", "false"),
    ] {
        let (c, ignored) = with(kind, key, value).unwrap();
        assert_eq!((ignored.len(), c.options().len()), (1, 1), "{kind:?} {key}={value}: {ignored:?}");
        assert!(ignored[0].contains(key), "{ignored:?}");
    }
    assert!(with(TunnelKind::Gre, "key", "0xffffffff").is_ok());
}

#[test]
fn segments_are_read() {
    let parsed = |options: &[(&str, &str)]| {
        parse_all(TunnelKind::Srv6, &[&[("remote_ip", "fd00::2")], options].concat())
    };
    let segments = ("srv6_segs", "fd00::2,fd00::3");
    let (config, ignored) = parsed(&[segments, ("srv6_flowlabel", "copy"), ("key", "flow")]).unwrap();
    assert_eq!((config.of_kind.srv6.segments.len(), config.of_kind.srv6.flow_label), (2, FlowLabel::Copy));
    assert_eq!((ignored.len(), config.options().get("srv6_segs").map(String::as_str)), (0, Some(segments.1)));
    for wrong in [
        ("remote_ip", "10.0.0.2"),
        ("srv6_segs", "fd00::3,fd00::2"),
        ("srv6_segs", "fd00::2,10.0.0.1"),
        ("srv6_segs", ""),
        ("srv6_segs", "fd00::2,fd00::3,fd00::4,fd00::5,fd00::6,fd00::7,fd00::8"),
        ("srv6_flowlabel", "some"),
        ("key", "5"),
        ("packet_type", "legacy_l2"),
    ] {
        assert!(parsed(&[wrong]).is_err(), "{wrong:?}");
    }
}
