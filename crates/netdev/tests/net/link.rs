//! Links: reading, setting, hearing of changes.

use std::time::{Duration, Instant};

use netdev::link::{self, CarrierReader, Duplex, LinkEvent, LinkMonitor, OperState};

use crate::helpers::*;

#[test]
fn state_is_read_and_set() {
    in_netns(|| {
        ip("link add sl-a type veth peer name sl-b");
        let before = link::link_info("sl-a").unwrap();
        assert_eq!((before.kind.as_str(), before.mtu, before.admin_up), ("veth", 1500, false));
        assert!(!before.carrier() && before.mac.is_some());
        let mac = [0x02, 0xaa, 0, 0, 0, 1];
        link::set_mac(before.ifindex, mac).unwrap();
        link::set_mtu(before.ifindex, 1400).unwrap();
        link::set_admin_up(before.ifindex, true).unwrap();
        let alone = link::link_info("sl-a").unwrap();
        assert_eq!((alone.mac, alone.mtu, alone.admin_up, alone.carrier()), (Some(mac), 1400, true, false));
        ip("link set sl-b up");
        let up = link::link_info("sl-a").unwrap();
        assert!(up.carrier() && up.oper_state == OperState::Up);
        assert!(up.carrier_changes > alone.carrier_changes);
        assert_eq!(up.carrier_up_count, alone.carrier_up_count + 1);
        // The driver knows a lost carrier at once, also when the kernel reports no further one within the second.
        let reader = CarrierReader::new().unwrap();
        for _ in 0..3 {
            assert!(reader.carrier("sl-a").unwrap());
            ip("link set sl-b down");
            assert!(!reader.carrier("sl-a").unwrap());
            ip("link set sl-b up");
        }
        link::set_admin_up(before.ifindex, false).unwrap();
        assert!(!link::link_info("sl-a").unwrap().admin_up);
        let names: Vec<_> = link::list_links().unwrap().into_iter().map(|l| l.name).collect();
        assert!(["lo", "sl-a", "sl-b"].iter().all(|n| names.iter().any(|m| m == n)), "{names:?}");
    });
}

#[test]
fn errors_name_the_device() {
    in_netns(|| {
        let e = link::link_info("sl-none").unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::NotFound);
        assert!(e.to_string().contains("sl-none"));
        assert!(link::set_mtu(9999, 1500).is_err());
        assert!(link::link_info("a/b").is_err());
        assert!(CarrierReader::new().unwrap().carrier("sl-none").is_err());
        assert!(link::ethtool_link("sl-none").unwrap_err().to_string().contains("sl-none"));
    });
}

#[test]
fn counters_and_driver() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let before = link::link_stats("sl-a").unwrap();
        let mut a = End::system("sl-a", &netdev::SystemOptions::default());
        a.send((0..10).map(|i| frame(i, 100)));
        let after = link::link_stats("sl-a").unwrap();
        assert_eq!(after.tx_packets - before.tx_packets, 10);
        assert_eq!(after.tx_bytes - before.tx_bytes, 1000);
        assert_eq!(link::link_stats("sl-b").unwrap().rx_packets, after.tx_packets);
        // A list of all counters has the values of the link itself.
        let indexes = ["sl-b", "sl-a"].map(|name| link::link_info(name).unwrap().ifindex);
        let listed = link::AllLinkStats::default().get(&[indexes[0], 0, indexes[1]]);
        assert_eq!(listed[1..], [None, Some(after)]);
        assert_eq!(listed[0], Some(link::link_stats("sl-b").unwrap()));
        let settings = link::ethtool_link("sl-a").unwrap();
        assert_eq!((settings.speed_mbps, settings.duplex), (Some(10_000), Some(Duplex::Full)));
        assert_eq!(link::driver("sl-a").unwrap()[0], "veth");
    });
}

fn events_until(m: &mut LinkMonitor, done: impl Fn(&LinkEvent) -> bool) -> Vec<LinkEvent> {
    let deadline = Instant::now() + LIMIT;
    let mut all = Vec::new();
    while Instant::now() < deadline && !all.iter().any(&done) {
        all.extend(m.poll().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(all.iter().any(&done), "{all:?}");
    all
}

#[test]
fn a_monitor_hears_of_changes() {
    in_netns(|| {
        let mut m = LinkMonitor::new().unwrap();
        assert_eq!(m.poll().unwrap(), []);
        veth("sl-a", "sl-b");
        let index = link::link_info("sl-a").unwrap().ifindex;
        events_until(&mut m, |e| matches!(e, LinkEvent::Changed(l) if l.name == "sl-a" && l.carrier()));
        link::set_mtu(index, 1300).unwrap();
        events_until(&mut m, |e| matches!(e, LinkEvent::Changed(l) if l.ifindex == index && l.mtu == 1300));
        ip("link set sl-b down");
        events_until(
            &mut m,
            |e| matches!(e, LinkEvent::Changed(l) if l.ifindex == index && l.admin_up && !l.carrier()),
        );
        ip("link del sl-a");
        events_until(&mut m, |e| *e == LinkEvent::Deleted { ifindex: index, name: "sl-a".to_owned() });
    });
}

#[test]
fn a_monitor_that_missed_events_reports_all_links() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let index = link::link_info("sl-a").unwrap().ifindex;
        let mut m = LinkMonitor::with_buffer(2048).unwrap();
        for i in 0..200 {
            link::set_mtu(index, 1000 + i).unwrap();
        }
        let events = m.poll().unwrap();
        let [LinkEvent::Resync(links)] = &events[..] else { panic!("{events:?}") };
        let a = links.iter().find(|l| l.name == "sl-a").unwrap();
        assert_eq!(a.mtu, 1199);
        assert_eq!(m.poll().unwrap(), []);
        link::set_mtu(index, 1500).unwrap();
        events_until(&mut m, |e| matches!(e, LinkEvent::Changed(l) if l.mtu == 1500));
    });
}
