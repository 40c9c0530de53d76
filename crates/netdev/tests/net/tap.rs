//! Taps against the host's own stack.

use std::net::UdpSocket;

use netdev::{Port, SystemOptions, TapOptions, TxDrop, link};
use packet::{GsoKind, PacketBatch, PacketPool};

use crate::helpers::*;

#[test]
fn a_tap_that_is_down_counts_and_does_not_fail() {
    in_netns(|| {
        let mut t = End::of(Port::open_tap("sl-t0", &TapOptions::default()).unwrap());
        assert!(!link::link_info("sl-t0").unwrap().admin_up);
        let report = t.send([frame(1, 60), frame(2, 60)]);
        assert_eq!((report.sent_packets, report.dropped(TxDrop::PortDown)), (0, 2));
        assert_eq!(t.recv_for(20).len(), 0);
        ip("link set sl-t0 up");
        assert_eq!(t.send([frame(1, 60)]).sent_packets, 1);
    });
}

#[test]
fn options_are_applied_and_the_tap_goes_with_its_queues() {
    in_netns(|| {
        let mac = [0x02, 1, 2, 3, 4, 5];
        let options = TapOptions { mac: Some(mac), mtu: Some(1400), ..TapOptions::default() };
        let port = Port::open_tap("sl-t0", &options).unwrap();
        let info = link::link_info("sl-t0").unwrap();
        assert_eq!((info.mac, info.mtu, info.kind.as_str()), (Some(mac), 1400, "tun"));
        assert_eq!((port.ifindex(), port.name()), (info.ifindex, "sl-t0"));
        let again = Port::open_tap("sl-t0", &options).err().unwrap();
        assert!(again.to_string().contains("sl-t0"), "{again}");
        assert!(Port::open_tap("sl-%d", &options).is_err());
        let tx = port.tx().unwrap();
        drop(port);
        assert!(link::link_info("sl-t0").is_ok(), "a queue is left");
        drop(tx);
        // A process being started by another test holds our descriptors until its exec.
        let gone = |_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            link::link_info("sl-t0").is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        };
        assert!((0..10_000).any(gone));
    });
}

#[test]
fn the_host_sends_and_receives_through_a_tap() {
    in_netns(|| {
        for rx_offload in [true, false] {
            let options = TapOptions { rx_offload, ..TapOptions::default() };
            let mut t = End::of(Port::open_tap("sl-t0", &options).unwrap());
            ip("addr add 192.0.2.1/24 dev sl-t0");
            ip("link set sl-t0 up");
            ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev sl-t0");
            let socket = UdpSocket::bind("192.0.2.1:5000").unwrap();
            socket.send_to(&[7; 1000], "192.0.2.2:5001").unwrap();
            let got = t.recv_where(1, |p| p.len() == 1042);
            assert_eq!(got.len(), 1);
            assert_eq!(got[0].offload.needs_csum, rx_offload);
            // Back: the same frame with everything swapped; its checksum stays valid.
            let mut back = got[0].clone();
            let d = back.data_mut();
            let (to, from) = (d[0..6].to_vec(), d[6..12].to_vec());
            d[0..6].copy_from_slice(&from);
            d[6..12].copy_from_slice(&to);
            let (src, dst) = (d[26..30].to_vec(), d[30..34].to_vec());
            d[26..30].copy_from_slice(&dst);
            d[30..34].copy_from_slice(&src);
            d.swap(34, 36);
            d.swap(35, 37);
            t.send([back]);
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            let mut buf = [0; 2000];
            let (n, from) = socket.recv_from(&mut buf).unwrap();
            assert_eq!((n, from.to_string().as_str()), (1000, "192.0.2.2:5001"));
            ip("link del sl-t0");
        }
    });
}

#[test]
fn large_segments_pass_a_tap_both_ways() {
    in_netns(|| {
        let mut t = End::of(Port::open_tap("sl-t0", &TapOptions::default()).unwrap());
        ip("link set sl-t0 up");
        // The host's side of the tap, as another switch port would see it.
        let mut host = End::system("sl-t0", &SystemOptions::default());
        for tag in [None, Some([0x81, 0, 0, 9])] {
            let sent = tcp_super_frame(40000, 1400, tag);
            assert_eq!(t.send([sent.clone()]).sent_packets, 1);
            let there = host.recv_where(1, is_super_frame);
            assert_eq!(there[0].data(), sent.data());
            assert_eq!((there[0].offload.gso, there[0].offload.gso_size), (GsoKind::Tcp4, 1400));
            assert_eq!(host.send([sent.clone()]).sent_packets, 1);
            let back = t.recv_where(1, is_super_frame);
            assert_eq!(back[0].data(), sent.data());
            assert_eq!((back[0].offload.gso, back[0].offload.gso_size), (GsoKind::Tcp4, 1400));
            assert_eq!(back[0].offload.csum_start, sent.offload.csum_start);
        }
        let mut soft = End::of(
            Port::open_tap("sl-t1", &TapOptions { tx_offload: false, ..TapOptions::default() }).unwrap(),
        );
        ip("link set sl-t1 up");
        let report = soft.send([tcp_super_frame(14000, 1400, None)]);
        assert_eq!((report.sent_packets, report.generated_packets), (10, 9));
    });
}

#[test]
fn a_tap_that_is_deleted_is_an_error() {
    in_netns(|| {
        let mut t = End::of(Port::open_tap("sl-t0", &TapOptions::default()).unwrap());
        ip("link del sl-t0");
        let got = t.rx.recv(&mut PacketPool::new(), &mut PacketBatch::new(), 32);
        assert!(got.is_err());
        assert_eq!(t.send([frame(1, 60)]).dropped(TxDrop::PortDown), 1);
    });
}

/// Devices made by ports end before the ports are closed: by one request. One that is elsewhere ends with its port.
#[test]
fn many_taps_end_together() {
    in_netns(|| {
        let open = |n: usize| {
            let port = Port::open_tap(&format!("sl-t{n}"), &TapOptions::default()).unwrap();
            port.persist(true).unwrap();
            port
        };
        let mut ports: Vec<Port> = (0..300).map(open).collect();
        let left = |ports: &[Port]| ports.iter().filter(|p| link::link_info(p.name()).is_ok()).count();
        // One was deleted by its administrator, one is in another namespace, one is of another program.
        link::delete("sl-t7").unwrap();
        ip("tuntap add dev sl-other mode tap");
        let away = testkit::Netns::new("away").unwrap();
        ip(&format!("link set sl-t9 netns {}", away.name()));
        // Its index may be that of another device by now; a name is as good.
        ip("tuntap add dev sl-t9 mode tap");
        assert_eq!(left(&ports), 299);
        assert!(netdev::end_devices(&ports).is_empty());
        assert_eq!(left(&ports), 1, "the device of another program that has the name of one");
        assert!(link::link_info("sl-other").is_ok());
        let is_away = || away.run("ip", &["link", "show", "dev", "sl-t9"]).is_ok();
        assert!(is_away());
        ports.clear();
        testkit::wait_for(LIMIT, "the tap in the other namespace to end", || !is_away()).unwrap();
        // A single one has no need of a group: it ends with its port.
        let one = open(0);
        assert!(netdev::end_devices([&one]).is_empty() && link::link_info("sl-t0").is_ok());
        drop(one);
        let gone = || link::link_info("sl-t0").is_err();
        testkit::wait_for(LIMIT, "the tap to end with its port", gone).unwrap();
    });
}
