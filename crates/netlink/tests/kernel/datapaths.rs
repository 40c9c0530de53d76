//! Datapaths and ports.

use crate::{LIMIT, NO_PORT, in_namespace, with_switch};
use flow::DpPort;
use netlink::ovs::{
    DpName, DpNew, DpSet, TunnelOptions, VportEvent, VportInfo, VportKind, VportNew, VportSet, features,
};

fn vport(name: &str, kind: VportKind) -> VportNew {
    VportNew { name: name.to_owned(), kind, number: None, upcall_pids: Vec::new(), tunnel: None }
}

#[test]
fn a_datapath_is_made_changed_listed_and_removed() {
    in_namespace(|_, ovs| {
        let name = testkit::if_name("dp");
        let new = DpNew {
            name: name.clone(),
            user_features: features::UNALIGNED | features::VPORT_PIDS,
            masks_cache_size: Some(512),
            ..DpNew::default()
        };
        let made = ovs.dp_new(&new).unwrap();
        assert_eq!((&made.name, made.user_features), (&name, new.user_features));
        assert_eq!(made.masks_cache_size.unwrap_or(512), 512);
        let again = ovs.dp_new(&new).unwrap_err();
        assert!(again.is_exists(), "{again}");
        assert_eq!(again.to_string(), format!("cannot make datapath {name}: File exists (os error 17)"));
        assert_eq!(ovs.dp_get(DpName::Name(&name)).unwrap(), made);
        assert_eq!(ovs.dp_get(DpName::Ifindex(made.dp_ifindex)).unwrap(), made);
        assert_eq!(ovs.dp_dump().unwrap(), std::slice::from_ref(&made));
        let change =
            DpSet { user_features: Some(features::UNALIGNED), masks_cache_size: Some(0), ..DpSet::default() };
        let changed = ovs.dp_set(DpName::Name(&name), &change).unwrap();
        assert_eq!((changed.user_features, changed.masks_cache_size.unwrap_or(0)), (features::UNALIGNED, 0));
        // Features unknown to every kernel.
        let unknown = DpSet { user_features: Some(1 << 30), ..DpSet::default() };
        let e = ovs.dp_set(DpName::Name(&name), &unknown).unwrap_err();
        assert!(e.is_unsupported(), "{e}");
        ovs.dp_del(DpName::Name(&name)).unwrap();
        let e = ovs.dp_get(DpName::Name(&name)).unwrap_err();
        assert!(e.is_no_device(), "{e}");
        assert!(ovs.dp_del(DpName::Ifindex(made.dp_ifindex)).unwrap_err().is_no_device());
        assert!(ovs.dp_dump().unwrap().is_empty());
        let long = DpNew { name: "a-name-of-sixteen".into(), ..DpNew::default() };
        let e = ovs.dp_new(&long).unwrap_err();
        assert!(e.is_invalid() && e.to_string().contains("no interface name"), "{e}");
    });
}

