//! CFM with Open vSwitch, and LLDP with `lldpd`, in other namespaces.

use testkit::{Cmd, Daemon, DaemonSpec, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, require_userspace, start, vsctl, wait_until};
use crate::overlays::stock;

/// A link between a new namespace and that of the switch: device of the switch, device of the partner.
fn link(here: &Netns, there: &Netns) -> (String, String) {
    let (a, b) = testkit::veth(here, there).unwrap();
    here.up(&a).unwrap();
    there.up(&b).unwrap();
    (a, b)
}

fn add_bridge(daemon: &Daemon, device: &str, settings: &str) {
    let port = format!("add-port br0 {device} -- set Interface {device} {settings}");
    vsctl(daemon, &format!("add-br br0 -- set Bridge br0 datapath_type=netdev -- {port}"));
}

/// Both find each other, a fault of one is a defect for the other, and an operational state arrives.
#[test]
fn cfm_works_with_open_vswitch() {
    require_netns!();
    require_userspace!("the partner's bridge is of that type");
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server");
    let (near, far) = (Netns::new("near").unwrap(), Netns::new("far").unwrap());
    let dir = RunDir::new("far").unwrap();
    let (ours, theirs) = (start(&near), stock(&far, &dir));
    let (here, there) = link(&near, &far);
    let extended = "other_config:cfm_extended=true other_config:cfm_interval=150";
    let both = [(&ours, &here, 11), (&theirs[0], &there, 12)];
    for (daemon, device, mpid) in both {
        add_bridge(daemon, device, &format!("cfm_mpid={mpid} {extended}"));
    }
    for (daemon, device, mpid) in both {
        let other = 23 - mpid;
        wait_until(
            daemon,
            &format!("Interface {device} cfm_fault=false cfm_remote_mpids={other} cfm_health=100"),
        );
    }
    vsctl(&theirs[0], &format!("set Interface {there} other_config:cfm_opstate=down"));
    wait_until(&ours, &format!("Interface {here} cfm_remote_opstate=down cfm_fault=false"));
    vsctl(&theirs[0], &format!("remove Interface {there} other_config cfm_opstate"));
    wait_until(&ours, &format!("Interface {here} cfm_remote_opstate=up cfm_fault=false"));
    // Another association of identifiers without the extension: neither receives the other. The partner changes first: it
    // keeps flows that drop frames of the other kind.
    vsctl(
        &theirs[0],
        &format!("set Interface {there} other_config:cfm_extended=false other_config:cfm_interval=100"),
    );
    for (daemon, device, _) in both {
        wait_until(daemon, &format!("Interface {device} cfm_fault=true cfm_fault_status=recv"));
    }
    vsctl(
        &ours,
        &format!("set Interface {here} other_config:cfm_extended=false other_config:cfm_interval=100"),
    );
    for (daemon, device, _) in both {
        wait_until(daemon, &format!("Interface {device} cfm_fault=false"));
    }
    // Loss of one direction.
    far.ip(&format!("link set dev {there} down")).unwrap();
    wait_until(&ours, &format!("Interface {here} cfm_fault=true"));
    far.up(&there).unwrap();
    wait_until(&ours, &format!("Interface {here} cfm_fault=false"));
    let shown = appctl(&ours, &format!("cfm/show {here}"));
    assert!(shown.contains("\tinterval: 100ms\n"), "{shown}");
}

/// `lldpd` sees the switch with its settings, and the switch sees `lldpd`.
#[test]
fn lldp_works_with_lldpd() {
    require_netns!();
    require_userspace!("one datapath shows it");
    require_programs!("ovs-vsctl", "ovs-appctl", "lldpd", "lldpcli");
    let (near, far) = (Netns::new("near").unwrap(), Netns::new("far").unwrap());
    let ours = start(&near);
    let (here, there) = link(&near, &far);
    let settings = "lldp:enable=true -- set Bridge br0 auto_attach=@aa -- --id=@aa create AutoAttach system_name=sw7 \
                    system_description=test";
    add_bridge(&ours, &here, settings);
    let dir = RunDir::new("lldpd").unwrap();
    let socket = dir.join("lldpd.socket");
    let socket_text = socket.display().to_string();
    let arguments = ["-d", "-u", &socket_text, "-I", &there, "-S", "partner"];
    let spec = DaemonSpec::new("lldpd").unwrap().netns(&far).rundir(&dir).args(arguments);
    let lldpd = spec.ready_file("lldpd.socket").start().unwrap();
    let neighbours = || {
        let shown = Cmd::new("lldpcli").args(["-u", &socket_text, "show", "neighbors"]).output();
        shown.map(|output| output.stdout).unwrap_or_default()
    };
    let is_seen = || ["sw7", "test", &here].iter().all(|word| neighbours().contains(*word));
    wait_for(LIMIT, "the switch at lldpd", is_seen).unwrap_or_else(|why| panic!("{why}: {}", neighbours()));
    let inserted = || appctl(&ours, "autoattach/statistics").contains("insert cnt: 1\n");
    wait_for(LIMIT, "lldpd at the switch", inserted).unwrap();
    let counts = appctl(&ours, "autoattach/statistics");
    assert!(counts.contains("rx discarded cnt: 0\n"), "{counts}");
    lldpd.stop().unwrap();
    // It leaves with a time to live of 0.
    let deleted = || appctl(&ours, "autoattach/statistics").contains("delete cnt: 1\n");
    wait_for(LIMIT, "the end of the neighbour", deleted).unwrap();
}