#[test]
fn ports_are_added_changed_listed_and_removed() {
    with_switch(|s| {
        let local = s.ovs.vport_get(s.dp, DpPort(0)).unwrap();
        assert_eq!((local.name.as_str(), local.kind), (s.name.as_str(), VportKind::Internal));
        assert_eq!(local.ifindex, Some(s.dp));
        let name = testkit::if_name("in");
        let new = VportNew {
            number: Some(DpPort(40)),
            upcall_pids: vec![11, 12],
            ..vport(&name, VportKind::Internal)
        };
        let made = s.ovs.vport_new(s.dp, &new).unwrap();
        assert_eq!((made.number, made.kind, &made.name), (DpPort(40), VportKind::Internal, &name));
        assert_eq!(made.upcall_pids, [11, 12]);
        let taken =
            VportNew { number: Some(DpPort(40)), ..vport(&testkit::if_name("in"), VportKind::Internal) };
        assert!(s.ovs.vport_new(s.dp, &taken).unwrap_err().is_exists());
        assert!(s.ovs.vport_new(s.dp, &vport(&s.near.name, VportKind::Netdev)).unwrap_err().is_exists());
        let nothing = s.ovs.vport_new(s.dp, &vport("no-such-dev", VportKind::Netdev)).unwrap_err();
        assert!(nothing.is_no_device() && nothing.to_string().contains("add port no-such-dev"), "{nothing}");
        assert!(s.ovs.vport_new(NO_PORT.0, &new).unwrap_err().is_no_device());

        assert_eq!(s.ovs.vport_get_by_name(&name).unwrap(), made);
        let change = VportSet { upcall_pids: Some(Vec::new()), tunnel: None };
        assert_eq!(s.ovs.vport_set(s.dp, DpPort(40), &change).unwrap().upcall_pids, [0]);
        let mut numbers: Vec<u32> = s.ovs.vport_dump(s.dp).unwrap().iter().map(|p| p.number.0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, s.near.number.0, s.far.number.0, 40]);
        s.ovs.vport_del(s.dp, DpPort(40)).unwrap();
        assert!(s.ovs.vport_get(s.dp, DpPort(40)).unwrap_err().is_no_device());
        assert!(s.ovs.vport_get_by_name(&name).unwrap_err().is_no_device());
        assert!(s.ovs.vport_del(s.dp, DpPort(0)).unwrap_err().is_invalid());
        assert!(s.ovs.vport_dump(NO_PORT.0).unwrap_err().is_no_device());

        s.send(&[&[2; 12][..], &[0x88, 0xb5], &[0; 50]].concat());
        s.next_upcall(|_| ());
        let (near, far) =
            (s.ovs.vport_get(s.dp, s.near.number).unwrap(), s.ovs.vport_get(s.dp, s.far.number).unwrap());
        assert_eq!((near.stats.tx_packets, near.stats.tx_bytes), (1, 64));
        assert_eq!((far.stats.rx_packets, far.stats.rx_bytes), (1, 64));
        if let Some(upcalls) = far.upcall_stats {
            assert_eq!((upcalls.success, upcalls.fail), (1, 0));
        }
    });
}

#[test]
fn tunnel_ports_have_options() {
    with_switch(|s| {
        let options = |dst_port, vxlan_gbp| Some(TunnelOptions { dst_port, vxlan_gbp });
        for (kind, tunnel) in [
            (VportKind::Vxlan, options(Some(4789), false)),
            (VportKind::Vxlan, options(Some(4790), true)),
            (VportKind::Geneve, options(Some(6081), false)),
            (VportKind::Gre, None),
        ] {
            let name = testkit::if_name("tun");
            let port = match s.ovs.vport_new(s.dp, &VportNew { tunnel, ..vport(&name, kind) }) {
                Err(e) if e.errno() == Some(97) || e.is_unsupported() => {
                    testkit::skip(&format!("{kind:?} port"), &e.to_string());
                    continue;
                }
                other => other.unwrap(),
            };
            assert_eq!((port.kind, &port.name), (kind, &name));
            if tunnel.is_some() {
                assert_eq!(port.tunnel, tunnel);
            }
            s.ovs.vport_del(s.dp, port.number).unwrap();
        }
    });
}

#[test]
fn the_monitor_reports_port_changes() {
    with_switch(|s| {
        let mut monitor = s.ovs.vport_monitor().unwrap();
        assert_eq!(monitor.poll().unwrap(), []);
        let mut next = || {
            let mut found = Vec::new();
            testkit::wait_for(LIMIT, "an event", || {
                found = monitor.poll().unwrap();
                !found.is_empty()
            })
            .unwrap();
            found
        };
        let name = testkit::if_name("in");
        let made = s.ovs.vport_new(s.dp, &vport(&name, VportKind::Internal)).unwrap();
        assert_eq!(next(), [VportEvent::Changed(made.clone())]);
        s.ovs.vport_del(s.dp, made.number).unwrap();
        let gone = next();
        assert!(
            matches!(&gone[..], [VportEvent::Deleted(VportInfo { name: n, .. })] if *n == name),
            "{gone:?}"
        );
        // Deleting the interface has the same effect.
        s.net.ip(&format!("link del {}", s.near.name)).unwrap();
        let mut names = Vec::new();
        while names.len() < 2 {
            for event in next() {
                let VportEvent::Deleted(info) = event else { panic!("{event:?}") };
                names.push(info.name);
            }
        }
        names.sort();
        assert_eq!(names, [s.near.name.clone(), s.far.name.clone()]);
    });
}
